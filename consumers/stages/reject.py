"""Dead letters: what could not be answered, as coordinates, one letter per run of rows with one
reason.

Rule: a letter never carries payloads; its reference names exactly the rows that failed, so that it
can be published again as it is. A run ends with the release, which is sent as one.
"""

from collections.abc import Iterator, Sequence
from itertools import groupby
from typing import NamedTuple

from consumers.core.blocks import Rejection, Ticket
from consumers.ports import Clock, Outgoing, Sink
from schemas.dead_letter import dead_letter
from schemas.prediction import Source
from schemas.reference import RowRange


class Failed(NamedTuple):
    """A row that is answered by an error; `row` None: the object itself, or what is left of it."""

    row: int | None
    member: str | None
    why: Rejection


class Reject:
    """Encodes letters for the publish stage."""

    def __init__(
        self, sink: Sink, *, input_topic: str, topic: str, partitions: int, model: str, clock: Clock
    ) -> None:
        self._sink = sink
        self._input_topic = input_topic
        self._topic = topic
        self._partitions = partitions
        self._model = model
        self._clock = clock

    def outgoing(self, partition: int, letters: list[bytes]) -> Outgoing:
        keys: list[bytes | None] = [None] * len(letters)
        return Outgoing(self._topic, partition % self._partitions, keys, letters)

    def letters(self, ticket: Ticket, failed: Sequence[Failed]) -> Iterator[bytes]:
        """For what failed in one release of the ticket, in row order."""
        for first, count in _runs(failed):
            if first.row is None:
                yield self._rest(ticket, first.why)
            else:
                rows = ((first.row, first.row + count),)
                yield self._letter(ticket, first.why, rows, first.member)

    def _rest(self, ticket: Ticket, failure: Rejection) -> bytes:
        """The letter for an object that could not be read, from its first missing row on."""
        rows: tuple[RowRange, ...] | None = None
        if ticket.next_row:
            selected = ticket.reference.rows if ticket.reference else None
            rows = tuple(
                (max(first, ticket.next_row), stop)
                for first, stop in selected or ((0, None),)
                if stop is None or stop > ticket.next_row
            ) or ((ticket.next_row, None),)
        return self._letter(ticket, failure, rows, None)

    def _letter(
        self,
        ticket: Ticket,
        rejection: Rejection,
        rows: tuple[RowRange, ...] | None,
        member: str | None,
    ) -> bytes:
        reference = ticket.reference
        origin = reference or ticket.inline
        return dead_letter(
            code=rejection.code,
            stage=rejection.stage,
            message=rejection.message,
            attempts=rejection.attempts,
            stream=ticket.stream,
            source=Source(self._input_topic, ticket.owner.partition, ticket.record.offset),
            reference=reference,
            version=ticket.version,
            member=member,
            rows=rows,
            event_time=origin.event_time if origin else None,
            failed_at=self._clock.wall_ms(),
            model=self._model,
            value=ticket.record.value if self._is_kept(ticket.record.value) else None,
        )

    def _is_kept(self, value: bytes | None) -> bool:
        """A value too large to be kept is still on the input topic, where `source` says."""
        return value is not None and self._sink.fits(value, value)


def _runs(failed: Sequence[Failed]) -> Iterator[tuple[Failed, int]]:
    """Consecutive rows with one and the same reason: the first of them, and how many they are."""

    def run(numbered: tuple[int, Failed]) -> Failed:
        number, one = numbered
        return one if one.row is None else one._replace(row=one.row - number)

    for _, found in groupby(enumerate(failed), run):
        (_, first), *others = found
        yield first, 1 + len(others)
