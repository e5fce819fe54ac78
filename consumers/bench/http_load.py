"""The two clients that the worker is compared with, each a process of its own.

Rule: they do nothing but post rows that were made beforehand, and read the answers; the direct
client with the worker's own HTTP settings, the seed's method as it was published: a row per
request, 1,000 at a time, on aiohttp's defaults.
"""

import asyncio
import itertools
import time
from collections.abc import Callable, Iterator
from typing import Literal

import aiohttp
from msgspec import Struct

from consumers import config
from consumers.bench import load
from consumers.bench.body import Request
from consumers.errors import Fatal
from consumers.process.tasks import ask, say, serve

SEED_GROUP_ROWS = 1_000
# Distinct requests, sent in turn.
DIRECT_BODIES = 64
# TorchServe's Java code is compiled while it serves: after about 10,000 requests its rate is level.
WARM_UP_REQUESTS = 10_000
WARM_UP_LIMIT_S = 30.0


class HttpTask(Struct):
    """Post until `seconds` are over, `warm_up_s` of them uncounted, or `requests` (if
    any) were sent; `body` instead of `rows` of numbers.
    """

    url: str
    method: Literal["direct", "seed"]
    seconds: float
    warm_up_s: float = 0.0
    rows: int = load.BATCH_ROWS
    in_flight: int = 4
    requests: int | None = None
    body: Request | None = None


class HttpAnswer(Struct):
    """What the client reached."""

    rows: int
    seconds: float
    cpu_s: float
    requests: int

    @property
    def rows_per_s(self) -> float:
        return self.rows / self.seconds


async def post(task: HttpTask) -> HttpAnswer:
    """In a process of its own."""
    return await ask("http_load", task, HttpAnswer)


def predictions_url(cfg: config.Config) -> str:
    return f"{cfg.model.url.rstrip('/')}/predictions/{cfg.model.name}"


async def warm_up(
    cfg: config.Config, requests: int, body: Request | None, tell: Callable[[str], None]
) -> None:
    """This many small requests, for a bounded time."""
    if requests:
        tell("warming up the model server")
        url = predictions_url(cfg)
        await post(HttpTask(url, "direct", WARM_UP_LIMIT_S, rows=8, requests=requests, body=body))


async def _work(task: HttpTask) -> None:
    say(await (_direct(task) if task.method == "direct" else _seed(task)))


class _Meter:
    """Counts from the end of the warm-up on."""

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


async def _post(
    session: aiohttp.ClientSession, url: str, body: bytes, headers: dict[str, str]
) -> None:
    async with session.post(url, data=body, headers=headers) as response:
        text = await response.read()
        if response.status != 200:
            raise Fatal(f"{url} answered {response.status}: {text[:200]!r}")


async def _direct(task: HttpTask) -> HttpAnswer:
    bodies: Iterator[bytes]
    if task.body is not None:
        rows, headers = task.body.rows, task.body.headers
        bodies = itertools.repeat(task.body.data)
    else:
        rows = task.rows
        headers = {"Content-Type": "application/octet-stream", "X-Rows": str(rows)}
        bodies = itertools.cycle(load.float32_requests(DIRECT_BODIES, rows))
    meter = _Meter(task.warm_up_s)
    end_s = time.monotonic() + task.warm_up_s + task.seconds
    numbers: Iterator[int] = iter(range(task.requests)) if task.requests else itertools.count()
    async with aiohttp.ClientSession(
        connector=aiohttp.TCPConnector(limit=0),
        cookie_jar=aiohttp.DummyCookieJar(),
        skip_auto_headers=("User-Agent", "Accept", "Accept-Encoding"),
    ) as session:

        async def one_slot() -> None:
            for _ in numbers:
                if time.monotonic() >= end_s:
                    return
                await _post(session, task.url, next(bodies), headers)
                meter.count(rows)

        async with asyncio.TaskGroup() as slots:
            for _ in range(task.in_flight):
                slots.create_task(one_slot())
    return meter.answer()


async def _seed(task: HttpTask) -> HttpAnswer:
    bodies = list(load.json_rows(SEED_GROUP_ROWS))
    headers = {"Content-Type": "application/json"}
    rows, began_s, cpu_s = 0, time.monotonic(), time.process_time()
    async with aiohttp.ClientSession() as session:
        while (took_s := time.monotonic() - began_s) < task.seconds:
            await asyncio.gather(*(_post(session, task.url, body, headers) for body in bodies))
            rows += len(bodies)
        took_s = time.monotonic() - began_s
    return HttpAnswer(rows, took_s, time.process_time() - cpu_s, rows)


if __name__ == "__main__":
    serve(HttpTask, _work)
