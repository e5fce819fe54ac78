"""Polls the source, and hands each record to the lane of its partition.

Rule: partitions without room are not polled, so the rest of their backlog stays in Kafka. The lane
has a record decoded (intake.py) once it has room for the objects, and offers them to the fetchers
(download.py): at once, or when answers are delivered.

A poll costs about 0.35 ms of CPU, however many records it brings. So between two polls the worker
waits a little if the wait brings several records together; while they are rare it never waits.
"""

import asyncio
from collections.abc import Mapping

from penstock.lane.lane import Lane
from penstock.ports import Clock, InputSource, Where

# A partition that gets room during a poll of the other partitions waits for the end of that poll,
# which takes at most this long.
POLL_WAIT_MS = 50
# The pause between two polls. It is shorter than the time that a row may wait in the window by
# default, and longer than a fetch takes on a quiet broker.
GATHER_S = 0.004
# Waiting pays if it brings this many records. In 4 ms, 40 streams at 20 Hz bring 3.2 records, and
# 10 such streams bring 0.8 records.
WORTH_RECORDS = 2.0
# Time constant of the moving average of the record rate.
RATE_MEMORY_S = 0.5


class Gather:
    """How long to wait between two polls. Call `wait_s` after every poll."""

    def __init__(self) -> None:
        self._rate_hz = 0.0
        self._polled_s: float | None = None

    def wait_s(self, records: int, now_s: float) -> float:
        """Seconds to wait after a poll that brought this number of `records`."""
        before_s, self._polled_s = self._polled_s, now_s
        if before_s is None:
            return 0.0
        passed_s = max(now_s - before_s, 1e-6)
        share = min(1.0, passed_s / RATE_MEMORY_S)
        self._rate_hz += share * (records / passed_s - self._rate_hz)
        return GATHER_S if records and self._rate_hz * GATHER_S >= WORTH_RECORDS else 0.0


class Consume:
    """Polls the source, in one task. `stop` ends the task between two polls."""

    def __init__(self, source: InputSource, lanes: Mapping[Where, Lane], clock: Clock) -> None:
        self._source = source
        self._lanes = lanes
        self._clock = clock
        self._gather = Gather()
        self._stopping = False

    def stop(self) -> None:
        self._stopping = True

    async def run(self) -> None:
        while not self._stopping:
            # Each poll names the partitions that have room. Pausing the other partitions in the
            # client instead would drop the records that the client has already fetched from them.
            wanted = [lane.where for lane in self._lanes.values() if lane.wants_records]
            records = await self._source.poll(wanted, POLL_WAIT_MS)
            for record in records:
                lane = self._lanes.get(record.where)
                # A rebalance may have taken the partition during the poll.
                if lane is not None:
                    lane.receive(record)
            if not records:
                self._pass_over()
            if wait_s := self._gather.wait_s(len(records), self._clock.now()):
                await asyncio.sleep(wait_s)

    def _pass_over(self) -> None:
        """At the end of a partition there may be offsets without a record, such as the markers of
        transactions. Let the lanes pass over these offsets, because otherwise the backlog would
        never count as read.
        """
        for partition, offset in self._source.reached().items():
            lane = self._lanes.get(partition)
            if lane is not None:
                lane.pass_over(offset)
