"""A model whose answers may be bombs, in a process of its own: what it costs to make them is none
of what the worker is measured by.

Rule: a row is answered by nothing, one of `FOR_LONG_ANSWERS` at the path `/long` by 62 MiB.
"""

import asyncio
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import orjson
from aiohttp import web

from tests.support.http_server import http_server

FOR_LONG_ANSWERS = -1.0
_NUMBERS = [FOR_LONG_ANSWERS] * 16
_LONG_BYTES = 62 << 20


async def _answers(request: web.Request) -> web.Response:
    if "X-Rows" in request.headers:  # float32, of any length
        async for _ in request.content.iter_any():
            pass
        answers = [b"0"] * int(request.headers["X-Rows"])
    elif request.method == "POST":
        rows = orjson.loads(await request.read())
        answers = [b"0"] * len(rows)
        if request.path == "/long" and _NUMBERS in rows:
            answers[0] = b"[%b0]" % (b"[]," * (_LONG_BYTES // 3))
    else:
        answers = []
    return web.Response(body=b"[%b]" % b",".join(answers), content_type="application/json")


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
