"""The Faust application: agents, the table with its changelog, and the way out.

Rule: Faust acknowledges what an agent has passed, also when the agent failed or was cancelled. So
no agent fails or is cancelled here: a batch ends well, or the process ends before the
acknowledgement, and another worker does it again. Owner: `penstock scenes`.
"""

import asyncio
import logging
import math
import os
import time
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any, NoReturn, cast

from faust.types import TP

from consumers import config
from consumers.clock import SystemClock
from consumers.errors import EXIT_DONE, EXIT_FATAL
from consumers.scenes.faust_settings import app_settings
from consumers.scenes.faust_transport import App
from consumers.scenes.ledger import Keyed, Ledger, Topics
from consumers.scenes.names import Names, names, rules_of
from consumers.scenes.picture import Pictures
from consumers.scenes.rekey import forward
from consumers.scenes.rules import Streams

log = logging.getLogger(__name__)

BATCH = 512
# How long Faust gathers a batch, and how often deadlines are looked at.
GATHER_S = 0.005
TICK_S = 0.01
# Half of the time after which Kafka gives our partitions to somebody else: a process that was
# stopped for longer may be deciding what another has decided otherwise.
ASLEEP_S = 5.0
LEAVE_S = 5.0
# Longer than any record is on its way while a worker keeps up.
BEHIND_S = 1.0


class Scenes:
    """One worker of the group."""

    def __init__(self, cfg: config.Config, partitions: int) -> None:
        scenes = cfg.scenes
        self._names: Names = names(scenes)
        self._late_is_dropped = scenes.late == "drop"
        self._streams = Streams(scenes.site)
        self.app = App(scenes.group, **app_settings(cfg))
        self._input = self._topic(self._names.input)
        self._by_site = self._topic(self._names.by_site)
        self._table = self.app.Table(
            "sites",
            partitions=partitions,
            changelog_topic=self._topic(self._names.changelog),
        )
        self.ledger = Ledger(
            rules_of(scenes),
            self._streams,
            Pictures(scenes.inline, scenes.fill),
            Topics(self._names.scenes, self._names.late, self._names.changelog),
            self._send,
            SystemClock().wall_ms,
            self._is_behind,
        )
        # By partition of both topics: the offset behind the last that was handled, the time that
        # Kafka got it, and when it was handled.
        self._handled: dict[TP, tuple[int, float, float]] = {}
        self._awake_at = math.inf  # before the first look at the clock nobody has slept
        self._wire()

    def _topic(self, name: str) -> Any:
        return self.app.topic(
            name, key_type=bytes, value_type=bytes, key_serializer="raw", value_serializer="raw"
        )

    def _wire(self) -> None:
        self.app.agent(self._input, name="rekey")(partial(self._batches, self._rekey))
        self.app.agent(self._by_site, name="sites")(partial(self._batches, self._decide))
        self.app.task()(self._tick)
        self.app.on_partitions_revoked.connect(self._revoked, weak=False)
        self._table.on_recover(self._recovered)

    async def _batches(self, work: Callable[[list[Any]], Awaitable[None]], stream: Any) -> None:
        async for events in stream.take_events(BATCH, within=GATHER_S):
            try:
                await work(events)
                for event in events:
                    message = event.message
                    came = message.timestamp
                    self._handled[message.tp] = message.offset + 1, came, time.time()
            except BaseException:
                # Whatever it was: to leave this block would acknowledge the batch.
                log.critical("a batch of scenes failed; the process ends", exc_info=True)
                end_now(EXIT_FATAL)

    def _is_behind(self) -> bool:
        """Whether a partition is read whose records are old, and has more of them. Live, a few
        are always on their way; and what follows the last record may be a mark of a transaction,
        which nobody handles.
        """
        since, consumer = time.time() - BEHIND_S, self.app.consumer
        return any(
            came < since < handled_at and offset < (consumer.highwater(tp) or 0)
            for tp, (offset, came, handled_at) in self._handled.items()
        )

    async def _rekey(self, events: list[Any]) -> None:
        """To the topic that has one site on one partition; delivered when it returns."""
        sent = []
        for event in events:
            message = event.message
            where = f"{message.topic}/{message.partition}/{message.offset}"
            site, key, value = forward(self._streams, message.value, where)
            if site is not None:
                at = message.timestamp
                sent.append(await self._send(self._names.by_site, key, value, timestamp=at))
            elif not self._late_is_dropped:
                sent.append(await self._send(self._names.late, key, value))
        await asyncio.gather(*sent)

    async def _decide(self, events: list[Any]) -> None:
        await self.ledger.handle(
            Keyed(
                event.message.partition,
                event.message.key.decode(),
                event.message.value,
                round(event.message.timestamp * 1000),
            )
            for event in events
        )

    async def _tick(self) -> None:
        self._awake_at = time.monotonic()
        while True:
            await asyncio.sleep(TICK_S)
            self._stay_awake()
            try:
                await self.ledger.tick()
            except Exception:
                log.critical("scenes could not be closed; the process ends", exc_info=True)
                end_now(EXIT_FATAL)

    def _stay_awake(self) -> None:
        now = time.monotonic()
        if now - self._awake_at > ASLEEP_S:
            log.critical("asleep for %.1f s: its sites may be another's", now - self._awake_at)
            end_now(EXIT_FATAL)
        self._awake_at = now

    async def _send(
        self,
        topic: str,
        key: bytes,
        value: bytes,
        partition: int | None = None,
        timestamp: float | None = None,
    ) -> Awaitable[object]:
        if time.monotonic() - self._awake_at > ASLEEP_S:
            self._stay_awake()
        producer = await self.app.maybe_start_producer()
        return await producer.send(topic, key, value, partition, timestamp, None)  # type: ignore[no-any-return]

    async def _revoked(self, *_: object, **__: object) -> None:
        self._handled.clear()
        await self.ledger.give_up()

    async def _recovered(self) -> None:
        assigned = {
            tp.partition for tp in self.app.consumer.assignment() if tp.topic == self._names.by_site
        }
        states = {key.decode(): value for key, value in self._table.data.items()}
        await self.ledger.take_over(assigned, states)

    async def run(self) -> None:
        """Until it is stopped from outside, or fails."""
        await self.app.start()
        await self.app.wait_until_stopped()

    async def stop(self) -> None:
        """Finish the batch under way, commit, leave the group; Faust's own stop would acknowledge
        what is not done.
        """
        try:
            async with asyncio.timeout(LEAVE_S):
                await self.ledger.give_up()
                await self.app.consumer.commit()
                thread = cast("Any", self.app.consumer)._thread
                await thread.call_thread(thread._consumer.stop)
        except Exception:
            log.warning("left without goodbye; the group notices in seconds", exc_info=True)
        end_now(EXIT_DONE)


def end_now(code: int) -> NoReturn:
    logging.shutdown()
    os._exit(code)
