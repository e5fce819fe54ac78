"""What the input topic asks for and what the dead-letter topic admits, message by message.

Rule: an ordinary reference costs one dictionary entry; only selections and names within one message
are kept. Owner: the judge.
"""

from typing import NamedTuple

from consumers.ops.verify_rows import Ranges, closed, union
from schemas.codec import Ignored, Inline, SchemaError, decode
from schemas.dead_letter import DeadLetter
from schemas.reference import RowRange

Name = tuple[str, str]


class Expected(NamedTuple):
    """One object to be answered. `name`: (bucket, key), only where a message names several."""

    name: Name | None
    rows: tuple[RowRange, ...] | None


Message = tuple[Expected, ...]

# Shared by all messages that ask for one whole object, are inline, or are no reference at all.
ONE_WHOLE: Message = (Expected(None, None),)
NOTHING: Message = ()


def expected_of(value: bytes | None) -> Message:
    """What must be answered for a value of the input topic, as the worker decodes it."""
    try:
        message = decode(value)
    except SchemaError:
        return ONE_WHOLE
    if isinstance(message, Ignored):
        return NOTHING
    if isinstance(message, Inline):
        return ONE_WHOLE
    if len(message.items) == 1:
        rows = message.items[0].rows
        return ONE_WHOLE if rows is None else (Expected(None, rows),)
    return tuple(Expected((one.bucket, one.key), one.rows) for one in message.items)


class Letters:
    """Which rows of which object the dead-letter topic names."""

    def __init__(self) -> None:
        self._rows: dict[
            tuple[int, int], list[tuple[Name | None, tuple[RowRange, ...] | None]]
        ] = {}

    def add(self, letter: DeadLetter) -> None:
        name = (letter.object.bucket, letter.object.key) if letter.object is not None else None
        source = letter.source
        self._rows.setdefault((source.partition, source.offset), []).append((name, letter.rows))

    def ranges(self, partition: int, offset: int, expected: Expected) -> Ranges:
        """Everything the letters say about this object; an object named twice gets both."""
        whole = closed(expected.rows)
        return union(
            one
            for name, rows in self._rows.get((partition, offset), ())
            if expected.name is None or name == expected.name
            for one in (whole if rows is None else closed(rows))
        )
