"""How an embedded service lives as a child process: its address first, its end on request.

Rule: it ends with SIGTERM, SIGINT or the end of its standard input. A parent hands it a pipe there,
which the system closes however the parent dies; so nothing is left behind.
"""

import asyncio
import os
import signal
import threading


async def serve(address: str) -> None:
    """Announce the service, which is up already; returns when this process is asked to end."""
    loop = asyncio.get_running_loop()
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)

    def watch_stdin() -> None:
        while os.read(0, 1024):
            pass
        loop.call_soon_threadsafe(stop.set)

    # A daemon on the bare descriptor: it must not keep the process, and holds no lock at exit.
    threading.Thread(target=watch_stdin, daemon=True).start()
    # Last: whoever reads this line may ask for the end at once.
    print(address, flush=True)  # noqa: T201 (the line is the interface)
    await stop.wait()
