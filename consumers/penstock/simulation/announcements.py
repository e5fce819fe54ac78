"""What is announced in a simulated world: every shape of message, every kind of object, huge next
to tiny.

Rule: everything is drawn from one seeded source. A row is two numbers: its own, and a flag that
tells the model how to treat it. Owner: the simulation.
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

from penstock.core.rows.payload import BytesRows, JsonRows, Matrix, Payload
from penstock.errors import ErrorCode, HungUp, Poison, Rejected, Transient, WorkerDied
from penstock.ports import Answers

BUCKET = "b"
FINE, REFUSED_ALONE, REFUSED_WITH_ALL, KILLS, HANGS, LARGE, HUNG_UP_ON = 0, 1, 2, 3, 4, 5, 6
# More than the output topic takes, in worlds where records must be small.
LARGE_BYTES = 8_000
# After this time the server gives up a process that hangs.
HANGS_S = 8.0
MOST_OBJECTS = 4
# Makes the footer larger than what is fetched with it, so that row groups must be fetched.
PADDING_BYTES = 70_000
TINY, SMALL, HUGE = (1, 2), (1, 30), (200, 500)


class Deadly(Poison):
    """One of these rows costs all rows of its call their answer: the model's process ends after
    `after_s`, or the server hangs up. `code` is the right answer for the row alone.
    """

    def __init__(self, code: ErrorCode, loss: Transient, after_s: float = 0.0) -> None:
        super().__init__(code, str(loss))
        self.loss = loss
        self.after_s = after_s


def echo(payload: Payload) -> Answers:
    """The model: answers each row by its number, in whatever form the rows come."""
    pairs = _pairs(payload)
    flags = {flag for _, flag in pairs}
    if flags & {KILLS, HANGS}:
        died = WorkerDied("Worker died.")
        raise Deadly("model_rejected", died, 0.0 if KILLS in flags else HANGS_S)
    if HUNG_UP_ON in flags:
        raise Deadly("unavailable", HungUp("the server hung up"))
    if REFUSED_WITH_ALL in flags:
        raise Rejected("model_rejected", "a row made the handler raise")
    errors = {index: "no" for index, (_, flag) in enumerate(pairs) if flag == REFUSED_ALONE}
    values = [
        b"null" if index in errors else _answer(number, flag)
        for index, (number, flag) in enumerate(pairs)
    ]
    return Answers(values, errors)


def _answer(number: int, flag: int) -> bytes:
    if flag == LARGE:
        return b'{"n":%d,"pad":"%b"}' % (number, b"x" * LARGE_BYTES)
    return b'{"n":%d}' % number


def _pairs(payload: Payload) -> list[Any]:
    if isinstance(payload, Matrix):
        pairs: list[Any] = payload.values.tolist()
        return pairs
    if isinstance(payload, BytesRows):
        return [_pair_of(bytes(payload.row(index))) for index in range(payload.rows)]
    assert isinstance(payload, JsonRows)
    return [_pair(row) for row in orjson.loads(b"[%b]" % bytes(payload.body))]


def _pair_of(line: bytes) -> Any:
    """The two numbers of a line of text. Other lines reach the model, too, which refuses them."""
    number, _, flag = line.partition(b",")
    return (int(number), int(flag)) if number.isdigit() and flag.isdigit() else (0, REFUSED_ALONE)


def _pair(row: object) -> Any:
    """A row of text as the model gets it; other rows it refuses."""
    if isinstance(row, list) and len(row) == 2 and all(_is_number(cell) for cell in row):
        return row
    return (0, REFUSED_ALONE)


def _is_number(cell: object) -> bool:
    return isinstance(cell, int | float)


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
class Objects:
    """Makes objects; rows are numbered on through all of them."""

    random: Random
    number: int = field(default=0, init=False)

    def make(self) -> tuple[str, bytes]:
        """Returns a file name's extension and the object's bytes."""
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
        """A Parquet file with several row groups, larger than the tail that is fetched first;
        sometimes without the extension.
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
    """Makes messages and `put`s the objects they name."""

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
        self._rows = Objects(random)
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
        """Other bytes for a key with this suffix; empty if such objects are too rare."""
        for _ in range(20):
            made, data = self._make()
            if made == suffix:
                return data
        return b""

    def _announced_again(self) -> bytes | None:
        return self._random.choice(self._made[-8:]) if self._made else None

    def _stored(self) -> tuple[str, str]:
        """Key and entity tag of a new object."""
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
