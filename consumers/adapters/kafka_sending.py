"""When batches leave for the brokers, of a producer without transactions.

Rule: what is sent, and what an answer means, is aiokafka's. Ours is the loop around it: it waits
for one future, which a new batch or an answer sets; aiokafka's puts a callback on every task and
future each time and takes it off again. It reaches into aiokafka 0.14's sender for this, as there
is no public way. Owner: the sink, before its start.
"""

import asyncio
from typing import Any

from aiokafka import AIOKafkaProducer
from aiokafka import errors as kafka_errors

# An election takes about as long; without a pause the broker would be asked 500 times a second.
STALE_S = 0.05
# What has ended the producer for good; its tasks tell by these.
_ENDED = (
    kafka_errors.ProducerFenced,
    kafka_errors.OutOfOrderSequenceNumber,
    kafka_errors.TransactionalIdAuthorizationFailed,
)


def send_by_ours(producer: AIOKafkaProducer) -> None:
    """Ours takes the place of aiokafka's loop, which the start of the producer begins."""
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
            # What is on its way has to be answered.
            for task in self._tasks:
                await task
        except _ENDED:
            raise
        except Exception as error:
            raise kafka_errors.KafkaError(f"the delivery of batches broke: {error!r}") from error

    def _send(self) -> None:
        """One request a broker at a time, and of a partition one batch."""
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
        """A partition without a leader: one may have been elected meanwhile."""
        asyncio.get_running_loop().call_later(STALE_S, self._wake)

    def _wake(self, _: object = None) -> None:
        self._accumulator._wakeup(self._accumulator.waiter())
