"""A port in front of the store that breaks the transfer of one object, always at the same byte.

Rule: all other bytes pass unchanged in both directions, so that the store sees the Host header that
the client signed. Owner: the block that runs it.
"""

import asyncio
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from urllib.parse import urlsplit

CUT_AT = 9 << 20
CHUNK_BYTES = 1 << 16
_LENGTH = re.compile(rb"\r\ncontent-length: *(\d+)", re.IGNORECASE)
_RANGE = re.compile(rb"\r\nrange: *bytes=(\d+)-", re.IGNORECASE)
_Broken = (OSError, asyncio.IncompleteReadError)


@asynccontextmanager
async def cutting(url: str, key: str) -> AsyncIterator[str]:
    """The address of a port in front of the store at `url`. The port cuts the transfer of the
    object with this key.
    """
    cutter = _Cutter(url, key.encode())
    server = await asyncio.start_server(cutter.serve, "127.0.0.1", 0)
    try:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    finally:
        server.close()
        for task in cutter.tasks:
            task.cancel()
        await asyncio.gather(*cutter.tasks, return_exceptions=True)


class _Cutter:
    def __init__(self, url: str, key: bytes) -> None:
        self.tasks: set[asyncio.Task[None]] = set()
        self._url = urlsplit(url)
        self._key = key

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self.tasks.add(task)
        try:
            with suppress(*_Broken, asyncio.CancelledError):
                await self._pass(reader, writer)
        finally:
            self.tasks.discard(task)
            writer.transport.abort()

    async def _pass(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Pass on requests and answers concurrently, up to the request for the cut object."""
        there_reader, there = await asyncio.open_connection(self._url.hostname, self._url.port)
        try:
            async with asyncio.TaskGroup() as tasks:
                answers = tasks.create_task(_pump(there_reader, writer))
                with suppress(*_Broken):
                    head = await self._pass_requests(reader, there)
                    # The answer to this request is cut here, so nothing else may read it.
                    answers.cancel()
                    await asyncio.wait([answers])
                    await _cut(head, there_reader, writer)
                answers.cancel()
        finally:
            there.transport.abort()

    async def _pass_requests(
        self, reader: asyncio.StreamReader, there: asyncio.StreamWriter
    ) -> bytes:
        """Pass on requests, up to and including the first GET of the cut object. Returns the head
        of that GET. Raises `IncompleteReadError` when the client sends no more.
        """
        while True:
            head = await reader.readuntil(b"\r\n\r\n")
            there.write(head)
            if head.startswith(b"GET") and self._key in head.split(b"\r\n", 1)[0]:
                return head
            length = _LENGTH.search(head)
            await _copy(reader, there, int(length[1]) if length else 0)


async def _cut(head: bytes, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    asked = _RANGE.search(head)
    writer.write(await reader.readuntil(b"\r\n\r\n"))
    await _copy(reader, writer, max(0, CUT_AT - (int(asked[1]) if asked else 0)))
    writer.write_eof()


async def _copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, nbytes: int) -> None:
    while nbytes:
        data = await reader.read(min(nbytes, CHUNK_BYTES))
        if not data:
            raise ConnectionResetError
        nbytes -= len(data)
        writer.write(data)
        await writer.drain()


async def _pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Pass on the store's answers until one side ends the connection, then close the client's
    connection.
    """
    with suppress(*_Broken):
        while data := await reader.read(CHUNK_BYTES):
            writer.write(data)
            await writer.drain()
    writer.transport.abort()
