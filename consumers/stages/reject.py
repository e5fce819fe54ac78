"""Dead letters: what could not be answered, as coordinates, one letter per run of rows with one
reason.

Rule: a letter never carries payloads; its reference names exactly the rows that failed, so that it
can be published again as it is.
"""

from collections.abc import Iterator, Mapping

from consumers.core.blocks import Block, Rejection, Ticket
from consumers.ports import Clock, Outgoing, Sink
from schemas.dead_letter import dead_letter
from schemas.prediction import Source
from schemas.reference import RowRange


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

    def rows(self, block: Block, errors: Mapping[int, Rejection]) -> Iterator[bytes]:
        """Letters for the rejected rows of a block; `errors` by index into it."""
        for first, stop, rejection in _runs(errors):
            rows = ((block.first_row + first, block.first_row + stop),)
            yield self._letter(block.ticket, rejection, rows, block.member)

    def rest(self, ticket: Ticket, failure: Rejection) -> bytes:
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


def _runs(errors: Mapping[int, Rejection]) -> Iterator[tuple[int, int, Rejection]]:
    """Consecutive indices with one and the same reason, as half-open ranges."""
    first: int | None = None
    previous: int | None = None
    for index in sorted(errors):
        if first is not None and previous is not None:
            if index == previous + 1 and errors[index] == errors[first]:
                previous = index
                continue
            yield first, previous + 1, errors[first]
        first = previous = index
    if first is not None and previous is not None:
        yield first, previous + 1, errors[first]
