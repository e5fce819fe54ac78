"""The messages of a simulated world, and the objects that they name, of every shape, format and
size.

Rule: all is drawn from one seeded source. A row is two numbers: its own, and a flag that tells the
model how to treat it (`unreliable_services.py`).
"""

import gzip
import io
import tarfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from random import Random
from typing import Any

import orjson
import pyarrow as pa
import pyarrow.parquet as pq

from penstock.tools.simulation.unreliable_services import FINE, REFUSED_ALONE, REFUSED_WITH_ALL

BUCKET = "b"
MOST_OBJECTS = 4
# With this much padding a Parquet file is larger than the tail that is fetched first, so that row
# groups must be fetched separately.
PADDING_BYTES = 70_000
TINY, SMALL, HUGE = (1, 2), (1, 30), (200, 500)


def gzipped(data: bytes) -> bytes:
    return gzip.compress(data, compresslevel=1, mtime=0)


def tar(members: Sequence[tuple[str, bytes]]) -> bytes:
    made = io.BytesIO()
    with tarfile.open(fileobj=made, mode="w") as archive:
        for name, data in members:
            member = tarfile.TarInfo(name)
            member.size = len(data)
            archive.addfile(member, io.BytesIO(data))
    return made.getvalue()


@dataclass
class ObjectMaker:
    """Makes objects. The rows of all objects are numbered one after the other."""

    random: Random
    number: int = field(default=0, init=False)

    def make(self) -> tuple[str, bytes]:
        """Returns the suffix of the object's name and the object's bytes."""
        kinds = {
            self._csv: 8,
            self._zipped: 2,
            self._ndjson: 2,
            self._json: 1,
            self._tar: 2,
            self._parquet: 2,
            self._broken: 1,
        }
        (kind,) = self.random.choices(list(kinds), weights=list(kinds.values()))
        return kind()

    def rows(self) -> list[list[int]]:
        (size,) = self.random.choices((TINY, SMALL, HUGE), weights=(6, 10, 1))
        is_dirty = self.random.random() < 0.3
        return [
            [self._next(), self._flag() if is_dirty else FINE]
            for _ in range(self.random.randint(*size))
        ]

    def _next(self) -> int:
        self.number += 1
        return self.number

    def _flag(self) -> int:
        (flag,) = self.random.choices((FINE, REFUSED_ALONE, REFUSED_WITH_ALL), weights=(20, 1, 1))
        return flag

    def _lines(self) -> bytes:
        lines = [b"%d,%d" % (number, flag) for number, flag in self.rows()]
        if self.random.random() < 0.15:
            lines.insert(self.random.randrange(1, len(lines) + 1), b"no,number")
        return b"\n".join(lines) + b"\n"

    def _csv(self) -> tuple[str, bytes]:
        return ".csv", b"" if self.random.random() < 0.05 else self._lines()

    def _zipped(self) -> tuple[str, bytes]:
        return ".csv.gz", gzipped(self._lines())

    def _ndjson(self) -> tuple[str, bytes]:
        return ".ndjson", b"".join(orjson.dumps(row) + b"\n" for row in self.rows())

    def _json(self) -> tuple[str, bytes]:
        return ".json", orjson.dumps(self.rows())

    def _parquet(self) -> tuple[str, bytes]:
        """A Parquet file with several row groups, larger than the tail that is fetched first. Some
        of these files have no suffix.
        """
        rows = self.rows()
        columns = {"number": [row[0] for row in rows], "flag": [row[1] for row in rows]}
        made = io.BytesIO()
        padding = {"padding": "x" * PADDING_BYTES}
        table = pa.table(columns).replace_schema_metadata(padding)
        options: dict[str, Any] = {"compression": "none", "use_dictionary": False}
        pq.write_table(table, made, row_group_size=self.random.choice((3, 40)), **options)
        return self.random.choice((".parquet", ".parquet", "")), made.getvalue()

    def _tar(self) -> tuple[str, bytes]:
        members = [(f"m{number}.csv", self._lines()) for number in range(self.random.randint(0, 3))]
        packed = tar(members)
        return (".tar.gz", gzipped(packed)) if self.random.random() < 0.5 else (".tar", packed)

    def _broken(self) -> tuple[str, bytes]:
        suffix, data = self.random.choice((self._zipped, self._json, self._tar, self._parquet))()
        return suffix, data[: self.random.randrange(len(data))]


