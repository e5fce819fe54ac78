"""The rows of a Parquet list, a batch at a time, by ranged reads.

Rule: only the columns that mean something are read. The library blocks until it has its bytes, so
it runs in a thread and asks the event loop for them. Owner: the reading of one list.
"""

import asyncio
from collections.abc import AsyncIterator, Iterator, Sequence
from typing import Any

from penstock.formats.base.source import SourceFile
from penstock.jobs.columns import Columns, field_of
from penstock.messages.errors import SchemaError
from penstock.ports import Location, Objects
from penstock.process.threads import in_thread

MAGIC = b"PAR1"
BATCH_ROWS = 5_000
# Read at a time, for each column.
BUFFER_BYTES = 1 << 20


class _Ranges:
    """The object, for a thread that is not the loop's."""

    def __init__(self, objects: Objects, location: Location, size: int) -> None:
        self.size = size
        self._objects = objects
        self._location = location
        self._loop = asyncio.get_running_loop()

    def read(self, start: int, stop: int) -> bytes:
        if start >= stop:
            return b""
        asked = self._objects.part(self._location, start, stop)
        return asyncio.run_coroutine_threadsafe(asked, self._loop).result().data

    def chunks(self) -> Iterator[bytes]:
        for start in range(0, self.size, BUFFER_BYTES):
            yield self.read(start, min(self.size, start + BUFFER_BYTES))


async def parquet_rows(
    objects: Objects, location: Location, size: int
) -> AsyncIterator[tuple[Columns, Sequence[Sequence[Any]]]]:
    """The columns, and rows of them. Raises `SchemaError` for what is no such list."""
    batches = _batches(_Ranges(objects, location, size))
    while (found := await in_thread(lambda: next(batches, None))) is not None:
        yield found


def _batches(ranges: _Ranges) -> Iterator[tuple[Columns, Sequence[Sequence[Any]]]]:
    import pyarrow as pa  # noqa: PLC0415 (takes a while, and most lists are CSV)
    import pyarrow.parquet as pq  # noqa: PLC0415

    try:
        source = pa.PythonFile(SourceFile(ranges), mode="r")
        file = pq.ParquetFile(source, pre_buffer=False, buffer_size=BUFFER_BYTES)
        names = [name for name in file.schema_arrow.names if field_of(name)]
        columns = Columns(names or file.schema_arrow.names)
        for batch in file.iter_batches(BATCH_ROWS, columns=names, use_threads=False):
            rows = zip(*(column.to_pylist() for column in batch.columns), strict=True)
            yield columns, list(rows)
    except (pa.ArrowException, OSError) as error:
        raise SchemaError(f"no Parquet that can be read: {error}") from None
