"""What a commit says: the record to read next and, in its metadata, which rows of this record and
of later ones are delivered already, and where lines stopped.

Rule: whoever looks at a commit reads it in the same way (`Position.of`). The metadata only saves
work. It is valid only together with the offset with which it was committed, and its rows are valid
only for the same version of their object. A part that cannot be read is ignored, and its work is
repeated; a text that was cut off claims less than was delivered, never more. The metadata is ASCII
of at most 4,000 characters, because the broker takes 4,096.
"""

import re
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Iterator
from dataclasses import dataclass, field
from math import ceil, log
from typing import NamedTuple

import numpy as np

from penstock.core.rows.origin import END, START, VERSION_DIGITS, Cursor, Ranges

PREFIX = "p1:"
MAX_CHARS = 4_000
# The largest row number that is accepted, so that readers in any language can hold it in 64 bits.
MAX_NUMBER = (1 << 63) - 1

# Only this many stops are written. If more streams are stopped, the next assignment counts the dead
# letters of the others from zero.
STOPS = 16
# How long the text about the next record may be, with its offset, the separators and the stops.
_HEAD_CHARS = len(PREFIX) + 19 + 1 + 19 + 1 + VERSION_DIGITS + 1 + 16 + 3 + STOPS * 17 + 1 + 4
# A message of 1 MB names fewer than 16^5 objects, so five hexadecimal digits number them. Where
# several models answer one object, digits that stand for the model come before these five.
_INDEX_CHARS = 9
_ROW_CHARS = 16

_HEAD = re.compile(rf"([0-9]{{1,19}})\.([0-9]{{1,19}})\.([0-9a-z]{{{VERSION_DIGITS}}})?")
_STOPS = re.compile(r"(p1:.*)!([0-9a-f]{1,16}(?:,[0-9a-f]{1,16})*)\.([0-9a-f]{4})")
_OFFSET = re.compile(r"[0-9a-f]{1,16}")
_RUN = re.compile(r"([0-9a-f]{1,16})\.([0-9a-f]{1,16})")
# Completed records as bits: one for each offset from the next record on. If every second record is
# still owed, these bits are shorter than runs.
_BITS = re.compile(r"~([A-Za-z0-9_-]+)")
_OBJECTS = re.compile(r"([0-9a-f]{1,16})\.([0-9a-f]{1,9})\.([0-9a-f]{1,9})")
_ROWS = re.compile(
    rf"([0-9a-f]{{1,16}})\.([0-9a-f]{{1,9}})\.([0-9a-f]{{1,16}})\.([0-9a-z]{{{VERSION_DIGITS}}})"
)


@dataclass(slots=True)
class PartitionProgress:
    """What is delivered: all records before `next_offset`; the `completed` records beyond it; and
    parts of records that are not complete. `objects`: for each offset, the delivered objects of the
    record; `rows`: for each offset and object index, how far the rows of the object are delivered.
    """

    next_offset: int
    completed: Ranges = field(default_factory=Ranges)
    objects: dict[int, Ranges] = field(default_factory=dict)
    rows: dict[tuple[int, int], Cursor] = field(default_factory=dict)

    def __contains__(self, offset: int) -> bool:
        """True if the record is delivered whole."""
        return offset < self.next_offset or offset in self.completed

    @property
    def stop(self) -> int:
        """The offset after the last record of which something is delivered."""
        offsets = [self.next_offset - 1, *self.objects, *(offset for offset, _ in self.rows)]
        return max(self.completed.stop, max(offsets) + 1)


def encode(progress: PartitionProgress) -> str:
    """The metadata, without stops; empty when nothing at or beyond the next record is delivered."""
    base = progress.next_offset
    objects = progress.objects.get(base)
    index = objects.stops[0] if objects and not objects.starts[0] else 0
    cursor = progress.rows.get((base, index), START)
    parts = [
        _completed(base, progress.completed),
        ",".join(_objects(base, progress.objects)),
        ",".join(_rows(base, progress.rows, index)),
    ]
    beyond = f";{';'.join(parts)}" if any(parts) else ""
    if not index and not cursor.row and not beyond:
        return ""
    return f"{PREFIX}{base:x};{index}.{cursor.row}.{cursor.version}{beyond}"


