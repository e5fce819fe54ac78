"""The formats of result objects by their names: JSON lines, gzipped JSON lines, CSV, and Parquet.

Rule: a line of JSON is the record's JSON without what is constant for the object; CSV has the same
columns for every object and model. Lines are joined in bulk; gzip cuts them into steps of one size.
`columns` loads pyarrow, so it is imported only for Parquet.
"""

import zlib
from collections.abc import Callable
from functools import partial
from typing import Final

from penstock.encodings.base import STEP_BYTES, AnsweredRows, Encoding, columns_of, times_of
from penstock.messages.prediction import as_text, failure

HEADER: Final = b"row,member,event_time,prediction,columns,error_code,error_message\n"
_FORMULA: Final = ("=", "+", "-", "@", "\t", "\r")
# With this number zlib writes gzip's container. The container has no name and no time, so equal
# lines give equal bytes.
_GZIP: Final = 31
# The compression level. Level 3 takes a third of the time of level 6, and its output is a tenth
# larger.
_LEVEL: Final = 3


def find(name: str, nested: str = "json") -> Callable[[], Encoding]:
    """A function that makes the encoding of this format. `name`: one of
    `core.records.result_names.FORMATS`. `nested`: how Parquet holds answers that are objects.
    """
    if name == "parquet":
        from penstock.encodings.columns import ParquetRows  # noqa: PLC0415 (loads pyarrow)

        return partial(ParquetRows, nested)
    if name == "csv":
        return CsvLines
    return Lines if name == "jsonl" else lambda: Gzip(Lines())


class Lines:
    """Plain lines. `encode`: a function that makes the lines of consecutive rows."""

    def __init__(self) -> None:
        self._parts: list[bytes] = []
        self._format: tuple[str | None, bytes] | None = None
        self.waiting_bytes = 0

    @property
    def is_due(self) -> bool:
        return self.waiting_bytes >= STEP_BYTES

    def add(self, rows: AnsweredRows) -> None:
        part = b"".join(self.encode(rows))
        self._parts.append(part)
        self.waiting_bytes += len(part)

    def encode(self, rows: AnsweredRows) -> list[bytes]:
        if self._format is None or self._format[0] != rows.member:
            self._format = (rows.member, _format_of(rows.member))
        line = self._format[1]
        lines = [line % (row, answer) for row, answer in enumerate(rows.answers, rows.first_row)]
        for index, why in rows.errors.items():
            error = b',"error":%b}\n' % failure(why.code, why.message)
            lines[index] = lines[index][:-2] + error
        if rows.kept is not None:
            kept = rows.kept
            lines = [
                kept.into(encoded[:-1], row, None) + b"\n" for row, encoded in enumerate(lines)
            ]
        return lines

    def take(self) -> bytes:
        data = b"".join(self._parts)
        self._parts.clear()
        self.waiting_bytes = 0
        return data

    def close(self) -> bytes:
        return self.take()


def _format_of(member: str | None) -> bytes:
    named = b"" if member is None else b',"member":%b' % as_text(member).replace(b"%", b"%%")
    return b'{"row":%%d%b,"prediction":%%b}\n' % named


class Gzip:
    """Packs the lines of another encoding with gzip, in steps of exactly `STEP_BYTES`."""

    def __init__(self, lines: Lines) -> None:
        self._lines = lines
        self._pack = zlib.compressobj(_LEVEL, zlib.DEFLATED, _GZIP)
        self._rest = b""

    @property
    def is_due(self) -> bool:
        return self._lines.is_due

    @property
    def waiting_bytes(self) -> int:
        return self._lines.waiting_bytes + len(self._rest)

    def add(self, rows: AnsweredRows) -> None:
        self._lines.add(rows)

    def take(self) -> bytes:
        data = self._rest + self._lines.take()
        whole = len(data) // STEP_BYTES * STEP_BYTES
        self._rest = data[whole:]
        steps = (data[at : at + STEP_BYTES] for at in range(0, whole, STEP_BYTES))
        return b"".join([self._pack.compress(step) for step in steps])

    def close(self) -> bytes:
        packed = self.take()
        return packed + self._pack.compress(self._rest) + self._pack.flush()


class CsvLines(Lines):
    """Lines of CSV."""

    def __init__(self) -> None:
        super().__init__()
        self._parts.append(HEADER)
        self.waiting_bytes = len(HEADER)

    def encode(self, rows: AnsweredRows) -> list[bytes]:
        member = b"" if rows.member is None else foreign_cell(rows.member)
        if rows.kept is None and not rows.errors:
            line = b"%%d,%b,,%%b,,,\n" % member.replace(b"%", b"%%")
            return [
                line % (row, cell(text)) for row, text in enumerate(rows.answers, rows.first_row)
            ]
        lines: list[bytes] = []
        columns, times = columns_of(rows), times_of(rows)
        for index, (text, time) in enumerate(zip(rows.answers, times, strict=True)):
            why = rows.errors.get(index)
            cells = (
                b"%d" % (rows.first_row + index),
                member,
                b"" if time is None else b"%d" % time,
                b"" if why is not None else cell(text),
                cell(columns[index] or b""),
                b"" if why is None else why.code.encode(),
                b"" if why is None else foreign_cell(why.message),
            )
            lines.append(b",".join(cells) + b"\n")
        return lines


def foreign_cell(text: str) -> bytes:
    """A cell with a text that strangers have chosen. Spreadsheets take a text for a formula if it
    begins in certain ways (https://owasp.org/www-community/attacks/CSV_Injection), so such a text
    gets an apostrophe in front.
    """
    quoted = f"'{text}" if text.startswith(_FORMULA) else text
    return cell(quoted.encode(errors="replace"))


def cell(text: bytes) -> bytes:
    """The text as a cell of CSV. The cell is in quotes if the text has a quote, a comma or a line
    break.
    """
    if b'"' in text or b"," in text or b"\n" in text or b"\r" in text:
        return b'"%b"' % text.replace(b'"', b'""')
    return text
