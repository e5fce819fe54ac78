"""The source and the sink of `predict`: URLs in, results out.

Rule: the pipeline is the same as with Kafka; the URLs are the records of one partition. While the
caller does not take results, no more objects are transferred.
"""

import asyncio
import re
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Mapping, Sequence

from penstock.adapters.stores.local_files import LOCAL, MEMORY, local_files, local_path
from penstock.core.progress.line_stop import Word
from penstock.core.routing.store_choice import StoreChoice
from penstock.errors import Fatal, PenstockError, Poison, usage
from penstock.messages.codec import SchemaError, encode_reference
from penstock.messages.reference import Reference
from penstock.messages.urls import split_url
from penstock.ports import Commit, Location, Objects, Outgoing, Rebalance, Record, Where

# The most references of one poll. If a page of the store's listing has more, the store's client
# holds the rest.
POLL_RECORDS = 100
# How many references are read before the model is waited for: a page of a listing.
READ_AHEAD = 1_000
# The only partition.
SOLE = Where("predict", 0)
# How many batches of results may wait for their reader.
WAITING = 4
_MAGIC = frozenset("*?[")
# Names of files beside those with rows, and of folders of such files.
_SIDE = re.compile(
    r"(?:^|/)(?:_SUCCESS|_metadata|_common_metadata|_(?:committed|started)_[^/]*|[._][^/]*\.crc|"
    r"(?:_temporary|_delta_log|_spark_metadata|\.hoodie)/.*)$"
)


async def references(
    objects: Objects, urls: Sequence[str], places: StoreChoice
) -> AsyncIterator[Reference]:
    """A reference for each object or file that the URLs and paths name. The matches of a glob come
    in the order of their keys. Raises `Fatal` if a glob matches nothing, or if its bucket cannot be
    listed.
    """
    paths = list(map(local_path, urls))
    found = local_files([path for path in paths if path is not None])
    for url, path in zip(urls, paths, strict=True):
        if path is not None:
            files = [file for file in await anext(found) if _names(path, file)]
            for file in files:
                stream = file.rpartition("/")[0] or file
                # Rows in memory are in the form that we gave them, whatever the settings say.
                form = file.rpartition(".")[2] if file.startswith(MEMORY) else None
                yield Reference(bucket=LOCAL, key=file, stream=stream, format=form)
            if not files:
                raise usage(f"no file matches {url}{_of_brackets(path)}")
            continue
        try:
            store, bucket, key = split_url(url)
        except SchemaError as error:
            message = f"{error}; all objects of a bucket are 's3://bucket/**'"
            raise usage(message) from None
        if not _MAGIC & set(key):
            yield Reference(bucket=bucket, key=key, store=store)
            continue
        matched = False
        try:
            place = places.of(store, bucket, key)
            if "[" in key and await _exists(objects, Location(bucket, key, store=place)):
                yield Reference(bucket=bucket, key=key, store=store)
                continue
            async for listed in objects.list(bucket, key, place):
                name = listed.location.key
                if not _names(key, name):
                    continue
                matched = True
                yield Reference(bucket=bucket, key=name, store=store, size=listed.size)
        except Poison as error:  # no such bucket, or no right to list it: the user must correct it
            raise usage(str(error)) from None
        if not matched:
            raise usage(f"no object matches {url}{_of_brackets(key)}")


class ReadAhead:
    """References, of which `look` reads the first ones before the model is waited for, because what
    the user must correct can be said at once.
    """

    def __init__(self, named: AsyncIterator[Reference]) -> None:
        self._named = named
        self._read: list[Reference] = []
        self._failed: PenstockError | None = None

    async def look(self, most: int = READ_AHEAD) -> None:
        """Raises `Fatal` if a URL of these references is refused."""
        try:
            while len(self._read) < most and (one := await anext(self._named, None)) is not None:
                self._read.append(one)
        except Fatal:
            raise
        except PenstockError as error:
            self._failed = error  # it is raised in its turn

    async def all(self) -> AsyncIterator[Reference]:
        for reference in self._read:
            yield reference
        self._read.clear()
        if self._failed is not None:
            raise self._failed
        async for reference in self._named:
            yield reference


