"""CSV: one line a row, with a header.

Rule: the columns are the same for every object and every model: `prediction` is JSON in one cell.
Owner: the writer of one result object.
"""

from typing import Final

from penstock.encodings.base import Rows, columns_of, times_of
from penstock.encodings.jsonl import Lines

HEADER: Final = b"row,member,event_time,prediction,columns,error_code,error_message\n"


class CsvLines(Lines):
    """`Lines` in the form of CSV."""

    def __init__(self) -> None:
        super().__init__()
        self._parts.append(HEADER)
        self.waiting_bytes = len(HEADER)

    def encode(self, rows: Rows) -> list[bytes]:
        member = b"" if rows.member is None else cell(rows.member.encode(errors="replace"))
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
                b"" if why is None else cell(why.message.encode(errors="replace")),
            )
            lines.append(b",".join(cells) + b"\n")
        return lines


def cell(text: bytes) -> bytes:
    """The cell, in quotes if it has a quote, a comma or a line break."""
    if b'"' in text or b"," in text or b"\n" in text or b"\r" in text:
        return b'"%b"' % text.replace(b'"', b'""')
    return text
