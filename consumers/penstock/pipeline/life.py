"""The life of a pipeline: start, rebalance, drain, stop.

Rule: every task has its parent here (one TaskGroup); the first failure ends all of them, and `run`
raises it. A stop is a drain: take no new records, finish the objects that fit into the time budget,
commit, drop the rest. Partitions come and go in assignments.py; wiring.py makes the stages. A line
is a partition or, with order by stream, a stream. A line stops when it has too many dead letters.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress

from penstock.core.order.line_stop import LineStop, Passing, Word, decode_words
from penstock.core.rows.log_keys import of_place
from penstock.errors import Fatal, PenstockError
from penstock.lane.lane import Lane
from penstock.pipeline.assignments import Assignments
from penstock.pipeline.owed_answers import Backlog, backlog_of
from penstock.pipeline.wiring import Wiring
from penstock.ports import Where
from penstock.process.asyncio_additions import meanwhile, stopped_after
from penstock.stages.microbatch import Waiting

log = logging.getLogger(__name__)

# While a partition or a stream is stopped, the worker looks after each such pause whether an
# operator has said how to go on (`penstock dlq resume` or `skip`).
WORDS_S = 2.0
# While a word is obeyed, the pipeline looks this often whether it has had its effect, because the
# operator waits for that.
OBEYED_S = 0.5


class Pipeline:
    """`run` works until `stop` is called or a task fails."""

    def __init__(self, wiring: Wiring) -> None:
        self.wiring = wiring
        self._settings = wiring.settings
        self._lanes = wiring.lanes
        self._source = wiring.adapters.source
        self._stopping = asyncio.Event()
        self.assignments = Assignments(wiring, self._line_stopped, self._stopping)
        self._failure: Fatal | None = None
        self._consuming: asyncio.Task[None] | None = None  # begins when the worker has joined
        self.joined = asyncio.Event()  # set once the worker is a member of its group
        self._line_stops = asyncio.Event()
        # The operators' words that were acted on, each with the partition that it is about.
        self._heard: set[tuple[Where, Word]] = set()
        # Those of them that are not marked yet, with the stop that each was about; and those whose
        # stop was answered already, or stood again, at the last look.
        self._obeyed: dict[tuple[Where, Word], LineStop] = {}
        self._settled: set[tuple[Where, Word]] = set()

    def __repr__(self) -> str:
        windows = "; ".join(repr(track.microbatch) for track in self.wiring.tracks.values())
        return f"{len(self._lanes)} partitions; {windows}; {self.wiring.budget!r}"

    async def run(self) -> None:
        """Returns after a drain; raises the first failure of any task."""
        async with stopped_after(self._source.stop), stopped_after(self.assignments.end):
            await self._run()
            if self._failure is not None:
                raise self._failure

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
                *(
                    track.download.fetch_forever(store)
                    for track in self.wiring.tracks.values()
                    for store in self.wiring.reads
                ),
                *(track.predict.run() for track in self.wiring.tracks.values()),
                *(watchdog.run() for watchdog in self.wiring.watchdogs),
                self._mind_lines(),
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
        return [stop for lane in self._lanes.values() for stop in lane.stops]

    def stop(self) -> None:
        """Begin the drain that ends `run`. May be called from a signal handler of the loop."""
        self._stopping.set()

    def _line_stopped(self, lane: Lane, stop: LineStop) -> None:
        """Tell people that a partition or a stream stopped; all others go on."""
        log.error(
            "line stopped: %s. Mend the cause, then start the worker again or say penstock dlq "
            "resume STREAM: it goes on at this object. To have it answered by its error instead, "
            "say penstock dlq skip STREAM",
            stop,
            extra={**of_place(lane.where, stop.offset), **stop.keys},
        )
        self.wiring.discard_dead()
        if not lane.alive:
            self._source.pause(lane.where)
        self._line_stops.set()

    async def _mind_lines(self) -> None:
        """Look for operators' words while partitions or streams are stopped. If all partitions of
        the topic are stopped and no word says how to go on, the worker ends.
        """
        while True:
            await self._line_stops.wait()
            self._line_stops.clear()
            while self.stopped or self._obeyed:
                await self._mark_obeyed()
                if self.stopped and not await self._act_on_words():
                    self._end_if_all_stopped()
                with suppress(TimeoutError):
                    async with asyncio.timeout(OBEYED_S if self._obeyed else WORDS_S):
                        await self._line_stops.wait()
                self._line_stops.clear()

    async def _act_on_words(self) -> bool:
        """Act on what operators have said since the last call. Returns True if a partition or a
        stream goes on because of that.
        """
        lanes = [lane for lane in self._lanes.values() if lane.stops]
        try:
            said = await self._source.words([lane.where for lane in lanes])
        except PenstockError as error:
            log.warning("what is said of stopped lines cannot be read: %s", error)
            return False
        acted = False
        for lane in lanes:
            if not self.assignments.may_begin_again(lane):
                continue  # the lane's words are acted on when the partition is assigned again
            if words := self._new_words(lane, decode_words(said.get(lane.where, ""))):
                keys = of_place(lane.where)
                log.info("%s goes on: %s", lane.where, words, extra=keys)
                await self.assignments.begin_again(lane.where)
                acted = True
        return acted

    def _new_words(self, lane: Lane, words: Sequence[Word]) -> list[str]:
        """Returns those of `words` that are about a stop of this lane and were not acted on before,
        as texts for the log. If a word is `skip`, the line will not stop again at the record that
        the word names.
        """
        found: list[str] = []
        for stop in lane.stops:
            for word in words:
                heard = (lane.where, word)
                if word.is_about(stop) and not word.is_done and heard not in self._heard:
                    self._heard.add(heard)
                    self._obeyed[heard] = stop
                    found.append(f"{word.verb} stream {stop.stream!r} at offset {stop.offset}")
                    if word.verb == "skip":
                        last = stop.offset if word.until is None else word.until
                        passing = Passing(stop.stream, stop.offset, last)
                        self.assignments.let_pass(lane.where, passing)
        return found

    async def _mark_obeyed(self) -> None:
        """Mark the words that are obeyed, so that no other worker obeys them, not even if somebody
        moves the group's position back. A word is obeyed if its record is answered or its line has
        stopped there again. It is marked one look later: by then the answer is committed. If a
        worker dies before, its successor hears the word.
        """
        for heard, stop in list(self._obeyed.items()):
            where, word = heard
            lane = self._lanes.get(where)
            if lane is None:
                continue  # the partition is about to begin again, or another worker has it
            if heard in self._settled:
                try:
                    await self._source.mark_obeyed(where, [word])
                except PenstockError as error:
                    log.warning("a word about a stopped line cannot be marked: %s", error)
                    continue
                del self._obeyed[heard]
                self._settled.discard(heard)
            elif _is_past(lane, word, stop) or any(map(word.is_about, lane.stops)):
                self._settled.add(heard)

    def _end_if_all_stopped(self) -> None:
        """End the worker if all partitions are stopped. The source is asked for the number of
        partitions, because some may have been added since the worker started.
        """
        stopped = [lane.stopped for lane in self._lanes.values() if lane.stopped is not None]
        if len(stopped) < max(self._settings.input_partitions, self._source.partitions()):
            return
        self._failure = Fatal(
            f"every line is stopped, the last one at {stopped[-1]}. Mend the cause, then "
            "start the worker again: it goes on where it stopped. To have that answered by its "
            "error instead, say penstock dlq skip STREAM before."
        )
        self.stop()


def _is_past(lane: Lane, word: Word, stop: LineStop) -> bool:
    """Is all answered that the word is about? There may be no record at the last offset."""
    last = stop.offset if word.until is None else word.until
    return last in lane.ledger.progress or lane.ledger.progress.next_offset > last
