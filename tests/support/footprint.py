"""`penstock predict` on one object, and how much memory it had at most.

Rule: resident memory is the kernel's own figure, of the process and of those that it started, where
pages that these share count once (PSS). The model is a server that answers every row by nothing, so
that nobody waits for it.
"""

import asyncio
import subprocess
import sys
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import NamedTuple

from aiohttp import web

from tests.support.http_server import http_server
from tests.support.services import ROOT

LOOK_S = 0.1


class Footprint(NamedTuple):
    """`peak_mb` is the process's own high-water mark, `family_mb` what all had at one time."""

    code: int
    output: str
    records: int
    peak_mb: float
    family_mb: float


@asynccontextmanager
async def idle_model() -> AsyncIterator[str]:
    """Its URL."""

    async def answer(request: web.Request) -> web.Response:
        await request.read()
        rows = int(request.headers.get("X-Rows", "0"))
        body = b"[" + b",".join([b"0"] * rows) + b"]"
        return web.Response(body=body, content_type="application/json")

    async with http_server(answer) as url:
        yield url


async def footprint(url: str, environ: Mapping[str, str], within_s: float) -> Footprint:
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "penstock", "predict", url),
        cwd=ROOT,
        env=dict(environ),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    assert process.stdout is not None
    assert process.stderr is not None
    watching = asyncio.create_task(_watch(process.pid))
    try:
        async with asyncio.timeout(within_s):
            records, said = await asyncio.gather(_lines(process.stdout), process.stderr.read())
            code = await process.wait()
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
        watching.cancel()
    peaks = await watching
    return Footprint(code, said.decode(), records, *peaks)


async def _lines(stream: asyncio.StreamReader) -> int:
    found = 0
    while chunk := await stream.read(1 << 20):
        found += chunk.count(b"\n")
    return found


async def _watch(pid: int) -> tuple[float, float]:
    """Until it is cancelled."""
    peak = family = 0.0
    try:
        while True:
            pids = [pid, *_children(pid)]
            peak = max(peak, _kernel_mb(pid, "status", "VmHWM:"))
            family = max(family, sum(_kernel_mb(pid, "smaps_rollup", "Pss:") for pid in pids))
            await asyncio.sleep(LOOK_S)
    except asyncio.CancelledError:
        return peak, family


def _children(pid: int) -> list[int]:
    found: list[int] = []
    for file in Path(f"/proc/{pid}/task").glob("*/children"):
        try:
            direct = [int(text) for text in file.read_text().split()]
        except OSError:
            continue
        for child in direct:
            found += [child, *_children(child)]
    return found


def _kernel_mb(pid: int, file: str, name: str) -> float:
    """0 for a process that is gone."""
    try:
        lines = Path(f"/proc/{pid}/{file}").read_text().splitlines()
    except OSError:
        return 0.0
    return next((int(line.split()[1]) / 1000 for line in lines if line.startswith(name)), 0.0)