def _completed(base: int, completed: Ranges) -> str:
    """The completed records as runs or as bits, whichever text is shorter."""
    if completed.stop <= base:
        return ""
    span = completed.stop - base
    most = _bits_chars(span)
    # A run takes at least four characters. So with too many runs the bits are shorter in any case,
    # and the text of the runs is not made.
    if 4 * len(completed.starts) <= most:
        runs = ",".join(_runs(base, completed))
        if len(runs) <= most:
            return runs
    steps = np.zeros(span + 1, np.int8)
    # Only runs beyond the next record are written, because the next record itself is still owed.
    starts, stops = np.array(completed.starts), np.array(completed.stops)
    steps[starts[starts > base] - base] = 1
    steps[stops[starts > base] - base] = -1
    bits = np.packbits(np.cumsum(steps[:-1], dtype=np.int8))
    return f"~{urlsafe_b64encode(bits.tobytes()).rstrip(b'=').decode()}"


def _bits_chars(span: int) -> int:
    """The length of a text of bits, its prefix included, with a bit for each of `span` offsets."""
    return 1 + 4 * ceil(max(0, span) / 24)


def _runs(base: int, completed: Ranges) -> Iterator[str]:
    before = base
    for start, stop in completed.within(base, END):
        yield f"{start - before:x}.{stop - start:x}"
        before = stop


def _objects(base: int, objects: dict[int, Ranges]) -> Iterator[str]:
    for offset, ranges in objects.items():
        for start, stop in ranges:
            if offset > base or (offset == base and start):
                yield f"{offset - base:x}.{start:x}.{stop - start:x}"


def _rows(base: int, rows: dict[tuple[int, int], Cursor], first: int) -> Iterator[str]:
    for (offset, index), cursor in rows.items():
        if offset > base or (offset == base and index != first):
            yield f"{offset - base:x}.{index:x}.{cursor.row:x}.{cursor.version}"


def most_chars(span: int, *, runs: int, objects: int, rows: int) -> int:
    """An upper bound for the length of a text with this many marks. All marks are on offsets less
    than `span` beyond the next record.

    The gaps and lengths of the runs add up to at most the span, so they have the most digits in
    total if all are equal. A separator follows each of them. The length of bits depends only on the
    span.
    """
    far = len(f"{span:x}")
    digits = 1 + log(max(1.0, span / (2 * runs)), 16) if runs else 0.0
    return (
        _HEAD_CHARS
        + min(ceil(2 * runs * (digits + 1)), _bits_chars(span))
        + objects * (far + 2 * _INDEX_CHARS + 3)
        + rows * most_chars_of_one(span)
    )


def most_chars_of_one(span: int) -> int:
    """The length of the longest kind of mark: rows of one object."""
    return len(f"{span:x}") + _INDEX_CHARS + _ROW_CHARS + VERSION_DIGITS + 4


def decode(metadata: str, next_offset: int) -> tuple[PartitionProgress, bool]:
    """Read the metadata of a commit at `next_offset`. Returns the progress, and whether all of the
    text could be read.
    """
    progress = PartitionProgress(next_offset)
    if not metadata:
        return progress, True
    if not metadata.startswith(PREFIX):
        return progress, False
    base, *parts = metadata.removeprefix(PREFIX).split(";")
    if not parts or not _OFFSET.fullmatch(base) or int(base, 16) != next_offset:
        return progress, False
    head, *beyond = parts
    is_whole = _read_head(head, progress)
    if beyond:
        is_whole = _read_beyond(beyond, progress) and is_whole
    return progress, is_whole


def _read_head(text: str, progress: PartitionProgress) -> bool:
    match = _HEAD.fullmatch(text)
    if match is None:
        return False
    index, row, version = int(match[1]), int(match[2]), match[3]
    if index > MAX_NUMBER or row > MAX_NUMBER or (row and not version):
        return False
    base = progress.next_offset
    if index:
        progress.objects[base] = Ranges([(0, index)])
    if row:
        progress.rows[base, index] = Cursor(row, version)
    return True


