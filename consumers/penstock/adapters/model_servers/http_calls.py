"""Calls a model over HTTP, whatever its protocol: connections, limits, errors, health.

Rule: every failure of a connection becomes one of `penstock.errors` here. If the server refuses the
token, a request is sent once more, with a fresh one (access.py). Otherwise it is sent once, with
two exceptions, then over a new connection. First, an idle connection was closed before a byte of
the answer came: the server had only closed an idle one, which says nothing of its health or the
rows. Second, a connection used before is silent for much longer than this server took lately: it
was forgotten on its way; the new one has the rest of the time, without this limit. Requests forbid
packed answers; one that is packed all the same is unpacked if zlib can. The caller limits how many
requests are open.
"""

import asyncio
import codecs
import re
import ssl
import struct
import zlib
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Final, NamedTuple

from yarl import URL

from penstock import config
from penstock.adapters.http.answer_reader import (
    OK,
    REDIRECT,
    Answer,
    AnswerReader,
    TooLong,
    TooManyValues,
    Unusable,
    wanting,
)
from penstock.adapters.http.certificates import trusting, untrusted
from penstock.adapters.http.connections import SPREAD, AnswerRoom, Connection, Host
from penstock.adapters.model_servers.access import ServerAccess
from penstock.adapters.model_servers.refusals import (
    MEND,
    MOST_VALUES,
    TOO_LARGE,
    excerpt,
    too_many_bytes,
    too_many_values,
)
from penstock.errors import HungUp, NoAnswer, PenstockError, Poison, Unreachable, usage
from penstock.ports import outgoing_traceparent

# A server that accepts no connection within this time counts as unavailable.
CONNECT_S: Final = 5.0
# Servers close idle connections after two seconds (gunicorn), five (uvicorn) or more. So if a
# connection was idle for less than `RESTED_S` and then breaks during a request, the request is the
# cause. Such a request is not sent again.
RESTED_S: Final = 1.0
# An answer may have at most this many bytes: ten times TorchServe's default max_response_size.
MOST_ANSWER_BYTES: Final = 64 << 20
# All large answers that are read at the same time may take this share of `limits.buffer_bytes`.
_SHARE_OF_BUFFER: Final = 8
# How many bytes of an error answer are read: more than a person reads.
MOST_COMPLAINT_BYTES: Final = 1 << 16

# How many bytes of a body of the Open Inference Protocol are JSON, in front of binary tensors.
JSON_LENGTH: Final = "Inference-Header-Content-Length"
# For each header that is read from answers: its name in lower case, and its name in
# `Reply.headers`. Of a 200 only the length matters.
_HEADERS: Final = {
    name.lower().encode(): name for name in (JSON_LENGTH, "Retry-After", "Date", "Location")
}
_LENGTH_FIELD: Final = JSON_LENGTH.lower().encode()
_OF_OK: Final = {_LENGTH_FIELD: JSON_LENGTH}
_FIELDS: Final = wanting(*_HEADERS.values(), "Content-Encoding", "Content-Type")
# The codings that zlib unpacks, with the forms to try: gzip or zlib by its head, then the deflate
# without a head that some servers send (RFC 9110, 8.4.1.2).
_ZLIB_FORMS: Final = {
    b"gzip": (zlib.MAX_WBITS | 32,),
    b"x-gzip": (zlib.MAX_WBITS | 32,),
    b"deflate": (zlib.MAX_WBITS | 32, -zlib.MAX_WBITS),
}
# JSON is UTF-8. If a server says another charset, its answer is translated, unless it may hold
# binary tensors.
_CHARSET: Final = re.compile(rb"charset=\"?([\w.:-]+)", re.IGNORECASE)
_BINARY: Final = b"application/octet-stream"
_UTF8: Final = (b"utf-8", b"utf8", b"us-ascii")
# Python knows these beside charsets, and takes quadratic time for them.
_NAMES_OF_HOSTS: Final = ("idna", "punycode")
# How many bytes of a request's body an error shows, so that a person finds the row at fault.
SHOWN_BYTES: Final = 200
SHOWN_BINARY: Final = 32
# How long a question without rows may take. This leaves a server some time to load a model:
# TorchServe queues the question meanwhile.
LOOK_S: Final = 5.0
# The first limit for the size of a request. It is far above what `window.max_bytes` allows for the
# rows. A server with a smaller limit answers 413.
MOST_REQUEST_BYTES: Final = 64 << 20
# After a 413 the limit falls to this share of the refused request's size. Two or three such steps
# reach most limits.
LEARNED_SHARE: Final = 0.75
LEAST_LIMIT_BYTES: Final = 1 << 16


