"""Reads one HTTP/1.1 answer from its bytes as they come.

Rule: an answer that contradicts itself, or has more bytes than it announced, is refused. No more is
held than the bounds that the caller gives. Pure. Owner: `http_connections`, one reader for each
request.
"""

import re
from collections.abc import Mapping
from typing import Final, Literal, NamedTuple

HEAD_BYTES: Final = 64 * 1024
# The most bytes of the line with a chunk's size; a server may add extensions after the size.
LINE_BYTES: Final = 4096

_END: Final = b"\r\n\r\n"
_STATUS: Final = re.compile(rb"HTTP/1\.([01]) ([1-9][0-9]{2})(?=[ \r]|\Z)")
_LENGTH: Final = re.compile(rb"[0-9]{1,18}")
_CHUNK: Final = re.compile(rb"([0-9a-fA-F]{1,15})[ \t]*(?:;.*)?", re.DOTALL)
_FRAMING: Final = ("content-length", "connection", "transfer-encoding")

SWITCHING: Final = 101
OK: Final = 200
BODILESS: Final = frozenset({SWITCHING, 204, 304})

Fields = re.Pattern[bytes]


class Unusable(Exception):
    """The bytes are not an HTTP/1.1 answer, or the answer contradicts itself."""


class TooLong(Exception):
    """The answer is longer than the caller's bound."""


class Answer(NamedTuple):
    """A whole answer, or the wanted beginning of an error answer. Names in `fields` are in lower
    case; if a field came several times, its values are joined by line feeds, which no value has.
    """

    status: int
    fields: Mapping[bytes, bytes]
    body: bytes


def wanting(*names: str) -> Fields:
    """A pattern for the fields that a caller needs and those that tell where an answer ends. It
    skips all other fields, a dozen in most answers, by their first letter.
    """
    every = sorted({*_FRAMING, *(name.lower() for name in names)})
    said = "|".join(f"[{name[0]}{name[0].upper()}](?i:{re.escape(name[1:])})" for name in every)
    return re.compile(rf"\r\n({said}):([^\r\n]*+)(?=\r\n|\Z)".encode())


