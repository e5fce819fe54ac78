"""The worker under test: `penstock run` as a child process, set up for the measurement by
environment variables.

Rule: the worker has the settings of the bench's caller. Only the settings that the measurement
fixes are overridden. The worker's log has only warnings and errors. Owner: the bench.
"""

import asyncio
import re
import time
import uuid
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path

from penstock import config
from penstock.adapters.http.running_worker import page_of
from penstock.bench.child_processes import child, stop
from penstock.bench.resource_use import Usage, usage
from penstock.bench.topics_and_bucket import Topics
from penstock.errors import Fatal
from penstock.process.children import Child, free_port
from penstock.process.process_end import END_WITH_PARENT

READY_S = 30.0
_SAMPLE = re.compile(r'^(\w+?)(?:\{(?:\w+="([^"]*)")?.*\})? (\S+)$', re.MULTILINE)


class Worker:
    """A running worker."""

    def __init__(self, process: Child, http: config.Http) -> None:
        self._process = process
        self._http = http

    @property
    def pid(self) -> int:
        return self._process.pid

    def usage(self) -> Usage:
        return usage(self.pid)

    def check(self) -> None:
        """Raises `Fatal` if the worker has ended by itself."""
        if self._process.code is not None:
            raise Fatal(f"the worker ended early, with exit code {self._process.code}")

    async def stop(self) -> None:
        """Drain and end. Raises `Fatal` if that fails, because it spoils the measurement."""
        code = await stop(self._process)
        if code:
            raise Fatal(f"the worker did not end cleanly: exit code {code}")

    async def ready(self) -> None:
        """Returns when the partitions are assigned and the model answers."""
        deadline_s = time.monotonic() + READY_S
        while time.monotonic() < deadline_s:
            self.check()
            if await page_of(self._http, "/readyz", READY_S) is not None:
                return
            await asyncio.sleep(0.1)
        raise Fatal(f"the worker was not ready within {READY_S:g} s")

    async def metrics(self) -> dict[tuple[str, str], float]:
        """The worker's metrics by name and value of the first label."""
        page = await page_of(self._http, "/metrics", READY_S)
        if page is None:
            raise Fatal("the worker did not answer with its /metrics")
        return {
            (name, label): float(value)
            for name, label, value in _SAMPLE.findall(page.decode())
            if not name.endswith("_bucket")
        }


@asynccontextmanager
async def running_worker(
    config_path: Path | None, topics: Topics, **settings: object
) -> AsyncIterator[Worker]:
    """A worker on these topics. `settings`: further settings, each named as `SECTION__KEY`."""
    http = config.Http(port=free_port())
    own = {
        "KAFKA__GROUP": f"bench-{uuid.uuid4().hex[:12]}",
        "HTTP__HOST": http.host,
        "HTTP__PORT": http.port,
        "HTTP__TOKEN": "",
    }
    async with penstock(config_path, topics, "run", **{**own, **settings}) as process:
        yield Worker(process, http)


def penstock(
    config_path: Path | None, topics: Topics, *arguments: str, **settings: object
) -> AbstractAsyncContextManager[Child]:
    """A `penstock` command on these topics, as a child process. `settings`: further settings, each
    named as `SECTION__KEY`.
    """
    own = {
        "KAFKA__INPUT_TOPIC": topics.input,
        "OUTPUT__TOPIC": topics.output,
        "OUTPUT__DLQ_TOPIC": topics.dead_letters,
        "LOG__LEVEL": "warning",
    }
    if config_path is not None:
        arguments += ("--config", str(config_path))
    env = {f"PENSTOCK_{name}": str(value) for name, value in {**own, **settings}.items()}
    return child("penstock", END_WITH_PARENT, *arguments, env=env)
