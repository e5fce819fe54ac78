"""Writes to the shadow topic: rows on which two models disagree, and summaries.

Rule: no live stage waits for these records, and their producer's failure ends nothing else. A
disagreement is sent once, or only counted. A summary is sent until it is acknowledged, always with
the same `id`, so that its rows count once.
"""

import asyncio
import logging
import uuid
from collections import deque
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass

from penstock.core.comparing.comparison import NOTHING, OTHERS, AgreementShare, Comparison
from penstock.core.comparing.shadow_copies import CopiedRows
from penstock.errors import PenstockError, Unreachable
from penstock.messages.shadow import Disagreement, ModelId, Summary, encode_shadow, said
from penstock.ports import Clock, Guest, Outgoing
from penstock.telemetry.models_and_shadow import ShadowTelemetry

log = logging.getLogger(__name__)

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
            self._not_sent(1)
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
                unsent=comparison.unsent,
                live_took=dict(comparison.live_took.counts),
                shadow_took=dict(comparison.shadow_took.counts),
            )
        )

    async def _write(self) -> None:
        records, self._records, self._nbytes = self._records, deque(), 0
        if not records and self._summary is None:
            return
        unsent = len(records)
        try:
            unsent -= await self._send(records)
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
            self._not_sent(unsent)

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

    def _not_sent(self, records: int) -> None:
        if records:
            self.interval.unsent += records
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
