"""A scenes worker on Faust: one agent re-keys predictions, another decides about scenes.

Rule: Faust acknowledges an event when an agent has passed it, even if the agent failed or was
cancelled. The agents here turn this off: they acknowledge a batch when its results are delivered,
and a failure before ends the process. Faust's tables cannot tell which worker may write, so the
ledger reads its changelog itself.

Faust's transport is changed in four places: an idempotent producer, because repeats are recognised
by position; fetches of at most 20 ms, because one partition would wait for another; the choice of
open and aborted transactions; and records whose time the topic does not take are sent again.
"""

import asyncio
import logging
import os
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial
from typing import Any, NoReturn, cast

import faust
from faust.auth import OAuthCredentials, SSLCredentials
from faust.transport.drivers import aiokafka as driver
from faust.types import TP

from penstock import config
from penstock.adapters.kafka.client import connection, translated
from penstock.adapters.kafka.inside.producers import mend_refusals
from penstock.errors import EXIT_DONE, EXIT_FATAL, Fatal
from penstock.process.asyncio_additions import SystemClock
from penstock.process.signals import on_stop
from penstock.scenes.changelog import Fits, Out
from penstock.scenes.core.decision_time import Behind
from penstock.scenes.ledger import Keyed, parts_of

log = logging.getLogger(__name__)


def app_settings(cfg: config.Config) -> dict[str, Any]:
    servers = cfg.kafka.bootstrap_servers.split(",")
    return {
        "broker": ";".join(f"kafka://{server.strip()}" for server in servers),
        "broker_credentials": credentials_of(cfg.kafka),
        "broker_client_id": "penstock-scenes",
        # When a worker has been dead for this many seconds, other workers take over its sites.
        "broker_session_timeout": 10.0,
        "broker_heartbeat_interval": 2.0,
        "consumer_connections_max_idle_ms": cfg.kafka.idle_ms,
        "producer_connections_max_idle_ms": cfg.kafka.idle_ms,
        # Offsets are committed this often, so a crash repeats at most the records of this time.
        # Repeats are recognised by their ids.
        "broker_commit_interval": 0.5,
        "consumer_auto_offset_reset": "earliest",
        "processing_guarantee": "at_least_once",
        "producer_linger": 0,
        # Faust's default is 16 KiB, but during a backlog the state of a site is larger.
        "producer_max_batch_size": 1 << 20,
        "store": "memory://",
        "table_standby_replicas": 0,
        "stream_recovery_delay": 0.0,
        "stream_wait_empty": False,
        "topic_allow_declare": False,
        "topic_disable_leader": True,
        "web_enabled": False,
        "loghandlers": [],
    }


def credentials_of(kafka: config.Kafka) -> Any:
    arguments = connection(kafka)  # from now on each connection knows its mechanism itself
    identity = arguments.get("sasl_oauth_token_provider")
    if identity is None:
        return None
    if identity.mechanism is None:
        return SSLCredentials(identity.tls)
    return OAuthCredentials(oauth_cb=identity, ssl_context=identity.tls)


# The default of `kafka.fetch_wait_ms`, which the worker's own consumer uses.
FETCH_WAIT_MS = 20


class FaustProducer(driver.Producer):
    def _settings_extra(self) -> Mapping[str, Any]:
        return {"acks": "all", "enable_idempotence": True}

    def _new_producer(self, transactional_id: str | None = None) -> Any:
        producer = super()._new_producer(transactional_id)
        mend_refusals(producer)
        return producer


class ConsumerThread(driver.AIOKafkaConsumerThread):
    def _create_worker_consumer(self, transport: Any) -> Any:
        consumer = super()._create_worker_consumer(transport)
        consumer._fetch_max_wait_ms = FETCH_WAIT_MS
        consumer._isolation_level = transport.app.isolation
        return consumer


class Consumer(driver.Consumer):
    def _new_consumer_thread(self) -> Any:
        return ConsumerThread(self, loop=self.loop, beacon=self.beacon)


class Transport(driver.Transport):
    Consumer = Consumer
    FaustProducer = FaustProducer


class App(faust.App):
    isolation = "read_uncommitted"

    def _new_transport(self) -> Any:
        return Transport(self.conf.broker_consumer, self)

    def _new_producer_transport(self) -> Any:
        return Transport(self.conf.broker_producer, self)


# A batch has at most this many records. While a batch is in progress, at most this many records
# wait here; all others stay in Faust's queue.
BATCH = 512
# How often the ledger looks for deadlines that are over.
TICK_S = 0.01
LEAVE_S = 5.0


