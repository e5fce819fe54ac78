"""Sends batches of the live model to a shadow model as well, compares the answers, and writes rows
on which the two disagree, and summaries, to the shadow topic.

Rule: the shadow never delays live work and never makes it fail. A batch is copied after the live
model has answered it, into a buffer of the shadow's own, if there is room. The shadow is asked once
for each copy; its errors end here. A disagreement is sent once, or only counted. A summary is sent
until it is acknowledged, always with the same `id`, so that its rows count once.
"""

import asyncio
import logging
import uuid
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass

from penstock.core.comparing.comparison import (
    NOTHING,
    OTHERS,
    Agreement,
    AgreementShare,
    Comparison,
    Tally,
    Unsent,
)
from penstock.core.comparing.shadow_copies import CopiedRows, Copies, ShadowCopy, requests, run_of
from penstock.core.health.retries import Backoff
from penstock.core.rows.blocks import Block
from penstock.core.rows.payload import Payload
from penstock.errors import Fatal, PenstockError, Poison, Unreachable
from penstock.failures.outage import Outage
from penstock.messages.shadow import Disagreement, ModelId, Summary, encode_shadow, said
from penstock.ports import Answers, Clock, Guest, Outgoing
from penstock.telemetry.per_service import ShadowTelemetry

log = logging.getLogger(__name__)

# So many bytes of answers are compared at a time, which takes about half a millisecond. Then live
# work has its turn.
TURN_BYTES = 64 << 10
# If the shadow is away or misconfigured, it is asked rarely, so that it costs next to nothing.
RETRY = Backoff(first_s=0.2, most_s=10.0)
# Refusals of the shadow are logged at most once in this time.
QUIET_S = 60.0


@dataclass(frozen=True, slots=True)
class ShadowTopicTerms:
    """The two models that are compared, the settings of the comparison, and the topic to which it
    is written.
    """

    topic: str
    live: ModelId
    shadow: str
    tolerance: float
    pointers: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class ShadowTerms:
    """The settings of a shadow, as plain values. The copies that wait for the shadow have at most
    `rows` rows and `nbytes` bytes together; a call of the shadow has at most `call_rows` rows.
    """

    topic: ShadowTopicTerms
    percent: float
    agreement: Agreement
    rows: int
    nbytes: int
    call_rows: int
    callers: int


