"""A model server for `bench streams --costs`: how long it works on a row depends on the stream.

Rule: it works on `CALLS` calls at a time, further ones wait for their turn, and it only sleeps, so
it takes no CPU from the worker. It knows a row's stream by the row's first number, because the
bench has made the rows. With `zipf` the k-th stream's row takes `row_ms / k`, so the more streams,
the cheaper the further ones; with `one` only the first stream is dear; with `equal` each takes as
long as those of a Zipf law of 60 streams on average.
"""

import asyncio
import os
import signal
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager, suppress
from typing import Final, Literal

import msgspec
import numpy as np
from aiohttp import web
from msgspec import Struct

from penstock.tools.bench import object_bodies
from penstock.tools.bench.child_processes import child, line, say, serve, stop
from penstock.tools.bench.distance import LOOK_S, Far
from penstock.tools.bench.tick_generator import OBJECTS_PER_STREAM

Law = Literal["equal", "zipf", "one"]
HOST: Final = "127.0.0.1"
MOST_BYTES: Final = 64 << 20
ANSWER: Final = b'{"label":0,"score":0.5}'
CALLS: Final = 2
BASE_S: Final = 0.002
# An average of so many streams is what each costs if all cost the same.
AVERAGED: Final = 60
# As many times as dear is the one.
DEARER: Final = 50


class Costs(Struct, frozen=True):
    """`row_ms`: what a row of the dearest stream takes. `rows`: of an object."""

    law: Law
    row_ms: float
    rows: int
    streams: int

    def row_s(self, stream: int) -> float:
        """Streams are counted from 0."""
        if self.law == "zipf":
            return self.row_ms / 1000 / (stream + 1)
        if self.law == "one":
            return self.row_ms / 1000 / (DEARER if stream else 1)
        mean = sum(1 / (number + 1) for number in range(AVERAGED)) / AVERAGED
        return self.row_ms / 1000 * mean


class Listening(Struct, frozen=True):
    url: str


@asynccontextmanager
async def costly(costs: Costs | None, far: Far) -> AsyncIterator[Far]:
    """While the body runs, workers with these settings ask this server; without `costs`, the
    configured one.
    """
    if costs is None:
        yield far
        return
    task = msgspec.json.encode(costs)
    async with child("penstock.tools.bench.costly_model", stdin=task) as server:
        url = (await line(server, Listening)).url
        yield Far({**far.settings, "MODEL__URL": url}, {**far.pids, "costly model": server.pid})
        await stop(server)


class CostlyModel:
    """Answers each row alike, after the time that the rows take."""

    def __init__(self, costs: Costs) -> None:
        self._row_s = times(costs)
        self._turns = asyncio.Semaphore(CALLS)

    async def answer(self, request: web.Request) -> web.Response:
        rows = np.frombuffer(await request.read(), "<f4").reshape(-1, object_bodies.COLUMNS)
        async with self._turns:
            await asyncio.sleep(self.takes_s(rows[:, 0].tolist()))
        return web.Response(body=b"[%s]" % b",".join([ANSWER] * len(rows)))

    def takes_s(self, firsts: Iterable[float]) -> float:
        """How long a call takes whose rows begin with these numbers."""
        return BASE_S + sum(self._row_s.get(first, 0.0) for first in firsts)


def times(costs: Costs) -> dict[float, float]:
    """For the first number of each row of all streams, how long the row takes."""
    by_share: dict[float, float] = {}
    for stream in range(costs.streams):
        for number in range(OBJECTS_PER_STREAM):
            body = object_bodies.matrix(costs.rows, stream * OBJECTS_PER_STREAM + number)
            # As the worker reads them: with six decimals.
            for first in np.char.mod("%.6f", body[:, 0]).astype(np.float32).tolist():
                by_share[first] = costs.row_s(stream)
    return by_share


async def _serve(costs: Costs) -> None:
    """Until SIGTERM, or until the bench is gone."""
    bench, ended = os.getppid(), asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, ended.set)
    app = web.Application(client_max_size=MOST_BYTES)
    app.router.add_post("/predictions/{name}", CostlyModel(costs).answer)
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, HOST, 0).start()
    say(Listening(f"http://{HOST}:{runner.addresses[0][1]}"))
    while not ended.is_set() and os.getppid() == bench:
        with suppress(TimeoutError):
            async with asyncio.timeout(LOOK_S):
                await ended.wait()
    await runner.cleanup()


if __name__ == "__main__":
    serve(Costs, _serve)
