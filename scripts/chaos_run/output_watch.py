"""Reads the output topic while it is written, and notes which rows are new, are repeated, or have a
wrong answer.

Rule: the watch sees what any reader of the topic sees. The judge checks the promises afterwards,
but does not know the right answers; the watch does. Owner: the run.
"""

import asyncio
import math
from collections import Counter
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager

import msgspec

from chaos_run.plan import PARTITIONS, Object
from chaos_run.poison import FOLDER, NO_OBJECT
from chaos_run.row_pool import LINES, Answer, Pool
from chaos_run.services_under_test import Place
from penstock.adapters.kafka.follower import Follower, following
from penstock.adapters.stores.choice import open_objects
from penstock.errors import Poison, Transient
from penstock.messages.prediction import Failure, ObjectId, Result, Source
from penstock.messages.urls import split_url
from penstock.ports import Location, Objects

POLL_MS = 200
# By rounding, the answer to a row depends a little on the size of its batch.
TOLERANCE = 1e-5
BUCKET_MS = 100
KEPT_WRONG = 5
RESULT = b'"result":{'
# How often a read is tried, with a second between two tries. After every fault MinIO is back within
# this time.
TRIES = 60


class _Line(msgspec.Struct, gc=False):
    """A line of a result object: a row's record without the fields of its object."""

    row: int
    prediction: Answer | None = None
    error: Failure | None = None


class _Record(msgspec.Struct, gc=False):
    id: str
    source: Source
    object: ObjectId | None
    row: int | None
    prediction: Answer | None = None
    error: Failure | None = None
    result: Result | None = None


_decode = msgspec.json.Decoder(_Record).decode
_decode_line = msgspec.json.Decoder(_Line).decode


class Recovery:
    """Measures how long these partitions have no new row after `since_ms`. The first new row sets
    `took_s`.
    """

    def __init__(self, partitions: Iterable[int], since_ms: float) -> None:
        self.partitions = frozenset(partitions)
        self.since_ms = since_ms
        self.took_s: float | None = None


