"""A server of HTTP/2 whose answers to gRPC calls a test writes frame by frame.

Rule: it reads requests only as far as the frames tell where they end, and compresses nothing.
"""

import asyncio
import struct
from collections.abc import Callable
from contextlib import suppress
from types import TracebackType
from typing import Final, Self

_PREFACE_BYTES: Final = 24
_DATA, _HEADERS, _RESET, _SETTINGS, _PING, _GOAWAY = 0, 1, 3, 4, 6, 7
_ACK = _END_STREAM = 1
_END_HEADERS = 4


def frame(kind: int, flags: int, stream: int, data: bytes = b"") -> bytes:
    return (
        struct.pack(">I", len(data))[1:] + bytes([kind, flags]) + struct.pack(">I", stream) + data
    )


def reset(code: int) -> Callable[[int], bytes]:
    return lambda stream: frame(_RESET, 0, stream, struct.pack(">I", code))


def page(status: int) -> Callable[[int], bytes]:
    """What a proxy answers that knows nothing of gRPC."""
    return lambda stream: (
        _headers(stream, _END_HEADERS, {":status": str(status), "content-type": "text/html"})
        + frame(_DATA, _END_STREAM, stream, b"<html>")
    )


def message(data: bytes, flag: int = 0) -> Callable[[int], bytes]:
    """Headers and a message, without the status that must follow."""
    body = bytes([flag]) + struct.pack(">I", len(data)) + data
    return lambda stream: _begin(stream) + frame(_DATA, 0, stream, body)


def cut_short(data: bytes) -> Callable[[int], bytes]:
    """A stream that ends with its message."""
    body = b"\0" + struct.pack(">I", len(data)) + data
    return lambda stream: _begin(stream) + frame(_DATA, _END_STREAM, stream, body)


def status(code: int, words: str = "") -> Callable[[int], bytes]:
    """The end of a call, where `message` was before it."""
    fields = {"grpc-status": str(code)} | ({"grpc-message": words} if words else {})
    return lambda stream: _headers(stream, _END_HEADERS | _END_STREAM, fields)


def nothing(code: int = 0) -> Callable[[int], bytes]:
    """A call that ends without a message."""
    return lambda stream: _begin(stream) + status(code)(stream)


def _begin(stream: int) -> bytes:
    return _headers(stream, _END_HEADERS, {":status": "200", "content-type": "application/grpc"})


def _headers(stream: int, flags: int, fields: dict[str, str]) -> bytes:
    block = b"".join(
        b"\0" + bytes([len(name)]) + name.encode() + bytes([len(value)]) + value.encode()
        for name, value in fields.items()
    )
    return frame(_HEADERS, flags, stream, block)


class RawGrpcServer:
    """`answers` write the frames of the calls in turn, the last one those of all that follow."""

    def __init__(self, *answers: Callable[[int], bytes]) -> None:
        self._answers = answers
        self.calls = 0
        self._server: asyncio.Server | None = None
        self._writers: list[asyncio.StreamWriter] = []

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self.url = f"grpc://127.0.0.1:{self._server.sockets[0].getsockname()[1]}"
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        at: TracebackType | None,
    ) -> None:
        assert self._server is not None
        self._server.close()
        for writer in self._writers:
            writer.close()
            # Where the client has left, it may have left our last frames unread.
            with suppress(ConnectionError):
                await writer.wait_closed()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._writers.append(writer)
        try:
            await reader.readexactly(_PREFACE_BYTES)
            writer.write(frame(_SETTINGS, 0, 0))
            while True:
                head = await reader.readexactly(9)
                data = await reader.readexactly(int.from_bytes(head[:3], "big"))
                self._take(writer, head[3], head[4], int.from_bytes(head[5:], "big"), data)
        except (asyncio.IncompleteReadError, ConnectionError):
            return

    def _take(
        self, writer: asyncio.StreamWriter, kind: int, flags: int, stream: int, data: bytes
    ) -> None:
        if kind in (_SETTINGS, _PING) and not flags & _ACK:
            writer.write(frame(kind, _ACK, 0, data if kind == _PING else b""))
        elif kind == _DATA and flags & _END_STREAM:
            answer = self._answers[min(self.calls, len(self._answers) - 1)]
            self.calls += 1
            writer.write(answer(stream))