class AnswerReader:
    """A 200 may have `most_bytes`; of every other answer the first `most_complaint_bytes` are read.
    With `believes_length`, a 200 whose Content-Length is above the bound fails before its body is
    read. After an answer, `keeps` tells whether the connection may be used again.
    """

    __slots__ = (
        "_at_end",
        "_believes_length",
        "_body",
        "_early",
        "_fields",
        "_found",
        "_left",
        "_most_bytes",
        "_most_complaint_bytes",
        "_most_here",
        "_passed_bytes",
        "_status",
        "keeps",
    )

    def __init__(
        self,
        fields: Fields,
        most_bytes: int,
        most_complaint_bytes: int,
        *,
        believes_length: bool = False,
    ) -> None:
        self.keeps = False
        self._believes_length = believes_length
        self._fields = fields
        self._most_bytes = most_bytes
        self._most_complaint_bytes = most_complaint_bytes
        self._most_here = most_bytes
        # Bytes that cannot be read yet: the beginning of a head, or of a chunk's line.
        self._early = b""
        self._passed_bytes = 0
        self._status: int | None = None
        self._found: dict[bytes, bytes] = {}
        self._body = bytearray()
        # Bytes left of the body or the chunk; None if the body ends with the connection.
        self._left: int | None = None
        self._at_end: Literal["", "size", "chunk", "trailer"] = ""

    @property
    def has_begun(self) -> bool:
        return self._status is not None or self._early != b"" or self._passed_bytes > 0

    def feed(self, data: bytes) -> Answer | None:
        """The answer, when it is complete. Raises `Unusable`, `TooLong`."""
        if self._status is None:
            rest = self._read_heads(data)
            if rest is None:
                return None
            data = rest
        if self._at_end:
            return self._read_chunks(data)
        if self._left is None:
            return self._add(data)
        if len(data) > self._left:
            raise Unusable("more bytes came than its Content-Length")
        if len(data) == self._left and not self._body and self._left <= self._most_here:
            return self._answer(data)
        self._left -= len(data)
        return self._add(data) or (None if self._left else self._answer(bytes(self._body)))

    def end(self) -> Answer | None:
        """Called when the connection ends, which completes an answer without a length. None if the
        answer was cut off.
        """
        if self._status is None or self._at_end or self._left is not None:
            return None
        return self._answer(bytes(self._body))

    def _read_heads(self, data: bytes) -> bytes | None:
        """Read the head, and skip interim answers (1xx) before it. Returns the bytes after it, or
        None if it is not complete yet.
        """
        while self._status is None:
            if self._early:
                data = self._early + data
            end = data.find(_END)
            if end < 0 or end > HEAD_BYTES:
                self._check_beginning(data)
                self._early = data
                return None
            self._early = b""
            self._passed_bytes += end + len(_END)
            self._read_head(data[:end])
            data = data[end + len(_END) :]
        return data

    def _check_beginning(self, data: bytes) -> None:
        """Refuse an incomplete head that is too long or cannot become HTTP/1.1."""
        if len(data) + self._passed_bytes > HEAD_BYTES:
            raise Unusable(f"its head has more than {HEAD_BYTES} bytes")
        if not data.startswith(b"HTTP/1.") and not b"HTTP/1.".startswith(data):
            raise Unusable("what came is not HTTP/1.1")

    def _read_head(self, head: bytes) -> None:
        said = _STATUS.match(head)
        if said is None or self._passed_bytes > HEAD_BYTES:
            raise Unusable("what came is not a head of HTTP/1.1")
        status = int(said[2])
        if status < OK and status != SWITCHING:
            return
        self._check_lines(head)
        found: dict[bytes, bytes] = {}
        for raw_name, raw_value in self._fields.findall(head):
            name, value = raw_name.lower(), raw_value.strip(b" \t")
            before = found.get(name)
            found[name] = value if before in (None, value) else b"%b\n%b" % (before, value)
        self._status, self._found = status, found
        self._read_framing(is_old=said[1] == b"0")

    def _check_lines(self, head: bytes) -> None:
        # Bare line feeds and folded lines: servers and proxies disagree about where they end.
        if head.count(b"\n") != head.count(b"\r\n") or b"\r\n " in head or b"\r\n\t" in head:
            raise Unusable("its head has broken lines")

    def _read_framing(self, *, is_old: bool) -> None:
        """Where the body ends, and whether another answer may follow."""
        found, status = self._found, self._status or 0
        if status != OK:
            self._most_here = self._most_complaint_bytes
        # Many servers (all on uvicorn, if the model raised) close the connection after an error
        # without announcing it, and the next request on it would be lost.
        self.keeps = not is_old and status < 400 and status != SWITCHING
        connection = found.get(b"connection")
        if connection is not None and b"close" in connection.lower():
            self.keeps = False
        length, coded = found.get(b"content-length"), found.get(b"transfer-encoding")
        if length is not None and not _LENGTH.fullmatch(length):
            raise Unusable("its Content-Length is not one number")
        if status in BODILESS:
            self._left = 0
        elif coded is not None:
            if coded.lower() != b"chunked":
                raise Unusable("its Transfer-Encoding is not chunked")
            self._at_end, self._left = "size", 0
            # With a Content-Length besides, the chunks decide where the answer ends, and the
            # connection is not used again (RFC 9112, 6.3: a sign of request smuggling).
            self.keeps = self.keeps and length is None
        elif length is not None:
            self._left = int(length)
            if status == OK and self._left > self._most_bytes and self._believes_length:
                raise TooLong
        else:
            self.keeps = False

    def _add(self, data: bytes) -> Answer | None:
        """Add to the body. Returns an answer only if an error answer has reached its bound."""
        self._body += data
        if len(self._body) <= self._most_here:
            return None
        if self._status == OK:
            raise TooLong
        self.keeps = False
        return self._answer(bytes(self._body[: self._most_here]))

    def _read_chunks(self, data: bytes) -> Answer | None:
        data = self._early + data if self._early else data
        self._early, at = b"", 0
        while True:
            if self._left:
                piece = data[at : at + self._left]
                at += len(piece)
                self._left -= len(piece)
                if cut := self._add(piece):
                    return cut
                if self._left:
                    return None
            end = data.find(b"\r\n", at)
            line = data[at:] if end < 0 else data[at:end]
            if len(line) > LINE_BYTES:
                raise Unusable(f"a line between its chunks has more than {LINE_BYTES} bytes")
            if end < 0:
                self._early = line
                return None
            at = end + 2
            if self._is_last(line):
                if at < len(data):
                    raise Unusable("more bytes came than its chunks")
                return self._answer(bytes(self._body))

    def _is_last(self, line: bytes) -> bool:
        """Read a line between chunks: a size, the end of a chunk, or a trailer. True if it ends
        the answer.
        """
        if self._at_end == "trailer":
            self._passed_bytes += len(line)
            if self._passed_bytes > HEAD_BYTES:
                raise Unusable(f"its trailers have more than {HEAD_BYTES} bytes")
            return not line
        if self._at_end == "chunk":
            if line:
                raise Unusable("a chunk is longer than its size")
            self._at_end = "size"
            return False
        size = _CHUNK.fullmatch(line)
        if size is None:
            raise Unusable("the size of a chunk is not a number")
        self._left = int(size[1], 16)
        self._at_end = "chunk" if self._left else "trailer"
        return False

    def _answer(self, body: bytes) -> Answer:
        return Answer(self._status or 0, self._found, body)
