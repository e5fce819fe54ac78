"""Messages and objects that try to stop a worker, although they are legal or nearly legal.

Rule: each kind has once stopped or slowed a worker. The kinds: a dead letter that is too large for
every topic; a letter for each row, with the whole message in each letter; bad rows that count no
bytes; a transfer that always breaks at the same byte; rows that kill or stall the model's process.
Owner: the simulation.
"""

from collections.abc import Callable
from random import Random
from typing import Any

import orjson

from penstock.tools.simulation.announcements import BUCKET
from penstock.tools.simulation.unreliable_services import (
    FINE,
    HANGS,
    HUNG_UP_ON,
    KILLS,
    LARGE,
    REFUSED_ALONE,
    REFUSED_WITH_ALL,
)

UNPARSABLE = (
    b"nonsense",
    b"\xff\xfe\x00",
    b'{"bucket":"b","key":"\xed\xa0\x80"}',
    b'{"bucket":"b","key":"f/1.csv","rows":[]}',
    b'{"bucket":"b","key":"f/1.csv","rows":[[5,2]]}',
    b'{"bucket":"b","key":"f/1.csv","event_time":1e400}',
    b'{"objects":' + b"[" * 2_000,
    b'{"bucket":"b","key":"f/1.csv","attributes":%b}' % (b'{"a":' * 40 + b"1" + b"}" * 40),
    b'{"inline":7}',
    b"nonsense" * 2_000,
)
# Rows that are refused, each for a reason of its own.
UNLIKE = (
    b'[1,"x"]', b'"text"', b"[[1]]", b'{"a":1}', b"null", b"[1,2,3]", b"[true,0]", b"[]",
    b"[1e400,0]",
)  # fmt: skip


class PoisonMessages:
    """`put`: a function that stores an object. `cut`: for some objects, by key, the number of bytes
    after which the transfer always breaks. `slow`: how many objects need minutes until they are
    given up.
    """

    def __init__(self, random: Random, put: Callable[[str, bytes], str], streams: int) -> None:
        self._streams = streams
        self.cut: dict[str, int] = {}
        self.missing: list[str] = []
        self.slow = 0
        self._random = random
        self._put = put
        self._keys = 0
        self._number = 2_000_000

    def make(self) -> bytes:
        kinds: tuple[Callable[[], bytes], ...] = (
            self._many_ranges, self._many_reasons, self._unparsable, self._attributes, self._cut,
            self._all_refused, self._deadly, self._large, self._bad_rows,
        )  # fmt: skip
        (kind,) = self._random.choices(kinds, weights=(3, 3, 3, 3, 2, 3, 2, 2, 2))
        return kind()

    def _key(self, suffix: str = ".csv") -> str:
        self._keys += 1
        return f"p/{self._keys}{suffix}"

    def _named(self, data: bytes, **more: Any) -> bytes:
        key = self._key()
        self._put(key, data)
        return self._reference(key, **more)

    def _reference(self, key: str, **more: Any) -> bytes:
        stream = f"s{self._random.randrange(self._streams)}"
        return orjson.dumps({"bucket": BUCKET, "key": key, "stream": stream} | more)

    def _lines(self, *flags: int) -> bytes:
        self._number += len(flags)
        numbered = enumerate(flags, self._number - len(flags))
        return b"".join(b"%d,%d\n" % (number, flag) for number, flag in numbered)

    def _many_ranges(self) -> bytes:
        """A message with many row ranges. Its dead letter repeats all ranges twice."""
        ranges = [(2 * number, 2 * number + 1) for number in range(self._random.choice((20, 300)))]
        kind = self._random.randrange(3)
        if kind == 0:
            self.missing.append(self._key())
            return self._reference(self.missing[-1], rows=ranges)
        flag = FINE if kind == 1 else REFUSED_ALONE
        return self._named(self._lines(*[flag] * 10) + b"1,2,3\n", rows=ranges)

    def _many_reasons(self) -> bytes:
        rows = [UNLIKE[number % len(UNLIKE)] for number in range(self._random.randint(2, 40))]
        return b'{"stream":"inline","inline":[%b]}' % b",".join(rows)

    def _unparsable(self) -> bytes:
        return self._random.choice(UNPARSABLE)

    def _attributes(self) -> bytes:
        size = self._random.choice((1_000, 2_000, 2_000, 70_000))
        flags = [FINE] * self._random.randint(1, 60)
        return self._named(self._lines(*flags), attributes={"pad": "x" * size})

    def _cut(self) -> bytes:
        data = self._lines(*[FINE] * self._random.randint(1, 100))
        key = self._key()
        self._put(key, data)
        self.slow += 1
        self.cut[key] = self._random.randrange(len(data))
        return self._reference(key)

    def _all_refused(self) -> bytes:
        flag = self._random.choice((REFUSED_ALONE, REFUSED_WITH_ALL))
        return self._named(self._lines(*[flag] * self._random.randint(1, 60)))

    def _deadly(self) -> bytes:
        flags = [FINE] * self._random.randint(0, 20)
        deadly = self._random.choice((KILLS, KILLS, HANGS, HUNG_UP_ON, HUNG_UP_ON))
        flags.insert(self._random.randint(0, len(flags)), deadly)
        self.slow += 1
        return self._named(self._lines(*flags))

    def _large(self) -> bytes:
        flags = [self._random.choice((FINE, LARGE)) for _ in range(self._random.randint(1, 9))]
        return self._named(self._lines(*flags))

    def _bad_rows(self) -> bytes:
        return self._named(self._lines(FINE, FINE) + b"x\n" * self._random.choice((10, 1_000)))
