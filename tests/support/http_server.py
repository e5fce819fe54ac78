"""A server of one test: whatever is asked, `take` answers."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from aiohttp import web
from aiohttp.typedefs import Handler

MOST_BYTES = 1 << 30


@asynccontextmanager
async def http_server(take: Handler, port: int = 0) -> AsyncIterator[str]:
    """Yields its URL, without a slash at the end. `port`: 0 for any."""
    app = web.Application(client_max_size=MOST_BYTES)
    app.router.add_route("*", "/{path:.*}", take)
    # Open requests get little time to end, because nobody reads their answers any more.
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1)
    await runner.setup()
    try:
        await web.TCPSite(runner, "127.0.0.1", port).start()
        yield f"http://127.0.0.1:{runner.addresses[0][1]}"
    finally:
        await runner.cleanup()
