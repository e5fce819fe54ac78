"""JSON lines: a line is the record's JSON without the fields that are constant for the object.

Rule: lines are joined in bulk; packed with gzip they are cut into steps of one size. Owner: the
writer of one result object.
"""

import zlib
from typing import Final

from penstock.encodings.base import STEP_BYTES, Rows
from penstock.messages.prediction import as_text, failure

# With this number zlib writes gzip's container, without name and time, so that equal lines give
# equal bytes.
_GZIP: Final = 31
# Level 3 takes a third of the time of level 6, and makes a tenth more bytes.
_LEVEL: Final = 3


class Lines:
    """Plain lines; `encode` makes the lines of consecutive rows."""

    def __init__(self) -> None:
        self._parts: list[bytes] = []
        self._format: tuple[str | None, bytes] | None = None
        self.waiting_bytes = 0

    @property
    def is_due(self) -> bool:
        return self.waiting_bytes >= STEP_BYTES

    def add(self, rows: Rows) -> None:
        part = b"".join(self.encode(rows))
        self._parts.append(part)
        self.waiting_bytes += len(part)

    def encode(self, rows: Rows) -> list[bytes]:
        if self._format is None or self._format[0] != rows.member:
            self._format = (rows.member, _format_of(rows.member))
        line = self._format[1]
        lines = [line % (row, answer) for row, answer in enumerate(rows.answers, rows.first_row)]
        for index, why in rows.errors.items():
            error = b',"error":%b}\n' % failure(why.code, why.message)
            lines[index] = lines[index][:-2] + error
        if rows.kept is not None:
            kept = rows.kept
            lines = [kept.into(one[:-1], row, None) + b"\n" for row, one in enumerate(lines)]
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
    """Lines of another encoding, packed in steps of exactly `STEP_BYTES`."""

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

    def add(self, rows: Rows) -> None:
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
