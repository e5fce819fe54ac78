"""A way to a service that forgets connections, as load balancers and gateways do.

Rule: a forgotten connection becomes a black hole. What is sent on it is taken, nothing comes out at
the other end, and nobody is told. New connections work. A way of several targets is a balancer that
chooses a server for each connection, in turn. Owner: the test.
"""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from urllib.parse import urlsplit

CHUNK_BYTES = 1 << 16


class Way:
    """Made by `way_to`; `address` is what a worker gets. `began`: how many connections each target
    got.
    """

    def __init__(self, *targets: str) -> None:
        self.targets = list(targets)
        self.port = 0
        self.began: Counter[str] = Counter()
        self._turn = 0
        self._known: set[asyncio.StreamWriter] = set()
        self._ends: set[asyncio.StreamWriter] = set()
        self._tasks: set[asyncio.Task[None]] = set()

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    def forget(self) -> int:
        """Forget all connections of this moment; how many these are."""
        count = len(self._known)
        self._known.clear()
        return count

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        target = self.targets[self._turn % len(self.targets)]
        self._turn += 1
        self.began[target] += 1
        parts = urlsplit(f"//{target}")
        self._known.add(writer)
        ends = [writer]
        self._ends.add(writer)
        try:
            with suppress(OSError):
                there_reader, there = await asyncio.open_connection(parts.hostname, parts.port)
                ends.append(there)
                self._ends.add(there)
                async with asyncio.TaskGroup() as tasks:
                    tasks.create_task(self._pass(reader, there, writer))
                    tasks.create_task(self._pass(there_reader, writer, writer))
        finally:
            self._known.discard(writer)
            self._ends.difference_update(ends)
            for end in ends:
                end.transport.abort()

    async def _pass(
        self,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        known_as: asyncio.StreamWriter,
    ) -> None:
        with suppress(OSError):
            while chunk := await reader.read(CHUNK_BYTES):
                if known_as in self._known:
                    writer.write(chunk)
                    await writer.drain()
        if known_as in self._known:
            writer.transport.abort()

    async def close(self) -> None:
        for end in self._ends:
            end.transport.abort()
        if self._tasks:
            await asyncio.wait(self._tasks)


@asynccontextmanager
async def way_to(*targets: str) -> AsyncIterator[Way]:
    """Each target is a host and a port."""
    way = Way(*targets)
    server = await asyncio.start_server(way.serve, "127.0.0.1", 0)
    way.port = server.sockets[0].getsockname()[1]
    try:
        yield way
    finally:
        server.close()
        await way.close()
