"""A broker of a few lines, which answers each request as a test says."""

import asyncio
import struct
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import TypeVar, cast

API_VERSIONS = 18


def versions(*ranges: tuple[int, int, int]) -> bytes:
    """What a broker says it understands: of each kind of request, its first and last version."""
    known = [(API_VERSIONS, 0, 0), *ranges]
    return struct.pack(">hi", 0, len(known)) + b"".join(
        struct.pack(">hhh", *kind) for kind in known
    )


class FakeBroker(ABC):
    """`tasks`: one for each connection that was made. `was_reset`: the numbers of those that the
    client has reset.
    """

    def __init__(self) -> None:
        self.pause_s = 0.0
        self.port = 0
        self.tasks: list[asyncio.Task[None]] = []
        self.was_reset: set[int] = set()

    @abstractmethod
    async def answer(self, number: int, kind: int, request: bytes) -> bytes | None:
        """The body of the answer; None: there is none. `number`: the connection's, from 0."""

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        number = len(self.tasks)
        self.tasks.append(cast("asyncio.Task[None]", asyncio.current_task()))
        try:
            while True:
                (size,) = struct.unpack(">i", await reader.readexactly(4))
                request = await reader.readexactly(size)
                kind, _, correlation = struct.unpack(">hhi", request[:8])
                if (body := await self.answer(number, kind, request)) is not None:
                    writer.write(struct.pack(">ii", 4 + len(body), correlation) + body)
        except EOFError:
            pass
        except ConnectionError:
            self.was_reset.add(number)
        writer.close()


B = TypeVar("B", bound=FakeBroker)


@asynccontextmanager
async def listening(broker: B) -> AsyncIterator[B]:
    server = await asyncio.start_server(broker.serve, "127.0.0.1", 0)
    broker.port = server.sockets[0].getsockname()[1]
    yield broker
    server.close()
    await asyncio.wait(broker.tasks)
