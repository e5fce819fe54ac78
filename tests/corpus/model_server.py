"""A model server that answers good rows well, and whatever holds a hostile row as the case says.

Rule: raw bytes over a socket, since a well-kept server would refuse to send most of this. A row is
hostile if its first number is `HOSTILE` or more. Owner: the test.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, closing, suppress

import orjson

from tests.corpus.cases import Said

HOSTILE = 666
DRIP_S = 0.01


@asynccontextmanager
async def model_server(case: Said) -> AsyncIterator[str]:
    """Yields its url."""
    served: set[asyncio.Task[None]] = set()
    refusals = 0

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal refusals
        task = asyncio.current_task()
        assert task is not None
        served.add(task)
        with closing(writer), suppress(ConnectionError, asyncio.IncompleteReadError):
            while True:
                rows = orjson.loads(await _body_of(reader))
                hostile = [row[0] >= HOSTILE for row in rows]
                if any(hostile) and (case.times is None or refusals < case.times):
                    refusals += 1
                    writer.write(case.reply(hostile))
                    if case.closes:
                        break
                    while case.drips:
                        await asyncio.sleep(DRIP_S)
                        writer.write(b" ")
                        await writer.drain()
                else:
                    writer.write(answer(b"[%b]" % b",".join([b"1"] * len(rows))))
                await writer.drain()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    try:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    finally:
        server.close()
        for task in served:
            task.cancel()
        await asyncio.gather(*served, return_exceptions=True)


async def _body_of(reader: asyncio.StreamReader) -> bytes:
    head = await reader.readuntil(b"\r\n\r\n")
    length = head.lower().partition(b"content-length:")[2].partition(b"\r")[0]
    return await reader.readexactly(int(length))


def answer(body: bytes, status: int = 200, more: bytes = b"") -> bytes:
    """An answer as it should be."""
    head = b"HTTP/1.1 %d X\r\nContent-Type: application/json\r\nContent-Length: %d\r\n%b\r\n"
    return head % (status, len(body), more) + body
