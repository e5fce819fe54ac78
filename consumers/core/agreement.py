"""Do two models say the same of a row?

Rule: two predictions agree when their JSON says the same: numbers within the tolerance, everything
else exactly; with pointers only what stands there counts. A pointer to nothing makes two different
answers disagree, so that a slip of the pen in it is seen. Owner: the shadow stage and `replay`,
which compare the answers of two models.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import msgspec

from consumers.core.pointers import resolve

# Of a normal distribution, 95 percent lie within so many standard deviations.
Z_95 = 1.959964
# Streams that are counted by name; what comes after them is counted together.
MOST_STREAMS = 1_000
OTHERS = "(others)"

_decode = msgspec.json.Decoder().decode
_NUMBERS = (int, float)
# No value of a document.
_NOTHING = object()


class Agreement:
    """`tolerance`: how far two numbers may be apart. For numbers with a fraction it is also
    relative to the larger of them, because the noise of arithmetic grows with what is computed.
    """

    def __init__(self, tolerance: float = 0.0, pointers: Sequence[str] = ()) -> None:
        self._tolerance = tolerance
        self._pointers = tuple(pointers) or ("",)
        self._close = partial(math.isclose, rel_tol=min(tolerance, 1.0), abs_tol=tolerance)

    def same(self, a: bytes, b: bytes) -> bool:
        """Two predictions as JSON text. What is no JSON agrees with its own bytes alone."""
        if a == b:
            return True
        try:
            one, other = _decode(a), _decode(b)
            for pointer in self._pointers:
                if not self._same(resolve(one, pointer), resolve(other, pointer)):
                    return False
        except (msgspec.DecodeError, LookupError, RecursionError):
            return False
        return True

    def differing(self, a: Sequence[bytes], b: Sequence[bytes]) -> list[int]:
        """Where two models disagree on the same rows, by index."""
        if a == b:
            return []
        return [
            index
            for index, (one, other) in enumerate(zip(a, b, strict=True))
            if one != other and not self.same(one, other)
        ]

    def _same(self, a: Any, b: Any) -> bool:
        kind = type(a)
        if kind is float or kind is int:
            return type(b) in _NUMBERS and self._near(a, b)
        if kind is dict:
            return type(b) is dict and len(a) == len(b) and self._same_members(a, b)
        if kind is list:
            return type(b) is list and len(a) == len(b) and self._same_elements(a, b)
        return kind is type(b) and bool(a == b)

    def _same_members(self, a: dict[str, Any], b: dict[str, Any]) -> bool:
        """Called for most rows: what is one object (a small number, null) needs no call of ours."""
        for name, value in a.items():
            other = b.get(name, _NOTHING)
            if value is not other and not self._same(value, other):
                return False
        return True

    def _same_elements(self, a: list[Any], b: list[Any]) -> bool:
        """A vector is compared without a call of ours for each number."""
        if set(map(type, a)) | set(map(type, b)) == {float}:
            return all(map(self._close, a, b))
        return all(map(self._same, a, b))

    def _near(self, a: float, b: float) -> bool:
        """Whole numbers are labels or counts as well, of which none is noise."""
        if type(a) is int and type(b) is int:
            return abs(a - b) <= self._tolerance
        return self._close(a, b)


class Share(NamedTuple):
    """Of `rows` that were compared, `agreed` are the same."""

    rows: int
    agreed: int

    @property
    def value(self) -> float:
        return self.agreed / self.rows if self.rows else 0.0

    def interval(self, z: float = Z_95) -> tuple[float, float]:
        """Wilson's: where the true share lies, 95 times of 100, if rows are independent. It holds
        for few rows, and for shares near 0 and 1, where the usual one does not.
        """
        if not self.rows:
            return 0.0, 1.0
        n, p = self.rows, self.value
        middle = p + z * z / (2 * n)
        spread = z * math.sqrt(p * (1 - p) / n + z * z / (4 * n * n))
        scale = 1 + z * z / n
        low, high = max(0.0, (middle - spread) / scale), min(1.0, (middle + spread) / scale)
        # Nothing disagreed, or nothing agreed: the bound is exact, its arithmetic is not.
        return (0.0 if not self.agreed else low), (1.0 if self.agreed == n else high)

    def plus(self, rows: int, agreed: int) -> "Share":
        return Share(self.rows + rows, self.agreed + agreed)


NOTHING = Share(0, 0)


@dataclass(slots=True)
class Tally:
    """Agreement in all and by stream. Streams beyond `most` are counted as `OTHERS`."""

    streams: dict[str, Share]
    most: int
    total: Share

    def __init__(self, most: int = MOST_STREAMS) -> None:
        self.streams, self.most, self.total = {}, most, NOTHING

    def add(self, stream: str, rows: int, agreed: int) -> None:
        if stream not in self.streams and len(self.streams) >= self.most:
            stream = OTHERS
        self.streams[stream] = self.streams.get(stream, NOTHING).plus(rows, agreed)
        self.total = self.total.plus(rows, agreed)

    def worst(self, most: int) -> list[tuple[str, Share]]:
        """Streams with disagreements; those first of which it is surest that they agree least."""
        wrong = [(name, share) for name, share in self.streams.items() if share.agreed < share.rows]
        return sorted(wrong, key=lambda one: (one[1].interval()[1], one[0]))[:most]
