"""The life of a pipeline: start, rebalance, drain, stop.

Rule: every task has its parent here (one TaskGroup); the first failure ends all of them, and `run`
raises it. A stop is a drain: take no new records, finish the objects that fit into the time budget,
commit, drop the rest. Partitions come and go in assignments.py, lines stop and go on in
stopped_lines.py; wiring.py makes the stages.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable

from penstock.core.progress.line_stop import LineStop
from penstock.pipeline.assignments import Assignments
from penstock.pipeline.owed_answers import Backlog, backlog_of
from penstock.pipeline.stopped_lines import StoppedLines
from penstock.pipeline.wiring import Wiring
from penstock.process.asyncio_additions import meanwhile, stopped_after
from penstock.stages.microbatch import Waiting

log = logging.getLogger(__name__)


class Pipeline:
    """`run` works until `stop` is called or a task fails."""

    def __init__(self, wiring: Wiring) -> None:
        self.wiring = wiring
        self._lanes = wiring.lanes
        self._source = wiring.adapters.source
        self._stopping = asyncio.Event()
        self._stopped_lines = StoppedLines(wiring, self.stop)
        self.assignments = Assignments(wiring, self._stopped_lines.note, self._stopping)
        self._consuming: asyncio.Task[None] | None = None  # begins when the worker has joined
        self.joined = asyncio.Event()  # set once the worker is a member of its group

    def __repr__(self) -> str:
        windows = "; ".join(repr(track.microbatch) for track in self.wiring.tracks.values())
        return f"{len(self._lanes)} partitions; {windows}; {self.wiring.budget!r}"

    async def run(self) -> None:
        """Returns after a drain; raises the first failure of any task."""
        async with stopped_after(self._source.stop), stopped_after(self.assignments.end):
            await self._run()
            if self._stopped_lines.failure is not None:
                raise self._stopped_lines.failure

    async def run_until(self, ended: Callable[[], Awaitable[object]]) -> None:
        """Run until the wait for `ended` is over, then drain as at any stop. If the wait fails, the
        run is cancelled; if `run` returns by itself, the wait is cancelled.
        """

        async def stop() -> None:
            await ended()
            self.stop()

        async with meanwhile(stop()):
            await self.run()

    async def end(self) -> None:
        """Call this after `run`, when all partitions are handed back. It gives the shadow a moment
        to write the comparisons that it has made.
        """
        if self.wiring.shadow is not None:
            await self.wiring.shadow.end()

    async def _run(self) -> None:
        async with asyncio.TaskGroup() as tasks:
            self.assignments.run_in(tasks)
            workers = [
                *(track.download.fetch_forever() for track in self.wiring.tracks.values()),
                *(track.predict.run() for track in self.wiring.tracks.values()),
                *(watchdog.run() for watchdog in self.wiring.watchdogs),
                self._stopped_lines.run(self.assignments),
                self.wiring.reject.run(),
            ]
            if not self.assignments.exactly_once:
                workers.append(self.wiring.settle.run())
            help_regions = self.wiring.help_regions
            if help_regions is not None:
                workers.append(help_regions.run(self.assignments))
            if self.wiring.shadow is not None:
                workers.append(self.wiring.shadow.run())
            running = [tasks.create_task(worker) for worker in workers]
            joining = tasks.create_task(self._join(tasks))
            await self._stopping.wait()
            self.wiring.consume.stop()
            # If the worker has not joined its group yet, the joining is cancelled: there is nothing
            # to drain, and joining may take as long as the broker is away.
            if not self.joined.is_set():
                joining.cancel()
            await asyncio.wait([joining])
            if self._consuming is not None:
                await asyncio.wait([self._consuming])
            if help_regions is not None:
                help_regions.stop()
                await help_regions.idle()
            await self.assignments.all_revoked()
            self.assignments.stop()
            # The stages ran until now, because the drain needs them.
            for task in running:
                task.cancel()

    async def _join(self, tasks: asyncio.TaskGroup) -> None:
        await self._source.start(self.assignments)
        self.joined.set()
        self._consuming = tasks.create_task(self.wiring.consume.run())

    @property
    def waiting(self) -> Waiting:
        """How many rows wait for a model call."""
        return self.wiring.waiting

    @property
    def backlog(self) -> Backlog:
        """What the worker has read and not answered yet."""
        return backlog_of(self._lanes.values(), self.wiring.adapters.clock.wall_ms())

    @property
    def stopped(self) -> list[LineStop]:
        """The records at which partitions and streams have been stopped."""
        return self._stopped_lines.stops

    def stop(self) -> None:
        """Begin the drain that ends `run`. May be called from a signal handler of the loop."""
        self._stopping.set()
