"""Stands in for `penstock run`: the same page on the inherited socket, and nothing behind it.

Rule: signals make it do what a worker may do. SIGTERM drains (noted in the folder) and exits 0,
SIGUSR1 gives up with exit code 4, SIGUSR2 hands its partitions back, SIGHUP finds the model away;
`--deaf` ignores SIGTERM. Its metrics tell its process id.
"""

import asyncio
import os
import signal
import sys
from pathlib import Path

from aiohttp import web
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

from penstock import config
from penstock.ops.http_server import NO_PARTITION, as_json, inherited_listener, serving
from penstock.ops.supervisor import INSTANCE_ID
from penstock.process.process_end import RESERVE, wait_for_place

READY = (200, "ready: 2 partitions\n")


async def main(folder: Path, deaf: bool) -> int:
    registry = CollectorRegistry()
    Gauge("stub_pid", "Its process id", registry=registry).set(os.getpid())
    Counter("stub_rows", "Rows\nof all", registry=registry).inc(5)
    Histogram("stub_wait", "Waits", ["why"], buckets=[1], registry=registry).labels('"b\\').observe(
        2
    )
    (folder / f"place-{os.getpid()}").write_text(os.environ.get(INSTANCE_ID, ""))
    state = [READY]
    leave: asyncio.Future[int] = asyncio.get_running_loop().create_future()

    async def healthz(_: web.Request) -> web.Response:
        return web.Response(text="ok\n")

    async def readyz(_: web.Request) -> web.Response:
        status, text = state[0]
        return web.Response(status=status, text=text)

    async def metrics(_: web.Request) -> web.Response:
        return web.Response(body=generate_latest(registry))

    async def status(_: web.Request) -> web.Response:
        return as_json({"v": 1, "input_topic": "refs", "pid": os.getpid()})

    def drain() -> None:
        (folder / f"drained-{os.getpid()}").touch()
        leave.set_result(0)

    reactions = {
        signal.SIGTERM: (lambda: None) if deaf else drain,
        signal.SIGUSR1: lambda: leave.set_result(4),
        signal.SIGUSR2: lambda: state.__setitem__(0, (503, NO_PARTITION)),
        signal.SIGHUP: lambda: state.__setitem__(0, (503, "the model does not answer\n")),
    }
    for number, reaction in reactions.items():
        asyncio.get_running_loop().add_signal_handler(number, reaction)
    pages = {
        "/healthz": healthz,
        "/readyz": readyz,
        "/metrics": metrics,
        "/api/status": status,
    }
    http = config.Http(token=os.environ.get("STUB_TOKEN"))
    async with serving(http, pages, inherited_listener()):
        return await leave


if __name__ == "__main__":
    if RESERVE in sys.argv:
        wait_for_place()
    sys.exit(asyncio.run(main(Path(sys.argv[1]), "--deaf" in sys.argv)))