def _names(glob: str, name: str) -> bool:
    """False if Spark, Hive, Delta or Arrow keep their own notes under this name. A glob passes over
    such names, as these programs do, unless it asks for them.
    """
    asks = _SIDE.search(glob) is not None or glob.rpartition("/")[2].startswith(("_", "."))
    return asks or _SIDE.search(name) is None


async def _exists(objects: Objects, location: Location) -> bool:
    try:
        body = await objects.open(location)
    except Poison:
        return False
    await body.aclose()
    return True


def _of_brackets(glob: str) -> str:
    if "[" not in glob:
        return ""
    return "; in a glob, [...] stands for one of some characters, and [[] for a bracket itself"


class Groupless:
    """The base of sources without a group. Nobody takes their partitions away, and no operator
    tells them what to do with a partition that has stopped.
    """

    async def rewind(self, partitions: Collection[Where]) -> Mapping[Where, Commit]:
        return {}

    async def words(self, partitions: Collection[Where]) -> Mapping[Where, str]:
        return {}

    def topic_id(self, partition: Where) -> str | None:
        return None

    async def mark_obeyed(self, partition: Where, words: Collection[Word]) -> None:
        return

    def pause(self, partition: Where) -> None:
        return

    async def stop(self) -> None:
        return


class UrlSource(Groupless):
    """Makes records from references. Calls `on_end` when all references were read and the last
    record is committed, whichever is known later: only the next poll tells that none follows.
    """

    def __init__(
        self, listed: AsyncIterator[Reference], on_end: Callable[[], None], now_ms: int = 0
    ) -> None:
        """`now_ms`: the timestamp of all records."""
        self._now_ms = now_ms
        self._listed = listed
        self._on_end = on_end
        self._next_offset = 0
        self._committed = 0
        self._exhausted = False

    async def start(self, rebalance: Rebalance) -> None:
        await rebalance.assigned({SOLE: Commit(0)})

    async def poll(self, partitions: Collection[Where], wait_ms: int) -> Sequence[Record]:
        records: list[Record] = []
        while partitions and not self._exhausted and len(records) < POLL_RECORDS:
            reference = await anext(self._listed, None)
            if reference is None:
                self._exhausted = True
                break
            records.append(
                Record(SOLE, self._next_offset, None, encode_reference(reference), self._now_ms)
            )
            self._next_offset += 1
        if not records:
            await asyncio.sleep(wait_ms / 1000)
        self._end_if_done()
        return records

    async def commit(self, commits: Mapping[Where, Commit]) -> None:
        self._committed = commits[SOLE].next_offset
        self._end_if_done()

    def _end_if_done(self) -> None:
        if self._exhausted and self._committed == self._next_offset:
            self._on_end()

    def reached(self) -> Mapping[Where, int]:
        return {}

    def partitions(self) -> int:
        return 1

    async def end_offsets(self) -> Mapping[Where, int]:
        return {SOLE: self._next_offset}


class ResultSink:
    """Hands the records of one topic to the caller that reads `results`. It drops the records of
    other topics: those are dead letters.
    """

    def __init__(self, topic: str) -> None:
        self._topic = topic
        self.results: asyncio.Queue[list[bytes]] = asyncio.Queue(WAITING)

    async def start(self) -> None:
        return

    async def partitions(self, topic: str) -> int:
        return 1

    async def send(self, outgoing: Outgoing) -> Awaitable[None]:
        if outgoing.topic == self._topic:
            await self.results.put(outgoing.values)
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        done.set_result(None)
        return done

    def fits(self, topic: str, key: bytes | None, value_bytes: int) -> bool:
        return True

    async def forget(self) -> None:
        return

    async def stop(self) -> None:
        return
