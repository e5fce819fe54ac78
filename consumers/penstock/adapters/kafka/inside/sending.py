"""When a producer without transactions sends its batches to the brokers.

Rule: aiokafka builds the requests and reads the answers; only the loop around them is ours. It
waits for one future that a new batch or an answer sets; aiokafka's loop adds and removes a callback
on every task and future in every turn. It uses private parts of aiokafka 0.14's sender, as there is
no public way. Owner: the sink, before its start.
"""

import asyncio
from typing import Any

from aiokafka import AIOKafkaProducer
from aiokafka import errors as kafka_errors

# The pause when a partition has no leader: about the time of an election. Without it the broker
# would be asked 500 times a second.
STALE_S = 0.05
# Errors after which the producer can never send again; its tasks raise them.
_ENDED = (
    kafka_errors.ProducerFenced,
    kafka_errors.OutOfOrderSequenceNumber,
    kafka_errors.TransactionalIdAuthorizationFailed,
)


def send_by_ours(producer: AIOKafkaProducer) -> None:
    """Replace aiokafka's loop by ours; the producer's start then begins ours."""
    sender = producer._sender
    sender._sender_routine = Sending(sender).forever


class Sending:
    def __init__(self, sender: Any) -> None:
        self._sender = sender
        self._accumulator = sender._message_accumulator
        self._tasks: set[asyncio.Task[None]] = set()

    async def forever(self) -> None:
        try:
            while True:
                await self._sender._maybe_wait_for_pid()
                self._check()
                self._send()
                await self._accumulator.waiter()
        except asyncio.CancelledError:
            # `stop` cancels this loop: requests already sent must still get their answers.
            for task in self._tasks:
                await task
        except _ENDED:
            raise
        except Exception as error:
            raise kafka_errors.KafkaError(f"the delivery of batches broke: {error!r}") from error

    def _send(self) -> None:
        """At most one request per broker and one batch per partition are on their way, so that a
        retried batch cannot change places with the next one.
        """
        sender = self._sender
        batches, is_stale = self._accumulator.drain_by_nodes(
            ignore_nodes=sender._in_flight, muted_partitions=sender._muted_partitions
        )
        for node, of_node in batches.items():
            sender._in_flight.add(node)
            sender._muted_partitions.update(of_node)
            task = asyncio.get_running_loop().create_task(sender._send_produce_req(node, of_node))
            self._tasks.add(task)
            task.add_done_callback(self._wake)
        if is_stale:
            sender.client.force_metadata_update().add_done_callback(self._look_again)

    def _check(self) -> None:
        done = [task for task in self._tasks if task.done()]
        self._tasks.difference_update(done)
        for task in done:
            task.result()

    def _look_again(self, _: object) -> None:
        """Look again after a pause, as a leader may have been elected by then."""
        asyncio.get_running_loop().call_later(STALE_S, self._wake)

    def _wake(self, _: object = None) -> None:
        self._accumulator._wakeup(self._accumulator.waiter())