class AnswerBounds(NamedTuple):
    """`row_bytes`: how many bytes of an answer each row may have. `together_bytes`: how many bytes
    of large answers one server's connections hold.
    """

    row_bytes: int = config.ANSWER_BYTES_PER_ROW
    together_bytes: int = config.BUFFER_BYTES // _SHARE_OF_BUFFER

    @classmethod
    def of(cls, limits: config.Limits) -> "AnswerBounds":
        return cls(limits.answer_bytes_per_row, limits.buffer_bytes // _SHARE_OF_BUFFER)


USUAL_BOUNDS: Final = AnswerBounds()


class Request(NamedTuple):
    """A body and the headers that say what it is."""

    body: bytes
    headers: Mapping[str, str]

    def shown(self, rows: int) -> str:
        """Shows a person what was sent: how many rows, in which form, and how the body begins."""
        form = self.headers.get("Content-Type", "no Content-Type")
        size = f"{rows} row{'s' * (rows != 1)} as {form}, {len(self.body)} bytes"
        return f"{size}: {self._begin(form)}"

    def _begin(self, form: str) -> str:
        """The body's beginning: numbers of a matrix, text, or else bytes in hexadecimal digits."""
        begin = self.body[:SHOWN_BYTES]
        if form == "application/octet-stream" and "X-Rows" in self.headers:
            numbers = struct.unpack_from(f"<{len(begin) // 4}f", begin)
            return "float32 " + " ".join(f"{number:.6g}" for number in numbers)
        text = begin[: int(self.headers.get(JSON_LENGTH, len(begin)))]
        try:
            codecs.getincrementaldecoder("utf-8")().decode(text)
        except UnicodeDecodeError:
            return begin[:SHOWN_BINARY].hex(" ")
        return excerpt(text) if b"\0" not in text else begin[:SHOWN_BINARY].hex(" ")


class Reply(NamedTuple):
    """An answer, read whole."""

    status: int
    headers: Mapping[str, str]
    body: bytes

    @property
    def is_answer(self) -> bool:
        """True if rows may be answered here: by a 200, or by another 2xx with a body."""
        return self.status == OK or (OK < self.status < REDIRECT and self.body != b"")


_NOTHING: Final = Request(b"", {})
# A function that tells whether a reply has a certain meaning.
Meaning = Callable[[Reply], bool]


class NotConnected(Exception):
    """No connection could be made, so nothing was sent."""


class Packed(Exception):
    """The answer is packed in a way that cannot be unpacked here; the text names it."""


class Exchange:
    """Any number of tasks may call `ask` at the same time."""

    def __init__(
        self,
        name: str,
        port: int,
        secure: ssl.SSLContext | None,
        *,
        rested_s: float = RESTED_S,
        spread: int = SPREAD,
        together_bytes: int = MOST_ANSWER_BYTES,
    ) -> None:
        self._host = Host(name, port, secure, spread, room=AnswerRoom(together_bytes))
        self._rested_s = rested_s

    async def ask(
        self, head: bytes, body: bytes, timeout_s: float, most_bytes: int = MOST_ANSWER_BYTES
    ) -> Answer:
        """`most_bytes`: how many bytes the answer may have. Raises `NotConnected`, the errors of
        `Connection.ask`, and `Fatal` if the server's certificate is not trusted.
        """
        connection = self._host.take()
        if connection is None:
            return await self._ask_anew(head, body, timeout_s, most_bytes)
        reader, heard_s, silence_s = _reader(most_bytes), connection.heard_s, self._host.silence_s
        try:
            answer = await connection.ask(
                head, reader, body=body, most_s=timeout_s, silence_s=silence_s
            )
            self._host.give(connection)
            return answer
        except (ConnectionError, TimeoutError) as lost:
            self._host.condemn(connection)
            left_s = timeout_s - (connection.loop.time() - connection.asked_s)
            is_rested = connection.asked_s - heard_s >= self._rested_s
            is_silent = isinstance(lost, TimeoutError)
            if left_s <= 0 or not (is_silent or (is_rested and not reader.has_begun)):
                raise
            try:
                return await self._ask_anew(head, body, left_s, most_bytes)
            except NotConnected as away:
                # The server may have received the first request before the connection broke. So the
                # error of the first request is raised: `NotConnected` would promise that nothing
                # was sent.
                if is_silent:
                    raise ConnectionResetError(f"it fell silent, and now {away}") from None
                raise lost from None

    async def aclose(self) -> None:
        """Returns when the sockets are closed."""
        await self._host.aclose()

    async def _ask_anew(
        self, head: bytes, body: bytes, timeout_s: float, most_bytes: int
    ) -> Answer:
        loop = asyncio.get_running_loop()
        began_s = loop.time()
        connection = await self._connect(min(CONNECT_S, timeout_s))
        left_s = timeout_s - (loop.time() - began_s)
        answer = await connection.ask(head, _reader(most_bytes), body=body, most_s=left_s)
        self._host.give(connection)
        return answer

    async def _connect(self, most_s: float) -> Connection:
        try:
            return await self._host.connect(most_s)
        except TimeoutError:
            raise NotConnected(f"no connection within {most_s:g} s") from None
        except OSError as error:
            if untrusting := untrusted(str(error), "model.ssl_cafile"):
                raise untrusting from None
            raise NotConnected(f"{type(error).__name__}: {error}") from None


def _reader(most_bytes: int) -> AnswerReader:
    return AnswerReader(_FIELDS, most_bytes, MOST_COMPLAINT_BYTES, most_values=MOST_VALUES)


def rest_of_head(method: str, request: Request) -> bytes:
    lines = [f"{name}: {value}\r\n" for name, value in request.headers.items()]
    if (traceparent := outgoing_traceparent.get()) is not None:
        lines.append(f"traceparent: {traceparent}\r\n")
    if request.body or method != "GET":
        lines.append(f"Content-Length: {len(request.body)}\r\n")
    lines.append("\r\n")
    return "".join(lines).encode()


def reply_of(answer: Answer, most_bytes: int = MOST_ANSWER_BYTES) -> Reply:
    """Make a `Reply` from the answer. If a header came twice, its first value counts. `most_bytes`:
    how many bytes the body may unpack to. Raises `Packed`, `Unusable`, `TooLong` if the body is
    packed and cannot be unpacked.
    """
    status, fields, body = answer
    if b"content-encoding" in fields:
        body = _unpacked(status, fields[b"content-encoding"].lower(), body, most_bytes)
    kind = fields.get(b"content-type", b"")
    if b"=" in kind and not kind.endswith(b"charset=utf-8"):  # most answers: no search in them
        body = body if _LENGTH_FIELD in fields else _as_utf8(body, kind)
    headers = {
        shown: fields[name].partition(b"\n")[0].decode("latin-1")
        for name, shown in (_OF_OK if status == OK else _HEADERS).items()
        if name in fields
    }
    return Reply(status, headers, body)


def _unpacked(status: int, coding: bytes, packed: bytes, most_bytes: int) -> bytes:
    if coding in (b"", b"identity"):
        return packed
    is_wanted = status < REDIRECT
    if not is_wanted:
        most_bytes = MOST_COMPLAINT_BYTES
    for form in _ZLIB_FORMS.get(coding, ()):
        try:
            body, is_whole = _inflated(packed, form, most_bytes)
        except zlib.error:
            continue
        if is_wanted and len(body) > most_bytes:
            raise TooLong
        if is_wanted and not is_whole:
            raise Unusable(f"its body breaks off in {coding.decode('latin-1')}")
        return body
    if is_wanted and coding in _ZLIB_FORMS:
        raise Unusable(f"its body is not {coding.decode('latin-1')}, as its head says")
    if is_wanted:
        raise Packed(coding.decode("latin-1"))
    return b"(packed as %b)" % coding


def _inflated(packed: bytes, form: int, most_bytes: int) -> tuple[bytes, bool]:
    """Unpack a little more than `most_bytes` at most. The second result: True if the end came."""
    pieces: list[bytes] = []
    left_bytes, is_whole = most_bytes + 1, False
    while packed and left_bytes > 0:
        unpacker = zlib.decompressobj(form)
        pieces.append(unpacker.decompress(packed, left_bytes))
        left_bytes -= len(pieces[-1])
        packed, is_whole = unpacker.unused_data, unpacker.eof
    return b"".join(pieces), is_whole


def _as_utf8(body: bytes, kind: bytes) -> bytes:
    match = _CHARSET.search(kind)
    if match is None or match[1].lower() in _UTF8 or kind.lower().startswith(_BINARY):
        return body
    try:
        charset = codecs.lookup(match[1].decode()).name
        # `codecs.decode` would also unpack what says that its charset is bz2.
        return body if charset in _NAMES_OF_HOSTS else body.decode(charset).encode()
    except (LookupError, ValueError):
        return body  # whoever reads it says what is wrong with it


def is_denied(reply: Reply) -> bool:
    """True if the server, or a gateway before it, refused the token."""
    return reply.status in (401, 403)


def too_large(reply: Reply) -> bool:
    return reply.status == TOO_LARGE


class SizeLimit:
    """The most bytes of a request with several rows. The limit falls whenever the server refuses
    such a request because it is too large. A request with a single row is always sent, because the
    server may take it.
    """

    def __init__(self, most_bytes: int) -> None:
        self.most_bytes = most_bytes

    def check(self, rows: int, sent_bytes: int) -> None:
        """Raises `Poison` if the request must not be sent."""
        if sent_bytes > self.most_bytes and rows > 1:
            raise Poison("too_large", f"{rows} rows are {sent_bytes} bytes")

    def refused(self, rows: int, sent_bytes: int) -> None:
        if rows > 1:
            learned = int(sent_bytes * LEARNED_SHARE)
            self.most_bytes = max(LEAST_LIMIT_BYTES, min(self.most_bytes, learned))


class ModelHttp:
    """`post` sends rows; `look` asks the server about itself. The function `is_denied` recognises
    the answer that refuses an expired token. The function `is_too_large` recognises the answer that
    refuses a request because it is too large.
    """

    def __init__(
        self,
        settings: config.Model,
        bounds: AnswerBounds,
        *,
        most_bytes: int = MOST_REQUEST_BYTES,
        is_denied: Meaning = is_denied,
        is_too_large: Meaning = too_large,
    ) -> None:
        self.access = ServerAccess(settings)
        self.protocol = settings.protocol
        base = self.access.base
        self._timeout_s = settings.timeout_ms / 1000
        self._answer_bytes_per_row = bounds.row_bytes
        self._limit = SizeLimit(most_bytes)
        self._is_denied = is_denied
        self._is_too_large = is_too_large
        is_secure = base.scheme == "https"
        self._exchange = Exchange(
            base.raw_host or "",
            base.port or 0,
            trusting(settings.ssl_cafile, "model.ssl_cafile") if is_secure else None,
            together_bytes=bounds.together_bytes,
        )

    async def post(
        self,
        url: URL,
        request: Request,
        rows: int,
        *,
        method: str = "POST",
        within_s: float | None = None,
    ) -> Reply:
        """Returns the answer, whatever its status. `within_s`: if it is shorter than
        `model.timeout_ms`. Raises `Poison` if the rows or the answer are too large, and
        `Unreachable` if no answer comes.
        """
        sent_bytes = len(request.body)
        self._limit.check(rows, sent_bytes)
        timeout_s = self._timeout_s if within_s is None else min(within_s, self._timeout_s)
        most_bytes = min(MOST_ANSWER_BYTES, max(1, rows) * self._answer_bytes_per_row)
        is_again = False
        while True:
            head = self.access.start_of(method, url) + rest_of_head(method, request)
            try:
                answer = await self._exchange.ask(head, request.body, timeout_s, most_bytes)
                reply = reply_of(answer, most_bytes)
            except (NotConnected, Packed, TooLong, Unusable, OSError) as error:
                raise self._failure(error, url, request, rows, timeout_s, most_bytes) from None
            if is_again or not self._is_denied(reply) or not await self.access.renewed():
                break
            is_again = True
        if self._is_too_large(reply):
            self._limit.refused(rows, sent_bytes)
        return reply if reply.is_answer else self._told(url, reply)

    async def look(self, url: URL, method: str = "GET", request: Request = _NOTHING) -> Reply:
        """Ask a question without rows, within `LOOK_S` (or a shorter `model.timeout_ms`)."""
        return await self.post(url, request, 0, method=method, within_s=LOOK_S)

    async def aclose(self) -> None:
        await self._exchange.aclose()

    def _told(self, url: URL, reply: Reply) -> Reply:
        """The refusal as errors may show it: a redirect's target as a whole address, no secrets."""
        headers = dict(reply.headers)
        if (location := headers.get("Location")) is not None:
            with suppress(ValueError):  # if it is no URL, a person may still know what is meant
                location = str(url.join(URL(location)))
            headers["Location"] = self.access.masked_text(config.shown_url(location))
        return reply._replace(headers=headers, body=self.access.masked(reply.body))

    def _failure(
        self,
        error: Exception,
        url: URL,
        request: Request,
        rows: int,
        timeout_s: float,
        most_bytes: int,
    ) -> PenstockError:
        """What it means that no answer came, or none that can be read."""
        shown = config.shown_url(str(url))
        if isinstance(error, NotConnected):
            return Unreachable(f"{shown}: {error}", mend=MEND)
        if isinstance(error, Packed):
            return usage(
                f"{shown} packs its answers (Content-Encoding: {error}), "
                "which the requests do not allow; switch that off at the server, or at the proxy "
                "before it"
            )
        if isinstance(error, TooManyValues):
            return too_many_values()
        if isinstance(error, TooLong):
            return too_many_bytes(most_bytes)
        if isinstance(error, TimeoutError):
            lost = NoAnswer(f"{shown}: no answer within {timeout_s:g} s (model.timeout_ms)")
        else:
            reason = f"{type(error).__name__}: {self.access.masked_text(str(error))}"
            # The server may have hung up because the request is too large for it, or because the
            # server died. After an oversize request the caller tries smaller requests first.
            is_oversize = len(request.body) > self._limit.most_bytes
            if is_oversize:
                reason = f"{reason} under a request of {len(request.body)} bytes"
            lost = HungUp(f"{shown}: {reason}", is_oversize=is_oversize)
        lost.sent = request.shown(rows)
        return lost


class HttpModel:
    """The part of the port `Model` that all models over HTTP share."""

    # The most rows of one request. None: the server has not told a limit.
    most_rows: int | None = None

    def __init__(self, settings: config.Model, http: ModelHttp) -> None:
        self._http = http
        self._version = settings.version

    @property
    def version(self) -> str | None:
        return self._version

    async def ready(self) -> bool:
        try:
            await self.check()
        except PenstockError:
            return False
        return True

    async def check(self) -> None:
        """Returns if the model is there; otherwise raises an error that tells why the model is not
        there.
        """
        raise NotImplementedError

    async def aclose(self) -> None:
        await self._http.aclose()
