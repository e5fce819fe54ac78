"""Writes dead letters: one for all rows of a release that failed for the same reason.

Rule: a letter carries no rows. Its reference names exactly the rows that failed; a message without
a reference is kept whole, in the first letter about it. A letter too large for its topic is
shortened. Rows of two releases share none, because records and letters of a release leave together.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

from msgspec import structs

from penstock.core.records.failed_rows import ROUND_S, Failed, LoggedRejections
from penstock.core.records.output_records import Labels, source_of
from penstock.core.routing.stream_keys import key_of
from penstock.core.rows.blocks import Ticket
from penstock.core.rows.log_keys import Keys, of_ticket
from penstock.core.rows.rejections import Rejection
from penstock.errors import Unforeseen
from penstock.failures.unexpected_errors import Guards
from penstock.messages.dead_letter import Unanswered, dead_letter
from penstock.messages.prediction import encodable, printable
from penstock.messages.reference import RowRange, time_of
from penstock.ports import Clock, Outgoing, Sink

log = logging.getLogger(__name__)

# A letter names at most this many ranges of rows, twice. They take at most 21 kB, and mostly 6. If
# the topic takes only small records, it names fewer, so that they fill at most half of a record:
# a letter whose ranges left no room for its reference could not be sent back.
_MOST_RANGES: Final = 256
_RANGE_BYTES: Final = 42
# A line of the log shows this many characters of a name; a name may have thousands.
_SHOWN = 200
# For the status page this many letters are remembered, each with this many characters of its
# message.
RECENT: Final = 20
_SHOWN_MESSAGE = 500


@dataclass(frozen=True, slots=True)
class LetterTerms:
    """To which topic letters go, and whether the log tells of them."""

    topic: str
    partitions: int
    are_logged: bool = True


class RecentLetter(NamedTuple):
    """What the status page shows of a letter. `row`: the first failed row; None if the object
    failed as a whole.
    """

    at_ms: int
    stream: str
    code: str
    message: str
    topic: str
    partition: int
    offset: int
    object_index: int
    row: int | None


class Reject:
    """Encodes letters for the publish stage. `run` logs, for each stream and code, how many letters
    followed the first one. `recent`: the last letters, the newest at the end.
    """

    def __init__(
        self,
        sink: Sink,
        labels: Labels,
        clock: Clock,
        guards: Guards,
        terms: LetterTerms,
    ) -> None:
        self._sink = sink
        self._labels = labels
        self._guard = guards.at("letter")
        self._terms = terms
        self._clock = clock
        self._logged = LoggedRejections()
        self._has_news = asyncio.Event()
        self.recent: deque[RecentLetter] = deque(maxlen=RECENT)

    async def run(self) -> None:
        while True:
            await self._has_news.wait()
            try:
                await asyncio.sleep(ROUND_S)
            finally:  # runs also if the worker ends during the sleep
                self._has_news.clear()
                for kind, count in self._logged.round_over():
                    what = (
                        "other streams or codes"
                        if kind is None
                        else f"stream {kind[0]!r} by {kind[1]}"
                    )
                    keys = {} if kind is None else {"stream": kind[0], "code": kind[1]}
                    log.warning("rejected within a minute: %d more of %s", count, what, extra=keys)

    def outgoing(self, partition: int, letters: list[bytes]) -> Outgoing:
        keys: list[bytes | None] = [None] * len(letters)
        return Outgoing(self._terms.topic, partition % self._terms.partitions, keys, letters)

    def letters(self, ticket: Ticket, failed: Sequence[Failed]) -> Iterator[bytes]:
        """The letters about the failed rows of one release of the ticket, in the order of their
        first rows.
        """
        for failure, ranges in _shared(failed, self._most_ranges):
            yield self._letter(ticket, failure, tuple(ranges) or _rest(ticket))

    @property
    def _most_ranges(self) -> int:
        most = _MOST_RANGES
        try:
            with self._guard:
                while most > 1 and not self._fits(4 * most * _RANGE_BYTES):
                    most //= 2
        except Unforeseen:
            pass  # it is logged; whether the letter fits is asked again when it is made
        return most

    def _fits(self, size: int) -> bool:
        return self._sink.fits(self._terms.topic, None, size)

    def letter_of_object(self, ticket: Ticket, why: Rejection) -> bytes:
        """A letter about an object whose rows were answered, but whose result object could not be
        written.
        """
        rows = ticket.reference.rows if ticket.reference else None
        return self._letter(ticket, Failed(None, 1, None, why), rows)

    def _letter(self, ticket: Ticket, failed: Failed, rows: tuple[RowRange, ...] | None) -> bytes:
        reference, why = ticket.reference, failed.why
        if self._terms.are_logged:
            self._has_news.set()
            if self._logged.first(ticket.stream[:_SHOWN], why.code, failed.rows):
                log.warning("rejected: %s", _in_words(ticket, failed), extra=_keys(ticket, failed))
        failed_ms = self._clock.wall_ms()
        self.recent.append(_recent(failed_ms, ticket, failed))
        origin = reference or ticket.inline
        model = self._labels.model_of(ticket)[0]
        if reference is not None and ticket.index != ticket.object_index:
            # Several models answer this object. If the letter's reference is published again, only
            # the model that failed is to answer.
            reference = structs.replace(reference, model=model)
        key = key_of(ticket.stream, ticket.record.key)
        whole = Unanswered(
            code=why.code,
            stage=why.stage,
            message=why.message,
            attempts=why.attempts,
            stream=ticket.stream,
            source=source_of(ticket),
            object_index=ticket.object_index,
            reference=reference,
            version=ticket.version,
            member=failed.member,
            rows=rows,
            event_time=time_of(origin),
            failed_at=failed_ms,
            model=model,
            key=None if key == ticket.stream.encode() else key,
            value=None if ticket.value_kept else ticket.record.value,
        )
        ticket.value_kept = True
        for less in _shortened(whole):
            try:
                with self._guard:
                    letter = dead_letter(less)
                    if self._fits(len(letter)):
                        return letter
            except Unforeseen:
                continue
        return dead_letter(_bare(whole))


def _shortened(whole: Unanswered) -> Iterator[Unanswered]:
    """The whole letter; without the input's message, because `source` says where the message is on
    the input topic; and without the reference, because it may have long attributes and ranges.
    """
    yield whole
    yield (short := structs.replace(whole, value=None))
    yield structs.replace(short, again=False)


def _bare(whole: Unanswered) -> Unanswered:
    """The letter without any name, for a topic that takes nothing longer."""
    return structs.replace(
        whole,
        value=None,
        reference=None,
        member=None,
        rows=None,
        event_time=None,
        stream=whole.stream[:200],
        message=whole.message[:200],
    )


def _recent(at_ms: int, ticket: Ticket, failed: Failed) -> RecentLetter:
    why = failed.why
    return RecentLetter(
        at_ms,
        encodable(ticket.stream),
        why.code,
        printable(why.message[:_SHOWN_MESSAGE]),
        *ticket.owner.where,
        ticket.record.offset,
        ticket.object_index,
        failed.row,
    )


def _keys(ticket: Ticket, failed: Failed) -> Keys:
    keys = {**of_ticket(ticket), "code": failed.why.code, "rows": failed.rows}
    return keys if failed.row is None else {**keys, "row": failed.row}


def _in_words(ticket: Ticket, failed: Failed) -> str:
    reference = ticket.reference
    place = f"{ticket.owner.where}, offset {ticket.record.offset}"
    place += f", object {ticket.object_index}"
    if reference is not None:
        place += f" ({_plain(f'{reference.bucket}/{reference.key}'[:_SHOWN])})"
    if failed.member is not None:
        place += f", member {_plain(failed.member[:_SHOWN])}"
    if failed.row is not None:
        place += f", row {failed.row}"
    message = _plain(printable(failed.why.message))
    return f"stream {ticket.stream[:_SHOWN]!r} at {place}: {failed.why.code}: {message}"


def _plain(text: str) -> str:
    """The text on one line. If it has characters that cannot be printed, they are escaped."""
    return text if text.isprintable() else repr(text)


def _rest(ticket: Ticket) -> tuple[RowRange, ...] | None:
    """Returns the rows after those that were read before the reading failed. Returns None if no
    row was read: then the letter is about all rows.
    """
    if not ticket.next_row:
        return None
    selected = ticket.reference.rows if ticket.reference else None
    return tuple(
        (max(first, ticket.next_row), stop)
        for first, stop in selected or ((0, None),)
        if stop is None or stop > ticket.next_row
    ) or ((ticket.next_row, None),)


def _shared(failed: Sequence[Failed], most_ranges: int) -> list[tuple[Failed, list[RowRange]]]:
    """For each letter the first rows that it is about, with the number of all its rows; and the
    ranges of all its rows. Rows of one member that failed for the same reason share a letter. If
    the object failed as a whole, there are no ranges.
    """
    letters: list[tuple[Failed, list[RowRange]]] = []
    places: dict[tuple[str | None, Rejection], int] = {}
    for failure in failed:
        if failure.row is None:
            letters.append((failure, []))
            continue
        stop = failure.row + failure.rows
        place = places.get((failure.member, failure.why))
        first, ranges = letters[place] if place is not None else (failure, [])
        is_next = bool(ranges) and ranges[-1][1] == failure.row
        if place is None or (len(ranges) == most_ranges and not is_next):
            places[failure.member, failure.why] = len(letters)
            letters.append((failure, [(failure.row, stop)]))
            continue
        ranges.append((ranges.pop()[0] if is_next else failure.row, stop))
        letters[place] = first._replace(rows=first.rows + failure.rows), ranges
    return letters