class FaustEngine:
    """One worker of the group."""

    def __init__(self, cfg: config.Config, fits: Fits) -> None:
        self._clock = SystemClock()
        self._app = App(cfg.scenes.group, **app_settings(cfg))
        self._app.isolation = cfg.delivery.isolation
        self._backlog: Behind[TP] = Behind()
        parts = parts_of(cfg, self._send, fits, self._clock, self._is_behind)
        self._names, self._rekeying, self.ledger = parts
        self._wire()

    def _wire(self) -> None:
        for topic, work in (
            (self._names.input, self._rekey),
            (self._names.by_site, self._decide),
        ):
            channel = self._app.topic(
                topic,
                key_type=bytes,
                value_type=bytes,
                key_serializer="raw",
                value_serializer="raw",
            )
            self._app.agent(channel, name=work.__name__)(partial(self._batches, work))
        self._app.task()(self._tick)
        self._app.on_partitions_revoked.connect(self._revoked, weak=False)
        self._app.on_partitions_assigned.connect(self._assigned, weak=False)

    async def _batches(self, work: Callable[[list[Any]], Awaitable[None]], stream: Any) -> None:
        """Hand over events in batches. While a batch is in progress, reading goes on, and the
        events that come then make up the next batch.
        """
        waiting: asyncio.Queue[Any] = asyncio.Queue(BATCH)
        # `noack()` is no use here: it returns another stream, and this stream would still
        # acknowledge the events that it has passed.
        stream.enable_acks = False
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._work_off(work, stream, waiting))
            async for event in stream.events():
                await waiting.put(event)

    async def _work_off(
        self, work: Callable[[list[Any]], Awaitable[None]], stream: Any, waiting: asyncio.Queue[Any]
    ) -> None:
        while True:
            events = [await waiting.get()]
            while not waiting.empty() and len(events) < BATCH:
                events.append(waiting.get_nowait())
            try:
                await work(events)
                for event in events:
                    if self._is_current(event):
                        await stream.ack(event)
                self._note(events)
            except Exception as error:
                _end_by(error, "a batch of scenes failed")

    def _is_current(self, event: Any) -> bool:
        """True if the event belongs to the current assignment. The record of any other event is
        read again by the next assignment.
        """
        return bool(event.message.generation_id == self._app.consumer_generation_id)

    def _note(self, events: list[Any]) -> None:
        now = self._clock.wall_ms()
        for message in (event.message for event in events):
            came = round(message.timestamp * 1000)
            self._backlog.handled(message.tp, message.offset, came, now)

    def _is_behind(self) -> bool:
        consumer = self._app.consumer
        ends = {tp: consumer.highwater(tp) or 0 for tp in consumer.assignment()}
        return self._backlog.is_behind(ends, self._clock.wall_ms())

    async def _rekey(self, events: list[Any]) -> None:
        """Copy the records to the topic on which each site has one partition. Returns when they are
        delivered.
        """
        outs: list[Out] = []
        for each in (event.message for event in events):
            where = f"{self._names.input}/{each.partition}/{each.offset}"
            outs += self._rekeying.out(each.value, where, round(each.timestamp * 1000))
        await (await self._send(outs))

    async def _decide(self, events: list[Any]) -> None:
        await self.ledger.handle(
            Keyed(
                event.message.partition,
                event.message.key.decode(),
                event.message.value,
                round(event.message.timestamp * 1000),
                event.message.offset,
            )
            for event in events
            if self._is_current(event)
        )

    async def _tick(self) -> None:
        while True:
            await asyncio.sleep(TICK_S)
            try:
                await self.ledger.tick()
            except Exception as error:
                _end_by(error, "scenes could not be closed")

    async def _send(self, records: Sequence[Out]) -> Awaitable[Sequence[int]]:
        producer = await self._app.maybe_start_producer()
        sent = [
            await producer.send(
                each.topic,
                each.key,
                each.value,
                each.partition,
                None if each.at_ms is None else each.at_ms / 1000,
                None,
            )
            for each in records
        ]
        return _delivered(sent)

    async def _revoked(self, *_: object, **__: object) -> None:
        self._backlog.forget()
        await self.ledger.give_up()

    async def _assigned(self, *parts: Any, **_: object) -> None:
        assigned: set[TP] = parts[1]
        ours = {tp.partition for tp in assigned if tp.topic == self._names.by_site}
        try:
            await self.ledger.take_over(ours)
        except Exception as error:
            _end_by(error, "the sites could not be taken over")

    async def run(self) -> None:
        """Run until SIGTERM or Ctrl-C, or until it fails."""
        async with asyncio.TaskGroup() as tasks:
            on_stop(lambda: tasks.create_task(self._stop()))
            await self._app.start()
            await self._app.wait_until_stopped()
        raise Fatal("Faust stopped; its log says why")

    async def _stop(self) -> None:
        """Finish the batch in progress, commit, leave the group. Faust's own services are not
        stopped, because they would then acknowledge and commit unfinished work. The consumer under
        Faust is not stopped either, because Faust fails when it ends.
        """
        try:
            async with asyncio.timeout(LEAVE_S):
                await self.ledger.give_up()
                await self._app.consumer.commit()
                thread = cast("Any", self._app.consumer)._thread
                await thread.call_thread(thread._consumer._coordinator._maybe_leave_group)
        except Exception:
            log.warning("could not leave the group, which notices in seconds", exc_info=True)
        end_now(EXIT_DONE)


async def _delivered(sent: Sequence[Awaitable[Any]]) -> Sequence[int]:
    with translated("the delivery of a batch"):
        return [(await each).offset for each in sent]


def _end_by(error: Exception, what: str) -> NoReturn:
    if isinstance(error, Fatal):
        log.critical("%s; the process ends: %s", what, error)
        end_now(error.exit_code)
    log.critical("%s; the process ends", what, exc_info=error)
    end_now(EXIT_FATAL)


def end_now(code: int) -> NoReturn:
    logging.shutdown()
    os._exit(code)