Put = Callable[[str, bytes], str]


class Messages:
    """Makes messages. `put`: a function that stores the objects that the messages name."""

    def __init__(
        self, random: Random, make: Callable[[], tuple[str, bytes]], put: Put, streams: int
    ) -> None:
        self._streams = streams
        self.missing: list[str] = []
        self.cursed: list[str] = []
        self.present: list[tuple[str, str]] = []
        self._random = random
        self._make = make
        self._put = put
        self._keys = 0
        self._made: list[bytes] = []
        self._rows = ObjectMaker(random)
        self._rows.number = 1_000_000

    def make(self) -> bytes | None:
        kinds = (
            self._reference, self._several, self._selection, self._pinned, self._inline,
            self._missing, self._cursed, self._event, self._nothing, self._nonsense,
            self._announced_again,
        )  # fmt: skip
        weights = (20, 4, 4, 2, 3, 2, 0.3, 1, 1, 1, 5)
        (kind,) = self._random.choices(kinds, weights=weights)
        message = kind()
        if message is not None:
            self._made.append(message)
        return message

    def again(self, suffix: str) -> bytes:
        """New bytes for an object whose key has this suffix. Empty if a few draws bring no object
        of this kind.
        """
        for _ in range(20):
            made, data = self._make()
            if made == suffix:
                return data
        return b""

    def _announced_again(self) -> bytes | None:
        return self._random.choice(self._made[-8:]) if self._made else None

    def _stored(self) -> tuple[str, str]:
        """Stores a new object. Returns its key and its entity tag."""
        suffix, data = self._make()
        self._keys += 1
        key = f"f/{self._keys}{suffix}"
        self.present.append((key, suffix))
        return key, self._put(key, data)

    def _named(self) -> dict[str, Any]:
        key, _ = self._stored()
        return {"bucket": BUCKET, "key": key, "stream": f"s{self._random.randrange(self._streams)}"}

    def _reference(self) -> bytes:
        return orjson.dumps(self._named() | {"event_time": 7})

    def _several(self) -> bytes:
        return orjson.dumps(
            {"objects": [self._named() for _ in range(self._random.randint(1, MOST_OBJECTS))]}
        )

    def _selection(self) -> bytes:
        ranges: list[tuple[int, int | None]] = []
        start = 0
        for _ in range(self._random.randint(1, 3)):
            start += self._random.randint(0, 20)
            stop = start + self._random.randint(1, 20)
            ranges.append((start, stop))
            start = stop
        if self._random.random() < 0.3:
            ranges.append((start + 1, None))
        return orjson.dumps(self._named() | {"rows": ranges})

    def _pinned(self) -> bytes:
        key, etag = self._stored()
        return orjson.dumps({"bucket": BUCKET, "key": key, "etag": etag})

    def _inline(self) -> bytes:
        return orjson.dumps({"stream": "inline", "inline": self._rows.rows()})

    def _missing(self) -> bytes:
        self._keys += 1
        self.missing.append(f"f/{self._keys}.csv")
        return orjson.dumps({"bucket": BUCKET, "key": self.missing[-1]})

    def _cursed(self) -> bytes:
        named = self._named()
        self.cursed.append(named["key"])
        return orjson.dumps(named)

    def _event(self) -> bytes:
        return orjson.dumps({"Service": "Amazon S3", "Event": "s3:TestEvent", "Bucket": BUCKET})

    def _nothing(self) -> None:
        return None

    def _nonsense(self) -> bytes:
        return b"nonsense"
