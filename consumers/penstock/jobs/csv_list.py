"""The rows of a CSV list, a batch at a time.

Rule: memory is bounded by a batch, and by the longest record that a list may have. The first bytes
tell whether the list is gzipped. Reading blocks until the bytes are there, so it runs in a thread.
Owner: the reading of one list.
"""

import csv
import gzip
import io
import zlib
from collections.abc import Iterator
from typing import Self

from penstock.formats.base.source import Source, SourceFile
from penstock.jobs.list_columns import Columns
from penstock.messages.reference import SchemaError

GZIP = b"\x1f\x8b"
BATCH_ROWS = 5_000
# More than enough: a record has two names of at most 1,024 bytes, and some short fields.
MOST_RECORD_CHARS = 1 << 20


def csv_rows(source: Source, columns: Columns | None) -> Iterator[tuple[Columns, list[list[str]]]]:
    """Yields batches of rows, each with the columns. `columns` None: the first record has their
    names. Raises `SchemaError` if the file is no CSV list.
    """
    file = io.BufferedReader(SourceFile(source))
    data = gzip.GzipFile(fileobj=file) if file.peek(2).startswith(GZIP) else file
    lines = _Lines(io.TextIOWrapper(data, "utf-8-sig", newline=""))
    rows: list[list[str]] = []
    try:
        for record in filter(None, csv.reader(lines, strict=True)):
            lines.chars = 0
            if columns is None:
                columns = Columns(record)
                continue
            rows.append(record)
            if len(rows) == BATCH_ROWS:
                yield columns, rows
                rows = []
    except EOFError:
        raise SchemaError("the gzip file breaks off: its end is missing") from None
    except (gzip.BadGzipFile, zlib.error) as error:
        raise SchemaError(f"no gzip: {error}") from None
    except (UnicodeDecodeError, csv.Error) as error:
        raise SchemaError(f"no CSV in UTF-8: {error}") from None
    if columns is not None:
        yield columns, rows


class _Lines:
    """The lines of a text. `chars`: characters since the last record ended; if they are more than
    `MOST_RECORD_CHARS`, `SchemaError` is raised.
    """

    def __init__(self, text: io.TextIOWrapper) -> None:
        self._text = text
        self.chars = 0

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> str:
        line = self._text.readline(MOST_RECORD_CHARS + 1)
        self.chars += len(line)
        if self.chars > MOST_RECORD_CHARS:
            said = f"a record has more than {MOST_RECORD_CHARS:,} characters: no CSV list"
            raise SchemaError(said)
        if not line:
            raise StopIteration
        return line
