"""Reads former answers from result objects, as records of the topic.

Rule: an object counts only if its bytes have the checksum that its record states: it may have been
removed or written again. Results are fetched side by side, because a store may take 30 ms for each.
"""

import asyncio
import logging
import tempfile
from collections import deque
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import ExitStack, aclosing, asynccontextmanager
from functools import partial
from itertools import islice
from typing import IO, Final, NamedTuple

import msgspec
from msgspec import Raw, Struct

from penstock import config
from penstock.adapters.stores.choice import open_objects, places_of_caller, with_clouds
from penstock.adapters.stores.local_files import LocalObjects
from penstock.core.routing.store_choice import StoreChoice
from penstock.encodings.output_values import records_of
from penstock.messages.prediction import Failure, Result
from penstock.ports import Objects
from penstock.process.asyncio_additions import side_by_side
from penstock.tools.verify.records_and_open_objects import NOT_JSON
from penstock.tools.verify.result_objects import UNREADABLE, fetched, rows_of

log = logging.getLogger(__name__)

# How many rows are decoded at a time. They are few, so that neither side of the comparison gets far
# ahead.
ROWS: Final = 2_000
# How many results are fetched at a time, each into a file.
AT_A_TIME: Final = 16
# Each record that names a result contains these bytes. The record of a row can contain them only
# within a text.
_MARK: Final = b'"result":'

# The values of records, in lists as they come.
Values = AsyncGenerator[list[bytes]]
# A function that takes an id, a stream and a model, and says whether the answers of this model to
# this object are compared.
Wanted = Callable[[str, str, str], bool]


class _RecordHead(Struct, gc=False):
    id: str
    stream: str
    model: str
    object: Raw
    result: Result | None = None


class _Row(Struct, gc=False, omit_defaults=True):
    id: str
    stream: str
    model: str
    row: int
    prediction: Raw
    object: Raw
    columns: Raw
    error: Failure | None = None


_decode = msgspec.json.Decoder(_RecordHead).decode
_encode = msgspec.json.Encoder().encode


@asynccontextmanager
async def open_results(cfg: config.Config, wanted: Wanted) -> AsyncIterator["FormerResults"]:
    known = with_clouds(cfg)
    async with aclosing(LocalObjects(partial(open_objects, known, lazily=True))) as objects:
        results = FormerResults(objects, StoreChoice(places_of_caller(known)), wanted)
        yield results
        results.tell()


class _Fetched(NamedTuple):
    """The result that a record names. `why_not`: why it cannot be compared."""

    head: _RecordHead
    url: str
    file: IO[bytes]
    why_not: str | None


class FormerResults:
    def __init__(self, objects: Objects, places: StoreChoice, wanted: Wanted) -> None:
        self._objects = objects
        self._places = places
        self._wanted = wanted
        self._unread: list[str] = []

    async def in_place(self, values: Values) -> Values:
        """Yields the values. Before each record that names a result, it inserts the records of the
        result's rows.
        """
        async for some in values:
            records = [record for value in some for record in records_of(value)]
            heads = [self._wanted_head(record) for record in records]
            named = iter([head for head in heads if head is not None])
            fetched: deque[_Fetched] = deque()
            plain: list[bytes] = []
            with ExitStack() as files:
                for record, head in zip(records, heads, strict=True):
                    if head is not None:
                        yield plain
                        plain = []
                        if not fetched:
                            fetches = [
                                self._fetch(location, files)
                                for location in islice(named, AT_A_TIME)
                            ]
                            fetched += await side_by_side(fetches)
                        async with aclosing(self._rows(fetched.popleft())) as read:
                            async for rows in read:
                                yield rows
                    plain.append(record)
            yield plain

    def tell(self) -> None:
        if self._unread:
            log.warning(
                '%d former results cannot be compared, so their rows count as "now only"; the '
                "first: %s",
                *(len(self._unread), self._unread[0]),
            )

    def _wanted_head(self, record: bytes) -> _RecordHead | None:
        head = _head(record)
        if head is None or head.result is None:
            return None
        return head if self._wanted(head.id, head.stream, head.model) else None

    async def _fetch(self, head: _RecordHead, files: ExitStack) -> _Fetched:
        """`files` closes the file, however the comparison ends. Usually `_rows` has closed it."""
        result = head.result
        assert result is not None
        file = files.enter_context(tempfile.TemporaryFile())  # noqa: SIM115 (it is)
        stored = await fetched(self._objects, self._places, result.url, file)
        why_not = stored if isinstance(stored, str) else None
        if not isinstance(stored, str) and stored.checksum != result.checksum:
            why_not = "it was written again since"
        return _Fetched(head, result.url, file, why_not)

    async def _rows(self, result: _Fetched) -> Values:
        head = result.head
        with result.file as file:
            if result.why_not is not None:
                self._unread.append(f"{result.url}: {result.why_not}")
                return
            whole = head.id.rpartition("/")[0]
            rows = rows_of(result.url, file, predictions=True)
            try:
                while some := await asyncio.to_thread(lambda: list(islice(rows, ROWS))):
                    yield [
                        _encode(
                            _Row(
                                *(f"{whole}/{row.row}", head.stream, head.model, row.row),
                                Raw(row.prediction),
                                head.object,
                                Raw(row.columns),
                                Failure(row.error, "") if row.error else None,
                            )
                        )
                        for row in some
                    ]
            except UNREADABLE as error:
                self._unread.append(f"{result.url}: it cannot be read: {error}")


def _head(value: bytes) -> _RecordHead | None:
    """If the record names a result: the decoded record. Otherwise None."""
    if _MARK not in value:
        return None
    try:
        head = _decode(value)
    except NOT_JSON:
        return None
    return head if head.result is not None else None
