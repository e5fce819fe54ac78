"""The two clients that the worker is compared with, each a process of its own.

Rule: both post requests made beforehand and read the answers, nothing else. The direct client uses
the worker's own HTTP settings; the seed client works like the seed program: one row a request,
1,000 at a time, aiohttp's defaults, JSON if the server takes it.
"""

import asyncio
import itertools
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from typing import Literal

import aiohttp
from msgspec import Struct
from msgspec.structs import replace
from yarl import URL

from penstock import config
from penstock.adapters.model_servers.protocols import (
    Post,
    ReadyMade,
    grpc_poster,
    ready_made,
    request_of,
)
from penstock.adapters.model_servers.torchserve import TorchServeModel
from penstock.errors import Fatal
from penstock.tools.bench import object_bodies
from penstock.tools.bench.child_processes import ask, say, serve
from penstock.tools.bench.object_bodies import BenchRequest

SEED_GROUP_ROWS = 1_000
# How many different requests are posted in turn.
DIRECT_BODIES = 64
# Java compiles TorchServe's code while TorchServe serves. After about 10,000 requests the rate
# stays level.
WARM_UP_REQUESTS = 10_000
WARM_UP_LIMIT_S = 30.0


class HttpTask(Struct):
    """The task of a client: it posts for `warm_up_s` without counting, and then for `seconds` with
    counting. `requests`: the client stops earlier if it has sent this many requests; None: there is
    no such limit. `body`: the request to post; None: requests with `rows` rows of numbers.
    """

    model: config.Model
    method: Literal["direct", "seed"]
    seconds: float
    warm_up_s: float = 0.0
    rows: int = object_bodies.BATCH_ROWS
    in_flight: int = 4
    requests: int | None = None
    body: BenchRequest | None = None


class HttpAnswer(Struct):
    """The results of the client."""

    rows: int
    seconds: float
    cpu_s: float
    requests: int

    @property
    def rows_per_s(self) -> float:
        return self.rows / self.seconds


async def post(task: HttpTask) -> HttpAnswer:
    """Run the client in a process of its own."""
    return await ask("compared_clients", task, HttpAnswer)


async def warm_up(
    cfg: config.Config, requests: int, body: BenchRequest | None, tell: Callable[[str], None]
) -> None:
    """Post this many small requests. Stop earlier if they take too long."""
    if requests:
        tell("warming up the model server")
        task = HttpTask(cfg.model, "direct", WARM_UP_LIMIT_S, rows=8, requests=requests, body=body)
        await post(task)


async def _work(task: HttpTask) -> None:
    say(await (_direct(task) if task.method == "direct" else _seed(task)))


class _Meter:
    """Counts the answered rows after the warm-up, and measures the time from the first counted
    answer to the last.
    """

    def __init__(self, warm_up_s: float) -> None:
        self._begin_s = time.monotonic() + warm_up_s
        self._started_s = 0.0
        self._cpu_s = 0.0
        self._rows = 0
        self._requests = 0
        self._last_s = 0.0

    def count(self, rows: int) -> None:
        now_s = time.monotonic()
        if now_s < self._begin_s:
            return
        if not self._started_s:
            self._started_s, self._cpu_s = now_s, time.process_time()
            return
        self._rows += rows
        self._requests += 1
        self._last_s = now_s

    def answer(self) -> HttpAnswer:
        if not self._rows:
            raise Fatal("the model server answered nothing within the time of the measurement")
        return HttpAnswer(
            self._rows,
            self._last_s - self._started_s,
            time.process_time() - self._cpu_s,
            self._requests,
        )


@asynccontextmanager
async def _posting(ready: ReadyMade, session: aiohttp.ClientSession) -> AsyncIterator[Post]:
    if ready.is_grpc:
        async with grpc_poster(ready) as send:
            yield send
        return

    async def post_one(body: bytes) -> None:
        url, headers = ready.url, ready.headers
        async with session.post(URL(url, encoded=True), data=body, headers=headers) as response:
            text = await response.read()
            if response.status != 200:
                raise Fatal(f"{url} answered {response.status}: {text[:200]!r}")

    yield post_one


async def _ready(task: HttpTask) -> ReadyMade:
    if task.body is not None:
        url = TorchServeModel(task.model).url
        return ReadyMade(str(url), task.body.headers, [task.body.data])
    settings = replace(task.model, request=request_of(task.model))
    payloads = object_bodies.payloads(DIRECT_BODIES, task.rows, settings.request)
    return await ready_made(settings, payloads)


async def _direct(task: HttpTask) -> HttpAnswer:
    rows = task.body.rows if task.body else task.rows
    ready = await _ready(task)
    bodies = itertools.cycle(ready.bodies)
    meter = _Meter(task.warm_up_s)
    end_s = time.monotonic() + task.warm_up_s + task.seconds
    numbers: Iterator[int] = iter(range(task.requests)) if task.requests else itertools.count()
    session = aiohttp.ClientSession(
        connector=aiohttp.TCPConnector(limit=0),
        cookie_jar=aiohttp.DummyCookieJar(),
        skip_auto_headers=("User-Agent", "Accept", "Accept-Encoding"),
    )
    async with session, _posting(ready, session) as send:

        async def one_slot() -> None:
            for _ in numbers:
                if time.monotonic() >= end_s:
                    return
                await send(next(bodies))
                meter.count(rows)

        async with asyncio.TaskGroup() as slots:
            for _ in range(task.in_flight):
                slots.create_task(one_slot())
    return meter.answer()


async def _seed(task: HttpTask) -> HttpAnswer:
    settings = replace(task.model, request="json")
    ready = await ready_made(settings, object_bodies.payloads(SEED_GROUP_ROWS, 1, "json"))
    session = aiohttp.ClientSession()
    async with session, _posting(ready, session) as send:
        rows, began_s, cpu_s = 0, time.monotonic(), time.process_time()
        while (took_s := time.monotonic() - began_s) < task.seconds:
            await asyncio.gather(*map(send, ready.bodies))
            rows += len(ready.bodies)
        took_s = time.monotonic() - began_s
    return HttpAnswer(rows, took_s, time.process_time() - cpu_s, rows)


if __name__ == "__main__":
    serve(HttpTask, _work)
