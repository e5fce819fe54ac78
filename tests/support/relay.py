"""A port in front of a service: closed at first, then mute, rude, or open.

Rule: it changes nothing of what passes, and counts who came, how much was given to them, and of
HTTP how often each path was asked for. With a delay each piece arrives so much later, in either
direction.
"""

import asyncio
import re
import socket
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from typing import Literal
from urllib.parse import urlsplit

Manner = Literal["open", "mute", "rude"]
CHUNK_BYTES = 1 << 16
GET = re.compile(rb"GET (\S+) HTTP/1")


class Relay:
    """Made by `relay_to`; `address` is what a worker gets."""

    def __init__(self, target: str, delay_s: float = 0.0) -> None:
        self._delay_s = delay_s
        # Bound from now on, so that nobody else gets the port; who connects is refused.
        self._socket = socket.socket()
        self._socket.bind(("127.0.0.1", 0))
        self.port: int = self._socket.getsockname()[1]
        self.address = f"127.0.0.1:{self.port}"
        self.came = 0
        self.given_bytes = 0
        self.asked: Counter[str] = Counter()
        self._target = target
        self._manner: Manner = "open"
        self._server: asyncio.Server | None = None
        self._writers: set[asyncio.StreamWriter] = set()

    async def listen(self, manner: Manner = "open") -> None:
        """`mute` accepts and says nothing; `rude` accepts and hangs up."""
        self._manner = manner
        if self._server is None:
            self._server = await asyncio.start_server(self._serve, sock=self._socket)

    async def close(self) -> None:
        if self._server is not None:
            self._server.close()
            for writer in self._writers:
                writer.transport.abort()
            await self._server.wait_closed()
        self._socket.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.came += 1
        self._writers.add(writer)
        try:
            if self._manner == "open":
                await self._pass_on(reader, writer)
            elif self._manner == "mute":
                await reader.read()
        except OSError:
            pass  # either side went: so does the other
        finally:
            self._writers.discard(writer)
            writer.transport.abort()

    async def _pass_on(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        parts = urlsplit(f"//{self._target}")
        there_reader, there = await asyncio.open_connection(parts.hostname, parts.port)
        self._writers.add(there)
        try:
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(_pipe(reader, there, self._delay_s, self._note))
                tasks.create_task(_pipe(there_reader, writer, self._delay_s, self._count))
        finally:
            self._writers.discard(there)
            there.transport.abort()

    def _note(self, chunk: bytes) -> None:
        self.asked.update(path.decode() for path in GET.findall(chunk))

    def _count(self, chunk: bytes) -> None:
        self.given_bytes += len(chunk)


async def _pipe(
    reader: asyncio.StreamReader,
    writer: asyncio.StreamWriter,
    delay_s: float,
    count: Callable[[bytes], None] = lambda chunk: None,
) -> None:
    loop = asyncio.get_running_loop()
    with suppress(OSError):
        while chunk := await reader.read(CHUNK_BYTES):
            count(chunk)
            if delay_s:
                loop.call_later(delay_s, writer.write, chunk)
            else:
                writer.write(chunk)
                await writer.drain()
    if delay_s:
        loop.call_later(delay_s, writer.transport.abort)
    else:
        writer.transport.abort()


@asynccontextmanager
async def relay_to(target: str, delay_s: float = 0.0) -> AsyncIterator[Relay]:
    """Nobody listens on its port yet. `target` is a host and a port."""
    relay = Relay(target, delay_s)
    try:
        yield relay
    finally:
        await relay.close()