class ShadowModel:
    """Call `wants` for each batch that the live model answered. If it returned rows, then call
    `offer`. `is_over`: True once an unforeseen exception has ended the comparison.
    """

    def __init__(
        self,
        terms: ShadowTerms,
        guest: Guest,
        clock: Clock,
        telemetry: ShadowTelemetry,
        outage: Outage,
        draw: Callable[[], float],
    ) -> None:
        self.terms = terms
        self.tally = Tally()
        self.is_over = False
        self._model = guest.model
        self._agreement = terms.agreement
        self._clock = clock
        self._telemetry = telemetry
        self._outage = outage
        self._draw = draw
        self._copies = Copies(terms.rows, terms.nbytes)
        self._come = asyncio.Event()
        self._topic = ShadowTopic(guest, terms.topic, clock, telemetry)
        self._failures = 0
        self._quiet_until_s = 0.0

    @property
    def waiting_rows(self) -> int:
        return self._copies.rows

    @property
    def away_s(self) -> float | None:
        """How long the shadow has been away. None: its last call was answered, or there was no call
        yet.
        """
        return self._outage.away_s

    def wants(self, blocks: Sequence[Block]) -> Sequence[Payload] | None:
        """Returns the rows of a batch that was just answered, or None if the batch is not to be
        copied. Call this before the blocks of the batch let go of their rows.
        """
        if self.is_over or self._draw() * 100 >= self.terms.percent:
            return None
        payloads = [block.payload for block in blocks if block.payload is not None]
        rows = sum(payload.rows for payload in payloads)
        if not self._copies.has_room(rows, sum(payload.nbytes for payload in payloads)):
            self._drop(rows)
            return None
        return payloads

    def offer(self, payloads: Sequence[Payload], blocks: Sequence[Block], answers: Answers) -> None:
        """Copy a batch that `wants` wanted. Call this when no live work waits for the batch any
        more.
        """
        owned = [payload.owned() for payload in payloads]
        nbytes = answers.nbytes if answers.nbytes is not None else sum(map(len, answers.values))
        self._copies.put(
            ShadowCopy(
                owned,
                [run_of(block) for block in blocks],
                answers.values,
                answers.errors,
                blocks[0].answered_s - blocks[0].called_s,
                sum(block.rows for block in blocks),
                sum(payload.nbytes for payload in owned) + nbytes,
            )
        )
        self._come.set()

    async def run(self) -> None:
        """Runs until it is cancelled. It raises no error of the shadow."""
        try:
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(self._topic.write_forever())
                for _ in range(self.terms.callers):
                    tasks.create_task(self._ask_forever())
        except* Exception as errors:
            # An unforeseen exception is a fault of our own code. Even that must not end live work.
            self.is_over = True
            log.exception("the shadow ended, live work goes on", exc_info=errors)

    async def end(self) -> None:
        """Drop the copies that wait, and write the comparisons that were made, within a moment."""
        while (copy := self._copies.take()) is not None:
            self._copies.done(copy)
            self._drop(copy.rows)
        await self._topic.end()

    async def _ask_forever(self) -> None:
        while True:
            while (copy := self._copies.take()) is None:
                self._come.clear()
                await self._come.wait()
            try:
                pause_s = await self._ask(copy)
            finally:
                self._copies.done(copy)
            if pause_s:
                await asyncio.sleep(pause_s)

    async def _ask(self, copy: ShadowCopy) -> float:
        """Ask the shadow for one copy, and compare its answers. Returns the pause before the next
        copy, in seconds.
        """
        began_s = self._clock.now()
        try:
            theirs = await self._answers(copy)
        except asyncio.CancelledError:
            self._drop(copy.rows)
            raise
        except PenstockError as error:
            # The shadow is not asked for these rows again, so that it does not fall further and
            # further behind.
            self._topic.interval.unanswered += copy.rows
            self._telemetry.rows("unanswered", copy.rows)
            return self._failed(error)
        self._outage.answered()
        self._failures = 0
        took_s = self._clock.now() - began_s
        self._telemetry.call_answered(took_s)
        self._topic.interval.live_took.add(copy.took_s)
        self._topic.interval.shadow_took.add(took_s)
        await self._compare(copy, theirs)
        return 0.0

    def _drop(self, rows: int) -> None:
        self._topic.interval.dropped += rows
        self._telemetry.rows("dropped", rows)

    async def _answers(self, copy: ShadowCopy) -> Answers:
        """Ask for the rows of a copy, in requests that are not larger than the shadow's server
        takes.
        """
        most = min(self.terms.call_rows, self._model.most_rows or self.terms.call_rows)
        values: list[bytes] = []
        errors: dict[int, str] = {}
        for request in requests(copy.payloads, most):
            answers = await self._model.predict(request)
            errors |= {len(values) + row: text for row, text in answers.errors.items()}
            values += answers.values
        return Answers(values, errors)

    def _failed(self, error: PenstockError) -> float:
        """Returns the pause after a failed call, in seconds. After a refusal there is no pause,
        because the shadow may accept the next batch.
        """
        if isinstance(error, Fatal):  # a misconfigured shadow is treated as one that is away
            error = Unreachable(str(error))
        if isinstance(error, Unreachable):
            self._outage.unreachable(error)
        elif self._clock.now() >= self._quiet_until_s:
            self._quiet_until_s = self._clock.now() + QUIET_S
            log.warning("the shadow model did not answer what the live one did: %s", error)
        if isinstance(error, Poison):
            return 0.0
        self._failures += 1
        return RETRY.delay_s(self._failures, 0.0, self._draw()) or 0.0

    async def _compare(self, copy: ShadowCopy, theirs: Answers) -> None:
        """Compare row by row, with turns for other tasks in between."""
        start = done_bytes = 0
        row_bytes = 1 + sum(map(len, theirs.values)) // len(theirs.values)
        step = max(1, TURN_BYTES // row_bytes)
        for run in copy.runs:
            for begin in range(start, start + run.rows, step):
                stop = min(begin + step, start + run.rows)
                wrong = self._agreement.differing(
                    copy.answers[begin:stop], theirs.values[begin:stop]
                )
                self._count(run.stream, stop - begin, len(wrong))
                for index in wrong:
                    self._disagree(copy, run, begin + index - start, begin + index, theirs)
                done_bytes += (stop - begin) * row_bytes
                if done_bytes >= TURN_BYTES:
                    done_bytes = 0
                    await asyncio.sleep(0)
            start += run.rows

    def _count(self, stream: str, rows: int, wrong: int) -> None:
        self.tally.add(stream, rows, rows - wrong)
        self._topic.interval.tally.add(stream, rows, rows - wrong)
        self._telemetry.compared(stream, rows - wrong, wrong)

    def _disagree(
        self, copy: ShadowCopy, run: CopiedRows, row: int, index: int, theirs: Answers
    ) -> None:
        self._topic.disagree(
            run,
            run.first_row + row,
            (copy.answers[index], copy.errors.get(index)),
            (theirs.values[index], theirs.errors.get(index)),
        )


# Disagreements are gathered for this long, and then sent together.
WRITE_S = 1.0
# The time from one summary to the next. A summary that names a thousand streams has at most 60 kB.
SUMMARY_S = 10.0
# At most this many records wait to be written.
MOST_RECORDS = 5_000
MOST_BYTES = 8 << 20
# The writing of the last records may take this long. A stopping worker has ten seconds after its
# drain, and its last commit may need most of them.
LAST_S = 1.0
# A summary names at most the first number of streams. If the record is then too long, it names at
# most the next number of streams, and so on.
NAMED = (1_000, 100, 10, 0)


class ShadowTopic:
    """`interval`: the comparison since the last summary."""

    def __init__(
        self, guest: Guest, terms: ShadowTopicTerms, clock: Clock, telemetry: ShadowTelemetry
    ) -> None:
        self.interval = Comparison()
        self._model = guest.model
        self._sink = guest.sink
        self._terms = terms
        self._clock = clock
        self._telemetry = telemetry
        self._records: deque[tuple[CopiedRows, bytes]] = deque()
        self._nbytes = 0
        self._summary: bytes | None = None
        self._worker = uuid.uuid4().hex
        self._number = 0
        self._since_ms = clock.wall_ms()
        self._partitions = 0
        self._is_away = False

    def disagree(
        self,
        run: CopiedRows,
        row: int,
        live: tuple[bytes, str | None],
        shadow: tuple[bytes, str | None],
    ) -> None:
        """Queue the record of a row on which the models disagree. `live` and `shadow`: the model's
        prediction, and the reason if the model rejected the row.
        """
        terms = self._terms
        value = encode_shadow(
            Disagreement(
                id=run.id_of(row),
                stream=run.stream,
                source=run.source,
                object=run.object,
                member=run.member,
                row=row,
                at=self._clock.wall_ms(),
                live=said(terms.live.name, terms.live.version, *live),
                shadow=said(terms.shadow, self._model.version, *shadow),
            )
        )
        if len(self._records) >= MOST_RECORDS or self._nbytes + len(value) > MOST_BYTES:
            self._not_sent(1, "many")
            return
        self._records.append((run, value))
        self._nbytes += len(value)

    async def write_forever(self) -> None:
        began_s = self._clock.now()
        while True:
            await asyncio.sleep(WRITE_S)
            if self._clock.now() - began_s >= SUMMARY_S:
                began_s = self._clock.now()
                self._sum_up()
            await self._write()

    async def end(self) -> None:
        """Send the last summary and stop the producer, within a moment."""
        self._sum_up()
        with suppress(TimeoutError, PenstockError):
            async with asyncio.timeout(LAST_S):
                await self._write()
                await self._sink.stop()

    def _sum_up(self) -> None:
        """Make a summary of the interval, unless the last summary is not yet acknowledged."""
        if self._summary is not None or self.interval.is_empty:
            return
        comparison, now_ms = self.interval, self._clock.wall_ms()
        self._number += 1
        for named in NAMED:
            self._summary = self._encoded(comparison, now_ms, named)
            if self._sink.fits(self._terms.topic, None, len(self._summary)):
                break
        self.interval, self._since_ms = Comparison(), now_ms

    def _encoded(self, comparison: Comparison, now_ms: int, named: int) -> bytes:
        terms, total = self._terms, comparison.tally.total
        return encode_shadow(
            Summary(
                id=f"{self._worker}/{self._number}",
                since=self._since_ms,
                until=now_ms,
                live=terms.live,
                shadow=ModelId(terms.shadow, self._model.version),
                tolerance=terms.tolerance,
                pointers=terms.pointers,
                rows=total.rows,
                agreed=total.agreed,
                streams=_shortened(comparison.tally.streams, named),
                dropped=comparison.dropped,
                unanswered=comparison.unanswered,
                unsent=comparison.unsent.total(),
                unsent_why={str(why): rows for why, rows in comparison.unsent.items()},
                live_took=dict(comparison.live_took.counts),
                shadow_took=dict(comparison.shadow_took.counts),
            )
        )

    async def _write(self) -> None:
        records, self._records, self._nbytes = self._records, deque(), 0
        if not records and self._summary is None:
            return
        unsent = len(records)
        why: Unsent = "unwritten"
        try:
            unsent -= await self._send(records)
            why = "long"
        except PenstockError as error:
            if not self._is_away:
                log.warning("%s is not written: %s", self._terms.topic, error)
            self._is_away = True
            # These disagreements are counted as unsent, so they must not be sent later. Therefore
            # the producer drops the records that it holds.
            with suppress(PenstockError):
                await self._sink.forget()
        else:
            if self._is_away:
                log.warning("%s is written again", self._terms.topic)
            self._is_away = False
            self._summary = None
        finally:
            self._not_sent(unsent, why)

    async def _send(self, records: Iterable[tuple[CopiedRows, bytes]]) -> int:
        """Send the disagreements, and the summary if one is due. Returns how many disagreements
        were sent; those too long for a record are not.
        """
        topic, sent = self._terms.topic, 0
        if not self._partitions:
            await self._sink.start()
            self._partitions = await self._sink.partitions(topic)
            if not self._partitions:
                raise Unreachable(f"there is no topic {topic}; create it: penstock topics create")
        out: dict[int, Outgoing] = {}
        for run, value in records:
            key, number = run.stream.encode(), run.source.partition % self._partitions
            if self._sink.fits(topic, key, len(value)):
                out.setdefault(number, Outgoing(topic, number, [], [])).add(key, [value], None)
                sent += 1
        if self._summary is not None:
            out.setdefault(0, Outgoing(topic, 0, [], [])).add(None, [self._summary], None)
        for report in [await self._sink.send(outgoing) for outgoing in out.values()]:
            await report
        return sent

    def _not_sent(self, records: int, why: Unsent) -> None:
        if records:
            self.interval.unsent[why] += records
            self._telemetry.unsent(records)


def _shortened(streams: dict[str, AgreementShare], named: int) -> dict[str, tuple[int, int]]:
    """The `named` streams with the most rows, each under its own name, and all other streams under
    one name.
    """
    kept = sorted(streams.items(), key=lambda entry: -entry[1].rows)
    short = dict(kept[:named])
    for _, share in kept[named:]:
        short[OTHERS] = short.get(OTHERS, NOTHING).plus(*share)
    return {name: (share.rows, share.agreed) for name, share in short.items()}
