"""Runs an embedded service as a child process: prints its address, then waits for its end.

Rule: it ends by SIGTERM, SIGINT or the end of its standard input. That is a pipe of the parent,
which the system closes when the parent dies, so no service outlives its parent. Owner: the
service's process.
"""

import asyncio

from penstock.process.parent import when_parent_ends
from penstock.process.signals import on_stop


async def serve(address: str) -> None:
    """Announce the service, which is up already; returns when this process is asked to end."""
    loop = asyncio.get_running_loop()
    stop = asyncio.Event()
    on_stop(stop.set)
    when_parent_ends(lambda: loop.call_soon_threadsafe(stop.set))
    # Last: the parent may ask for the end as soon as it has read this line.
    print(address, flush=True)  # noqa: T201 (the line is the interface)
    await stop.wait()
