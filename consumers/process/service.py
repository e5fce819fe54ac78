"""How an embedded service lives as a child process: its address first, its end on request.

Rule: it ends with SIGTERM, SIGINT or the end of its standard input. A parent hands it a pipe there,
which the system closes however the parent dies; so nothing is left behind.
"""

import asyncio
import signal

from consumers.process.parent import when_parent_ends


async def serve(address: str) -> None:
    """Announce the service, which is up already; returns when this process is asked to end."""
    loop = asyncio.get_running_loop()
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)

    when_parent_ends(lambda: loop.call_soon_threadsafe(stop.set))
    # Last: the parent may ask for the end as soon as it has read this line.
    print(address, flush=True)  # noqa: T201 (the line is the interface)
    await stop.wait()
