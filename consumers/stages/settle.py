"""Turns deliveries into commits.

Rule: what is committed is what the lanes' ledgers say, one request for all partitions; nothing is
committed for a lane that is closed. A commit that fails is tried again with the next one, as the
ledger only moves forward.
"""

import asyncio
import logging
from collections.abc import Iterable, Mapping

from consumers.errors import Transient
from consumers.lane import Lane
from consumers.ports import Source
from consumers.telemetry import Telemetry

log = logging.getLogger(__name__)


class Settle:
    """Commits every `interval_s`, and at once when a lane is handed back."""

    def __init__(
        self, source: Source, lanes: Mapping[int, Lane], telemetry: Telemetry, *, interval_s: float
    ) -> None:
        self._source = source
        self._lanes = lanes
        self._telemetry = telemetry
        self._interval_s = interval_s

    async def run(self) -> None:
        while True:
            await asyncio.sleep(self._interval_s)
            await self.commit(list(self._lanes.values()))

    async def commit(self, lanes: Iterable[Lane]) -> None:
        due = {
            lane: progress
            for lane in lanes
            if lane.may_commit and (progress := lane.progress) != lane.committed
        }
        if not due:
            return
        try:
            await self._source.commit({lane.partition: progress for lane, progress in due.items()})
        except Transient as error:
            self._telemetry.retried("settle")
            log.warning("the commit failed and will be repeated: %s", error)
            return
        for lane, progress in due.items():
            lane.committed = progress
        self._telemetry.committed()
