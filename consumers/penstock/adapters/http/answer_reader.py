"""Reads one HTTP/1.1 answer while its bytes arrive.

1. The usual answer, a plain 200 that comes whole in one piece, with its length, is taken apart
here, because llhttp would call a function for each of its fifteen fields.
2. Every other answer is parsed by the library llhttp.

Rule: an answer that contradicts itself, or has more bytes than it announced, is refused. No more
bytes are held than the caller's bounds allow.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, NamedTuple

import httptools

# All heads and the trailer of an answer may have this many bytes together. The same limit holds for
# the bytes between two pieces of the body.
HEAD_BYTES: Final = 64 * 1024
# The first line of each head counts as this many bytes towards `HEAD_BYTES`.
_LINE_BYTES: Final = 20
# A server chooses the pieces of a body. Smaller ones than this are put together at once: alone each
# would take some fifty bytes of memory more.
_SMALL_BYTES: Final = 1024
# If an answer is not HTTP, the error shows this many of its bytes.
_SHOWN_BYTES: Final = 200

SWITCHING: Final = 101
OK: Final = 200
# From this status on, an answer is not what was asked for.
REDIRECT: Final = 300

# A head that both ways read alike: only strict lines, with a status that has a body.
_USUAL: Final = re.compile(
    rb"HTTP/1\.1 200 [\t\x20-\x7e\x80-\xff]*+"
    rb"(?:\r\n[!#$%&'*+\-.^_`|~0-9A-Za-z]++:[\t\x20-\x7e\x80-\xff]*+)*+\r\n\r\n"
)
_OF_CONNECTION: Final = (b"connection", b"proxy-connection")
_JSON: Final = b"application/json"

Fields = frozenset[bytes]


class Unusable(Exception):
    """The bytes are not an HTTP/1.1 answer, or the answer contradicts itself."""


class TooLong(Exception):
    """The answer is longer than the caller's bound."""


class TooManyValues(TooLong):
    """The JSON of the answer has more values than the caller's bound."""


class Answer(NamedTuple):
    """A whole answer; of an error answer, maybe only the beginning. Names in `fields` are in lower
    case. If a field came several times, its values are joined by line feeds, which no value has.
    """

    status: int
    fields: Mapping[bytes, bytes]
    body: bytes


def wanting(*names: str) -> Fields:
    """Returns the names of the fields that a caller needs, and of those that tell where an answer
    ends.
    """
    return frozenset(
        {b"content-length", b"transfer-encoding", *(n.lower().encode() for n in names)}
    )


