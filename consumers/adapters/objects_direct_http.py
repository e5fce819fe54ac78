"""One GET at a time over a connection of our own: the least of HTTP/1.1 that a small object needs.

Rule: only a plain 200 with a length up to `WHOLE_BYTES` is an answer; of anything else it is only
known that it came. Owner: the direct client, which lends a connection to one task at a time.
"""

import asyncio
import re
from collections.abc import AsyncIterator
from typing import Final, NamedTuple, cast

from consumers.adapters.objects_common import WHOLE_BYTES, pin_of
from consumers.adapters.objects_transfer import SLOW_SILENCES

HEAD_BYTES: Final = 64 * 1024
# Stores close idle connections after some ten seconds at the earliest; a stale one costs a retry.
IDLE_S: Final = 8.0

_CODED: Final = frozenset({b"content-encoding", b"transfer-encoding"})
_LENGTH: Final = re.compile(rb"[0-9]{1,18}")
# Only what is needed: an answer has a dozen more, passed over by their first letters.
_FIELDS: Final = re.compile(
    rb"\r\n([cC](?i:ontent-length|onnection|ontent-encoding)|[eE](?i:tag)|"
    rb"[xX](?i:-amz-version-id)|[tT](?i:ransfer-encoding)):([^\r\n]*+)(?=\r|$)"
)


class Answer(NamedTuple):
    """A whole object."""

    data: bytes
    etag: str | None
    version_id: str | None


class WholeBody:
    """An object that is here already: one chunk, or none if it is empty."""

    __slots__ = ("_answer",)

    def __init__(self, answer: Answer) -> None:
        self._answer = answer

    @property
    def size(self) -> int:
        return len(self._answer.data)

    @property
    def etag(self) -> str | None:
        return self._answer.etag

    @property
    def version_id(self) -> str | None:
        return self._answer.version_id

    async def __aiter__(self) -> AsyncIterator[bytes]:
        if self._answer.data:
            yield self._answer.data

    async def aclose(self) -> None:
        return


class Connection(asyncio.Protocol):
    """One question at a time. Owner: the task that took it, until it is given back. It keeps its
    loop: to ask for the running one costs Python 3.11 a getpid each time.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop, read_timeout_s: float) -> None:
        self.is_reusable = False
        self._loop = loop
        self._used_s = 0.0
        self._transport: asyncio.Transport | None = None
        self._waiter: asyncio.Future[Answer | None] | None = None
        self._buffer = bytearray()
        self._head: _Head | None = None
        self._read_timeout_s = read_timeout_s
        self._heard_s = 0.0
        self._slow_at_s = 0.0
        self._watch: asyncio.TimerHandle | None = None

    async def ask(self, request: bytes) -> Answer | None:
        """The whole object, or None if the answer is anything else.
        Raises `OSError`, `TimeoutError`.
        """
        loop = self._loop
        if self._transport is None or self._transport.is_closing():
            raise ConnectionResetError
        self._waiter = loop.create_future()
        self._buffer, self._head, self.is_reusable = bytearray(), None, False
        self._transport.write(request)
        self._heard_s = loop.time()
        self._slow_at_s = self._heard_s + SLOW_SILENCES * self._read_timeout_s
        if self._watch is None:
            self._watch = loop.call_at(self._silent_at_s, self._check_silence)
        try:
            return await self._waiter
        finally:
            self._used_s = loop.time()
            if not self.is_reusable:
                self.close()

    @property
    def is_fresh(self) -> bool:
        """May another question be asked?"""
        return self.is_reusable and self._loop.time() - self._used_s < IDLE_S

    @property
    def _silent_at_s(self) -> float:
        """When it is silent for too long. An object that comes so slowly that its progress has to
        be seen is the client's behind.
        """
        return min(self._heard_s + self._read_timeout_s, self._slow_at_s)

    def _check_silence(self) -> None:
        """One timer a connection, not one a question: set again while there is a question."""
        loop = self._loop
        self._watch = None
        if self._waiter is not None and not self._waiter.done():
            if loop.time() >= self._silent_at_s:
                self._fail(TimeoutError())
            else:
                self._watch = loop.call_at(self._silent_at_s, self._check_silence)

    def close(self) -> None:
        self.is_reusable = False
        if self._watch is not None:
            self._watch.cancel()
            self._watch = None
        if self._transport is not None:
            self._transport.abort()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)

    def connection_lost(self, exc: Exception | None) -> None:
        self.is_reusable = False
        self._fail(exc or ConnectionResetError())

    def data_received(self, data: bytes) -> None:
        self._buffer += data
        self._heard_s = self._loop.time()
        if self._head is None:
            end = self._buffer.find(b"\r\n\r\n")
            if end < 0:
                if len(self._buffer) > HEAD_BYTES:
                    self._done(None)
                return
            self._head = _Head.parse(bytes(self._buffer[:end]))
            del self._buffer[: end + 4]
        head = self._head
        if head is None or head.length > WHOLE_BYTES:
            self._done(None)
        elif len(self._buffer) >= head.length:
            body, self._buffer = self._buffer, bytearray()
            self.is_reusable = head.keep_alive and len(body) == head.length
            del body[head.length :]
            self._done(Answer(bytes(body), head.etag, head.version_id))

    def _done(self, answer: Answer | None) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(answer)

    def _fail(self, error: Exception) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_exception(error)


class _Head(NamedTuple):
    length: int
    etag: str | None
    version_id: str | None
    keep_alive: bool

    @classmethod
    def parse(cls, head: bytes) -> "_Head | None":
        """None unless it is a 200 with a plain length, and no field contradicts another."""
        found = {(name.lower(), value.strip(b" \t")) for name, value in _FIELDS.findall(head)}
        fields = dict(found)
        if len(fields) != len(found):
            return None
        length = fields.get(b"content-length", b"")
        if not head.startswith(b"HTTP/1.1 200") or _CODED & fields.keys():
            return None
        if not _LENGTH.fullmatch(length):
            return None
        return cls(
            int(length),
            pin_of(fields.get(b"etag", b"").decode("latin-1")),
            pin_of(fields.get(b"x-amz-version-id", b"").decode("latin-1")),
            fields.get(b"connection", b"").lower() != b"close",
        )
