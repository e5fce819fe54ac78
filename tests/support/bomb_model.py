"""A model whose answers may be bombs, in a process of its own: what it costs to make them is none
of what the worker is measured by.

Rule: a row is answered by nothing, one of `FOR_LONG_ANSWERS` at the path `/long` by 62 MiB. No call
keeps the others waiting: the long answer is made once, and sent in pieces, and rows of many levels
are counted without their values, which would take 0.3 ms a row.
"""

import asyncio
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

import orjson
from aiohttp import web

from tests.support.http_server import http_server

FOR_LONG_ANSWERS = -1.0
_NUMBERS = [FOR_LONG_ANSWERS] * 16
_LONG = memoryview(b"[%b0]" % (b"[]," * ((62 << 20) // 3)))
_PIECE_BYTES = 256 << 10


async def _answers(request: web.Request) -> web.StreamResponse:
    rows = 0
    if "X-Rows" in request.headers:  # float32, of any length
        async for _ in request.content.iter_any():
            pass
        rows = int(request.headers["X-Rows"])
    elif request.method == "POST":
        body = await request.read()
        if b"[[[" in body:
            rows = body.count(b"],[") + 1
        else:
            values = orjson.loads(body)
            rows = len(values)
            if request.path == "/long" and _NUMBERS in values:
                return await _long_answer(request, rows)
    body = b"[%b]" % b",".join([b"0"] * rows)
    return web.Response(body=body, content_type="application/json")


async def _long_answer(request: web.Request, rows: int) -> web.StreamResponse:
    end = b",0" * (rows - 1) + b"]"
    answer = web.StreamResponse(headers={"Content-Type": "application/json"})
    answer.content_length = 1 + len(_LONG) + len(end)
    await answer.prepare(request)
    with suppress(ConnectionError):  # it is refused before its end
        await answer.write(b"[")
        for start in range(0, len(_LONG), _PIECE_BYTES):
            await answer.write(_LONG[start : start + _PIECE_BYTES])
        await answer.write(end)
    return answer


@asynccontextmanager
async def bomb_model() -> AsyncIterator[str]:
    """Yields its URL, without a path."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", __name__),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
    )
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        yield (await process.stdout.readline()).decode().strip()
    finally:
        process.stdin.close()
        await process.wait()


async def _serve() -> None:
    """Until our stdin is closed."""
    async with http_server(_answers) as url:
        print(url, flush=True)  # noqa: T201
        await asyncio.to_thread(sys.stdin.read)


if __name__ == "__main__":
    asyncio.run(_serve())