class Watch:
    """Counts and checks rows. `new`, `repeated`: how many rows of each kind came so far. `of_rows`:
    rows have records of their own.
    """

    def __init__(self, pool: Pool, objects: Iterable[Object], *, of_rows: bool = True) -> None:
        self._of_rows = of_rows
        self.new = self.repeated = 0
        self.wrong: list[str] = []
        self.poison_rows: set[str] = set()
        self.poison_codes: dict[str, set[str]] = {}
        self._pool = pool
        self._first_line = {one.key: one.first_line for one in objects}
        self._furthest = dict.fromkeys(range(PARTITIONS), (-1, -1))
        self._last_ms = dict.fromkeys(range(PARTITIONS), 0)
        self._recoveries: list[Recovery] = []
        # The number of rows in each interval of `BUCKET_MS`, by the time stamps of their records.
        self._delivered: Counter[int] = Counter()
        self._repeated: Counter[int] = Counter()

    def recovery(self, partitions: Iterable[int], since_ms: float) -> Recovery:
        recovery = Recovery(partitions, since_ms)
        self._recoveries.append(recovery)
        return recovery

    def last_row_ms(self, partitions: Iterable[int]) -> int:
        """The time stamp of the latest row of these partitions."""
        return max((self._last_ms[number] for number in partitions), default=0)

    def most_rows_in(self, interval_ms: int) -> int:
        """The most rows in any interval of this length. The length is rounded up to whole buckets,
        and one more bucket is added.
        """
        buckets = range(-(-interval_ms // BUCKET_MS) + 1)
        starts = list(self._delivered)
        return max((sum(self._delivered[at + n] for n in buckets) for at in starts), default=0)

    def repeats_between(self, from_ms: float, to_ms: float) -> int:
        low, high = from_ms / BUCKET_MS, to_ms / BUCKET_MS
        return sum(count for at, count in self._repeated.items() if low <= at < high)

    def take(
        self, partition: int, timestamp_ms: int, value: bytes, lines: Iterable[bytes] = ()
    ) -> None:
        """Count a record. `lines`: the lines of the result object that the record names. If rows
        have no records of their own, the lines are counted as the rows; else the lines are only
        checked.
        """
        record = _decode(value)
        begin = record.id.rpartition("/")[0]
        for line in map(_decode_line, lines):
            of_row = _Record(
                f"{begin}/{line.row}",
                record.source,
                record.object,
                line.row,
                line.prediction,
                line.error,
            )
            if self._of_rows:
                self._check_line(of_row)
            else:
                self._take(partition, timestamp_ms, of_row)
        if record.result is None or record.error is not None:
            self._take(partition, timestamp_ms, record)

    def _check_line(self, record: _Record) -> None:
        key = record.object.key if record.object is not None else NO_OBJECT
        if key != NO_OBJECT and not key.startswith(FOLDER):
            assert record.row is not None
            self._check(record, key, record.row)

    def _take(self, partition: int, timestamp_ms: int, record: _Record) -> None:
        key = record.object.key if record.object is not None else NO_OBJECT
        if key == NO_OBJECT or key.startswith(FOLDER):
            self._take_poison(key, record)
            return
        row = -1 if record.row is None else record.row
        place = (record.source.offset, row)
        bucket = timestamp_ms // BUCKET_MS
        self._delivered[bucket] += 1
        self._last_ms[partition] = timestamp_ms
        if place <= self._furthest[partition]:
            self.repeated += 1
            self._repeated[bucket] += 1
        else:
            self._furthest[partition] = place
            self.new += 1
            if self._recoveries:
                self._note(partition, timestamp_ms)
        self._check(record, key, row)

    def _take_poison(self, key: str, record: _Record) -> None:
        """Note the record about a poison. It does not count as one of the run's rows."""
        if record.row is not None:
            self.poison_rows.add(record.id)
        if record.error is not None:
            self.poison_codes.setdefault(key, set()).add(record.error.code)

    def _note(self, partition: int, timestamp_ms: int) -> None:
        for recovery in [*self._recoveries]:
            if partition in recovery.partitions and timestamp_ms > recovery.since_ms:
                recovery.took_s = (timestamp_ms - recovery.since_ms) / 1000
                self._recoveries.remove(recovery)

    def _check(self, record: _Record, key: str, row: int) -> None:
        expected = self._pool.answers[(self._first_line[key] + row) % LINES]
        found = record.prediction
        is_right = (
            found is not None
            and found.label == expected.label
            and math.isclose(found.score, expected.score, rel_tol=0, abs_tol=TOLERANCE)
        )
        if not is_right and len(self.wrong) < KEPT_WRONG:
            self.wrong.append(f"{record.id}: {found}, but alone it is {expected}")


async def _read(follower: Follower, watch: Watch, objects: Objects) -> None:
    while True:
        for _, partition, records in await follower.more(POLL_MS):
            for record in records:
                lines: Iterable[bytes] = ()
                if RESULT in record.value and (result := _decode(record.value).result) is not None:
                    lines = await _lines(objects, result.url, watch)
                watch.take(partition, record.timestamp, record.value, lines)


async def _lines(objects: Objects, url: str, watch: Watch) -> list[bytes]:
    """The lines of the result object that a record names. A missing object is an error. While the
    store is down, the read is tried again.
    """
    _, bucket, key = split_url(url)
    for _ in range(TRIES):
        try:
            body = await objects.open(Location(bucket, key))
            try:
                data = b"".join([chunk async for chunk in body])
            finally:
                await body.aclose()
            return data.splitlines()
        except Transient:
            await asyncio.sleep(1.0)
        except Poison as error:
            watch.wrong.append(f"{url} is named by a record and not there: {error}")
            return []
    watch.wrong.append(f"{url} could not be read")
    return []


@asynccontextmanager
async def watching(place: Place, pool: Pool, objects: Iterable[Object]) -> AsyncIterator[Watch]:
    """Watch from the topic's beginning until the block ends."""
    watch = Watch(pool, objects, of_rows=place.config.output.records != "objects")
    settings = place.config
    store = open_objects(settings)
    topics = {settings.output.topic: PARTITIONS}
    try:
        async with (
            following(settings.kafka, settings.delivery.isolation, topics) as follower,
            asyncio.TaskGroup() as tasks,
        ):
            reading = tasks.create_task(_read(follower, watch, store))
            yield watch
            reading.cancel()
    finally:
        await store.aclose()