@dataclass(slots=True, eq=False)
class AnswerReader:
    """`most_bytes`: how many bytes the body of a 2xx may have; if its Content-Length says more, it
    fails before its body is read. `most_complaint_bytes`: how many bytes of every other body are
    read. `most_values`: a 2xx that says to be JSON fails as soon as more commas have come.
    `trusts_refusals`: False for a server that may close a connection behind an error answer
    without announcing it. `keeps`: after an answer, True if the connection may be used again.

    llhttp calls the `on_...` methods within `feed`, and `feed` raises the errors of these methods.
    """

    fields: Fields
    most_bytes: int
    most_complaint_bytes: int
    most_values: int | None = field(default=None, kw_only=True)
    trusts_refusals: bool = field(default=False, kw_only=True)
    has_begun: bool = field(default=False, init=False)
    keeps: bool = field(default=False, init=False)
    _status: int = field(default=0, init=False)  # 0 until the head is complete
    _fields: dict[bytes, bytes] = field(default_factory=dict, init=False)
    _body: list[bytes | bytearray] = field(default_factory=list, init=False)
    _left_bytes: int = field(default=0, init=False)  # how much of the body may still be read
    # so many commas may still come; None: they are not counted
    _left_commas: int | None = field(default=None, init=False)
    # bytes received of all heads and of the trailer
    _head_bytes: int = field(default=0, init=False)
    # bytes received since the last piece of the body
    _silent_bytes: int = field(default=0, init=False)
    _ends_with_connection: bool = field(default=False, init=False)
    _is_complete: bool = field(default=False, init=False)
    _is_cut: bool = field(default=False, init=False)
    _parser: httptools.HttpResponseParser | None = field(default=None, init=False)

    def feed(self, data: bytes) -> Answer | None:
        """Take the next bytes. Returns the answer if it is complete, else None. Raises `Unusable`,
        `TooLong`.
        """
        if not self.has_begun and data:
            self.has_begun = True
            if (whole := self._usual(data)) is not None:
                return whole
            self._parser = httptools.HttpResponseParser(self)
        self._silent_bytes += len(data)
        try:
            if self._parser is not None:
                self._parser.feed_data(data)
        except (httptools.HttpParserError, httptools.HttpParserUpgrade) as error:
            # The bytes after a 101 are not HTTP. After an error answer that was cut, no more bytes
            # are wanted. So in both cases an error of the parser does not matter.
            if not self._is_cut and self._status != SWITCHING:
                # The parser and this reader hold each other, and would keep the body until the
                # garbage collector comes.
                self._parser = None
                self._body.clear()
                raise _told(error, data) from None
        if self._is_complete or self._is_cut or self._status == SWITCHING:
            return self._answer()
        if self._silent_bytes > HEAD_BYTES:
            raise Unusable(f"its head has more than {HEAD_BYTES} bytes")
        return None

    def _usual(self, data: bytes) -> Answer | None:
        """None: llhttp must parse these bytes."""
        head = _USUAL.match(data)
        if head is None or head.end() > HEAD_BYTES:
            return None
        fields: dict[bytes, bytes] = {}
        for line in head[0].split(b"\r\n")[1:-2]:
            name, _, value = line.partition(b":")
            name = name.lower()
            if name in self.fields:
                if name in fields:
                    return None
                fields[name] = value.strip(b" \t")
            elif name in _OF_CONNECTION and value.strip(b" \t").lower() != b"keep-alive":
                return None
        body = data[head.end() :]
        length = fields.get(b"content-length")
        if length != b"%d" % len(body) or b"transfer-encoding" in fields:
            return None
        if len(body) > self.most_bytes:
            return None
        self.keeps = True
        return Answer(OK, fields, body)

    def end(self) -> Answer | None:
        """Call this when the connection ends. If the answer has no length, the end of the
        connection completes it: the answer is returned. If the answer was cut off, the result is
        None.
        """
        return self._answer() if self._ends_with_connection else None

    def on_message_begin(self) -> None:
        if self._is_complete:
            raise Unusable("more bytes came than its length")
        self._count(_LINE_BYTES)

    def on_header(self, name: bytes, value: bytes) -> None:
        self._count(len(name) + len(value))
        name = name.lower()
        if name in self.fields and not self._status:
            value = value.strip(b" \t")
            before = self._fields.get(name)
            self._fields[name] = value if before in (None, value) else b"%b\n%b" % (before, value)

    def on_headers_complete(self) -> None:
        parser = self._parser
        status = parser.get_status_code() if parser is not None else 0
        if status < OK and status != SWITCHING:  # an interim answer: the final one follows
            self._fields.clear()
            return
        length, coded = self._fields.get(b"content-length"), self._fields.get(b"transfer-encoding")
        if coded is not None and coded.lower() != b"chunked":
            raise Unusable("its Transfer-Encoding is not chunked")
        self._status = status
        self._left_bytes = self.most_bytes if status < REDIRECT else self.most_complaint_bytes
        if status < REDIRECT:
            if int(length or 0) > self.most_bytes:
                raise TooLong
            kind, most_values = self._fields.get(b"content-type", b""), self.most_values
            # In fewer bytes there are no more values.
            if most_values is not None and int(length or self.most_bytes) > most_values:
                self._left_commas = most_values if kind.startswith(_JSON) else None
        self._ends_with_connection = length is None and coded is None
        # Many servers close the connection after an error answer without announcing this; all
        # servers on uvicorn do so if the model raised. The next request on that connection would be
        # lost.
        is_kept = status < 400 or self.trusts_refusals
        if is_kept and status != SWITCHING and parser is not None:
            self.keeps = parser.should_keep_alive()

    def on_body(self, piece: bytes) -> None:
        self._silent_bytes = 0
        if self._is_cut:
            return
        self._left_bytes -= len(piece)
        if self._left_commas is not None:
            self._left_commas -= piece.count(b",")
            if self._left_commas < 0:
                raise TooManyValues
        if self._left_bytes >= 0:
            self._keep(piece)
        elif self._status < REDIRECT:
            raise TooLong
        else:
            self._body.append(piece[: self._left_bytes])
            self._is_cut, self.keeps = True, False

    def _keep(self, piece: bytes) -> None:
        if len(piece) >= _SMALL_BYTES:
            self._body.append(piece)
        elif self._body and isinstance(last := self._body[-1], bytearray):
            last += piece
        else:
            self._body.append(bytearray(piece))

    def on_message_complete(self) -> None:
        self._is_complete = self._status > 0

    def _count(self, nbytes: int) -> None:
        self._head_bytes += nbytes
        if self._head_bytes > HEAD_BYTES:
            raise Unusable(f"its head has more than {HEAD_BYTES} bytes")

    def _answer(self) -> Answer:
        # This reader and the parser refer to each other. This circle is cut here, so that both are
        # freed at once instead of by the garbage collector.
        self._parser = None
        return Answer(self._status, self._fields, b"".join(self._body))


def _told(error: Exception, data: bytes) -> Exception:
    """Returns the error that one of our `on_...` methods raised; if none raised, an error with
    llhttp's words about the bytes.
    """
    raised = error.__context__
    if isinstance(raised, Unusable | TooLong):
        return raised
    return Unusable(f"{error}: {data[:_SHOWN_BYTES]!r}")
