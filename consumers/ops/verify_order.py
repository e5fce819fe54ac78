"""In which order the records of one sequence came: one input partition's, or one stream's.

Rule: without what was seen before, positions ascend. What comes again comes in runs: a run starts
anywhere, because a worker starts again where it last committed, and from there on it repeats the
sequence without leaving anything out. Owner: the judge.
"""

from consumers.ops.verify_rows import ENDLESS, Runs, between
from schemas.prediction import Source

# The place of an object's marker: after all its rows.
MARKER_ROW = ENDLESS


# Offset, object index, row; the row of a marker is `MARKER_ROW`.
Position = tuple[int, int, int]


class Seen:
    """What was seen of one object. `place` counts the objects of its sequence as they appeared."""

    __slots__ = (
        "end_error",
        "end_row",
        "end_rows",
        "id_prefix",
        "index",
        "place",
        "rejected",
        "runs",
        "sequence",
        "source",
        "stream",
    )

    def __init__(
        self, source: Source, index: int, stream: str, sequence: "Sequence", id_prefix: str
    ) -> None:
        self.source = source
        self.index = index
        self.stream = stream
        self.sequence = sequence
        self.id_prefix = id_prefix
        self.runs = Runs()
        self.rejected: list[tuple[int, int]] = []
        self.end_row: int | None = None
        self.end_rows = 0
        self.end_error = False
        self.place = -1

    @property
    def has_marker(self) -> bool:
        return self.end_row == MARKER_ROW

    @property
    def first_row(self) -> int:
        first = self.runs.first
        return MARKER_ROW if first is None else first

    @property
    def last_row(self) -> int:
        last = self.runs.last
        return MARKER_ROW if self.has_marker or last is None else last

    def reject(self, row: int) -> None:
        """Note that the row was answered by an error."""
        if self.rejected and self.rejected[-1][1] == row:
            self.rejected[-1] = (self.rejected[-1][0], row + 1)
        else:
            self.rejected.append((row, row + 1))

    def follows(self, row: int, earlier: int) -> bool:
        """Is `row` the first one seen after `earlier`?"""
        if row == earlier + 1:
            return True
        later = between(self.runs.ranges, earlier + 1, ENDLESS)
        return row == (later[0][0] if later else MARKER_ROW)


class Sequence:
    """Tells of each position, new or seen before, whether it may come now."""

    __slots__ = ("_again", "_again_seen", "_frontier", "objects", "restarts")

    def __init__(self) -> None:
        self.objects = 0
        self.restarts = 0
        self._frontier: Position | None = None
        self._again: Position | None = None
        self._again_seen: Seen | None = None

    def new(self, position: Position, seen: Seen) -> Position | None:
        """A first occurrence. None if it is in order, else the position it should precede."""
        if seen.place < 0:
            seen.place = self.objects
            self.objects += 1
        self._again = self._again_seen = None
        if self._frontier is not None and position < self._frontier:
            return self._frontier
        self._frontier = position
        return None

    def again(self, position: Position, seen: Seen) -> Position | None:
        """A duplicate. None if it starts or continues a run, else what it does not follow."""
        before, before_seen = self._again, self._again_seen
        self._again, self._again_seen = position, seen
        if before is None or before_seen is None or position <= before:
            self.restarts += 1
            return None
        if seen is before_seen:
            return None if seen.follows(position[2], before[2]) else before
        is_next = (
            seen.place == before_seen.place + 1
            and before[2] == before_seen.last_row
            and position[2] == seen.first_row
        )
        return None if is_next else before
