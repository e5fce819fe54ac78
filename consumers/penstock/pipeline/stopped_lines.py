"""Stopped lines: hears what operators say of them (`penstock dlq resume`, `skip`), lets them begin
again, and ends a worker whose lines are all stopped.

Rule: each word is obeyed once, by whichever worker has the partition. A line is a partition or,
with order by stream, a stream; it stops when it has too many dead letters
(core/progress/line_stop).
"""

import asyncio
import logging
from collections.abc import Callable, Sequence
from contextlib import suppress

from penstock.core.progress.line_stop import LineStop, Passing, Word, decode_words
from penstock.core.rows.log_keys import of_place
from penstock.errors import Fatal, PenstockError
from penstock.lane.lane import Lane
from penstock.pipeline.assignments import Assignments
from penstock.pipeline.wiring import Wiring
from penstock.ports import Where

log = logging.getLogger(__name__)

# While a partition or a stream is stopped, the worker looks after each such pause whether an
# operator has said how to go on.
WORDS_S = 2.0
# While a word is obeyed, the worker looks this often whether it has had its effect, because the
# operator waits for that.
OBEYED_S = 0.5


class StoppedLines:
    """`stop` begins the worker's drain. `failure`: why it ends, if all lines are stopped."""

    def __init__(self, wiring: Wiring, stop: Callable[[], None]) -> None:
        self._wiring = wiring
        self._stop = stop
        self._lanes = wiring.lanes
        self._source = wiring.adapters.source
        self._noted = asyncio.Event()
        self.failure: Fatal | None = None
        # The words that were acted on, each with the partition that it is about.
        self._heard: set[tuple[Where, Word]] = set()
        # Those of them that are not marked yet, with the stop that each was about; and those whose
        # stop was answered already, or stood again, at the last look.
        self._obeyed: dict[tuple[Where, Word], LineStop] = {}
        self._settled: set[tuple[Where, Word]] = set()

    @property
    def stops(self) -> list[LineStop]:
        """The records at which partitions and streams have been stopped."""
        return [stop for lane in self._lanes.values() for stop in lane.stops]

    def note(self, lane: Lane, stop: LineStop) -> None:
        """Tell people that a partition or a stream stopped; all others go on."""
        log.error(
            "line stopped: %s. Mend the cause, then start the worker again or say penstock dlq "
            "resume STREAM: it goes on at this object. To have it answered by its error instead, "
            "say penstock dlq skip STREAM",
            stop,
            extra={**of_place(lane.where, stop.offset), **stop.keys},
        )
        self._wiring.discard_dead()
        if not lane.alive:
            self._source.pause(lane.where)
        self._noted.set()

    async def run(self, assignments: Assignments) -> None:
        """Look for operators' words while partitions or streams are stopped. If all partitions of
        the topic are stopped and no word says how to go on, the worker ends.
        """
        while True:
            await self._noted.wait()
            self._noted.clear()
            while self.stops or self._obeyed:
                await self._mark_obeyed()
                if self.stops and not await self._act_on_words(assignments):
                    self._end_if_all_stopped()
                with suppress(TimeoutError):
                    async with asyncio.timeout(OBEYED_S if self._obeyed else WORDS_S):
                        await self._noted.wait()
                self._noted.clear()

    async def _act_on_words(self, assignments: Assignments) -> bool:
        """Act on what operators have said since the last call. Returns True if a partition or a
        stream goes on because of that.
        """
        lanes = [lane for lane in self._lanes.values() if lane.stops]
        try:
            heard = await self._source.words([lane.where for lane in lanes])
        except PenstockError as error:
            log.warning("what is said of stopped lines cannot be read: %s", error)
            return False
        acted = False
        for lane in lanes:
            if not assignments.may_begin_again(lane):
                continue  # the lane's words are acted on when the partition is assigned again
            if words := self._new_words(assignments, lane, decode_words(heard.get(lane.where, ""))):
                keys = of_place(lane.where)
                log.info("%s goes on: %s", lane.where, words, extra=keys)
                await assignments.begin_again(lane.where)
                acted = True
        return acted

    def _new_words(self, assignments: Assignments, lane: Lane, words: Sequence[Word]) -> list[str]:
        """Returns those of `words` that are about a stop of this lane and were not acted on before,
        as texts for the log. If a word is `skip`, the line will not stop again at the record that
        the word names.
        """
        obeyed: list[str] = []
        for stop in lane.stops:
            for word in words:
                heard = (lane.where, word)
                if word.is_about(stop) and not word.is_done and heard not in self._heard:
                    self._heard.add(heard)
                    self._obeyed[heard] = stop
                    obeyed.append(f"{word.verb} stream {stop.stream!r} at offset {stop.offset}")
                    if word.verb == "skip":
                        last = stop.offset if word.until is None else word.until
                        passing = Passing(stop.stream, stop.offset, last)
                        assignments.let_pass(lane.where, passing)
        return obeyed

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
        if len(stopped) < max(self._wiring.settings.input_partitions, self._source.partitions()):
            return
        self.failure = Fatal(
            f"every line is stopped, the last one at {stopped[-1]}. Mend the cause, then "
            "start the worker again: it goes on where it stopped. To have that answered by its "
            "error instead, say penstock dlq skip STREAM before."
        )
        self._stop()


def _is_past(lane: Lane, word: Word, stop: LineStop) -> bool:
    """Is all answered that the word is about? There may be no record at the last offset."""
    last = stop.offset if word.until is None else word.until
    return last in lane.ledger.progress or lane.ledger.progress.next_offset > last
