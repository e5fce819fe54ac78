"""Reads former answers from result objects, and gives them the form of records on the topic, one
for each row.

Rule: a record that names a result object also states the object's checksum. The object counts only
if its bytes have that checksum, because the object may have been removed, or written again, since
then. Owner: the comparison.
"""

import asyncio
import logging
import tempfile
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import aclosing, asynccontextmanager
from functools import partial
from itertools import islice
from typing import Final

import msgspec
from msgspec import Raw, Struct

from penstock import config
from penstock.adapters.stores.choice import open_objects, places_of_caller, with_clouds
from penstock.adapters.stores.files_and_stdin import LocalObjects
from penstock.core.routing.store_choice import StoreChoice
from penstock.encodings.output_values import records_of
from penstock.messages.prediction import Failure, Result
from penstock.ports import Objects
from penstock.verify.records_and_open_objects import NOT_JSON
from penstock.verify.result_objects import UNREADABLE, fetched, rows_of

log = logging.getLogger(__name__)

# How many rows are decoded at a time. They are few, so that neither side of the comparison gets far
# ahead.
ROWS: Final = 2_000
# Each record that names a result contains these bytes. The record of a row can contain them only
# within a text.
_MARK: Final = b'"result":'

# The values of records, in lists as they come.
Values = AsyncGenerator[list[bytes]]
# A function that takes an id, a stream and a model, and says whether the answers of this model to
# this object are compared.
Wanted = Callable[[str, str, str], bool]


class _Head(Struct, gc=False):
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


_decode = msgspec.json.Decoder(_Head).decode
_encode = msgspec.json.Encoder().encode


@asynccontextmanager
async def open_results(cfg: config.Config, wanted: Wanted) -> AsyncIterator["FormerResults"]:
    known = with_clouds(cfg)
    async with aclosing(LocalObjects(partial(open_objects, known, lazily=True))) as objects:
        results = FormerResults(objects, StoreChoice(places_of_caller(known)), wanted)
        yield results
        results.tell()


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
            plain: list[bytes] = []
            for record in (record for value in some for record in records_of(value)):
                head = _head(record)
                if head is not None:
                    yield plain
                    plain = []
                    async for rows in self._rows(head):
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

    async def _rows(self, head: _Head) -> Values:
        result = head.result
        if result is None or not self._wanted(head.id, head.stream, head.model):
            return
        with tempfile.TemporaryFile() as file:
            stored = await fetched(self._objects, self._places, result.url, file)
            if isinstance(stored, str) or stored.checksum != result.checksum:
                why = stored if isinstance(stored, str) else "it was written again since"
                self._unread.append(f"{result.url}: {why}")
                return
            whole = head.id.rpartition("/")[0]
            rows = rows_of(result.url, file, predictions=True)
            try:
                while some := await asyncio.to_thread(lambda: list(islice(rows, ROWS))):
                    yield [
                        _encode(
                            _Row(
                                *(f"{whole}/{one.row}", head.stream, head.model, one.row),
                                Raw(one.prediction),
                                head.object,
                                Raw(one.columns),
                                Failure(one.error, "") if one.error else None,
                            )
                        )
                        for one in some
                    ]
            except UNREADABLE as error:
                self._unread.append(f"{result.url}: it cannot be read: {error}")


def _head(value: bytes) -> _Head | None:
    """If the record names a result: the decoded record. Otherwise None."""
    if _MARK not in value:
        return None
    try:
        head = _decode(value)
    except NOT_JSON:
        return None
    return head if head.result is not None else None