def _read_beyond(parts: list[str], progress: PartitionProgress) -> bool:
    base = progress.next_offset
    if len(parts) != 3:
        return False
    completed, *others = parts
    is_whole = (
        _read_bits(completed, progress)
        if completed.startswith("~")
        else _read_runs(completed, progress)
    )
    if is_whole is None:
        return False
    # Each of these marks is read by itself, so an unreadable mark does not harm the others.
    objects, rows = (part.split(",") if part else [] for part in others)
    of_objects = [_OBJECTS.fullmatch(text) for text in objects]
    for mark in filter(None, of_objects):
        delta, first, count = (int(number, 16) for number in mark.groups())
        if count:
            ranges = progress.objects.setdefault(base + delta, Ranges())
            ranges.add(first, first + count)
    of_rows = [_ROWS.fullmatch(text) for text in rows]
    for mark in filter(None, of_rows):
        delta, index, row = (int(number, 16) for number in mark.groups()[:3])
        progress.rows[base + delta, index] = Cursor(row, mark[4])
    return is_whole and None not in of_objects and None not in of_rows


def _read_runs(text: str, progress: PartitionProgress) -> bool | None:
    """Returns whether all of the text could be read. None: the text contradicts itself or the
    offset, so none of it is used.
    """
    before = progress.next_offset
    for part in text.split(",") if text else ():
        run = _RUN.fullmatch(part)
        if run is None:
            return False
        start = before + int(run[1], 16)
        before = start + int(run[2], 16)
        if not progress.next_offset < start < before:
            return None
        progress.completed.add(start, before)
    return True


def _read_bits(text: str, progress: PartitionProgress) -> bool | None:
    """Returns whether all of the text could be read. None: the text contradicts the offset, so none
    of it is used.
    """
    match = _BITS.fullmatch(text)
    if match is None or len(match[1]) % 4 == 1:
        return False
    packed = urlsafe_b64decode(match[1] + "=" * (-len(match[1]) % 4))
    bits = np.unpackbits(np.frombuffer(packed, np.uint8)).astype(np.int8)
    steps = np.diff(bits, prepend=np.int8(0), append=np.int8(0))
    if bits[0]:
        return None
    base = progress.next_offset
    starts, stops = (np.flatnonzero(steps == step).tolist() for step in (1, -1))
    for start, stop in zip(starts, stops, strict=True):
        progress.completed.add(base + start, base + stop)
    return True


class Commit(NamedTuple):
    """A position. `next_offset`: the offset of the next record to read. `metadata`: at most 4,000
    characters of ASCII.
    """

    next_offset: int
    metadata: str = ""


class Position(NamedTuple):
    """What a commit says. `stopped_at`: the records at which lines stopped. `limits`: the digest of
    the limits under which they stopped; empty if no line stopped. `is_whole`: all of the metadata
    could be read.
    """

    progress: PartitionProgress
    stopped_at: tuple[int, ...] = ()
    limits: str = ""
    is_whole: bool = True

    @classmethod
    def of(cls, commit: Commit) -> "Position":
        next_offset, metadata = commit
        match = _STOPS.fullmatch(metadata)
        if match is None:
            progress, is_whole = decode(metadata, next_offset)
            return cls(progress, is_whole=is_whole)
        text, beyond, limits = match.groups()
        progress, is_whole = decode("" if text == PREFIX else text, next_offset)
        stopped_at = tuple(next_offset + int(digits, 16) for digits in beyond.split(","))
        return cls(progress, stopped_at, limits, is_whole)

    @property
    def commit(self) -> Commit:
        """The commit that says this. It has room for a few stops only, and for none before the next
        record.
        """
        next_offset, metadata = self.progress.next_offset, encode(self.progress)
        if ahead := sorted(at - next_offset for at in self.stopped_at if at >= next_offset):
            beyond = ",".join(f"{distance:x}" for distance in ahead[:STOPS])
            metadata = f"{metadata or PREFIX}!{beyond}.{self.limits}"
        return Commit(next_offset, metadata)

    def stopped_under(self, limits: str) -> frozenset[int]:
        """The stops, if the lines stopped under these limits. Under other limits a line may go on,
        so its dead letters are counted from zero.
        """
        return frozenset(self.stopped_at if self.limits == limits else ())
