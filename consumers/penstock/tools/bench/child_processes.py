"""The child processes of the bench: helpers that do one task each, and the worker under test.

Rule: a helper reads its task as JSON from stdin, prints one JSON answer per line, and ends by
itself. The worker is `penstock run` with the caller's settings, of which only those that the
measurement fixes are overridden. No child outlives the block that started it.
"""

import asyncio
import os
import re
import signal
import sys
import time
import uuid
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from penstock import config
from penstock.adapters.http.running_worker import page_of
from penstock.errors import Fatal, PenstockError
from penstock.process.children import Child, free_port, start
from penstock.process.process_end import END_WITH_PARENT
from penstock.tools.bench.resource_use import Usage, usage
from penstock.tools.bench.topics_and_bucket import Topics

T = TypeVar("T")


@asynccontextmanager
async def child(
    *arguments: str,
    env: Mapping[str, str] | None = None,
    stdin: bytes | None = None,
    launcher: Sequence[str] = (),
) -> AsyncIterator[Child]:
    """Run `python -m` with these arguments. If the block fails, the child is stopped. If the block
    succeeds, we wait until the child ends by itself. `stdin`: what the child reads from its
    standard input; None: the input stays open until this process ends (`END_WITH_PARENT`).
    `launcher`: see `children.start`.
    """
    process = await start(
        "a process of the bench",
        *arguments,
        environ={**os.environ, **(env or {})},
        launcher=launcher,
    )
    try:
        if stdin is not None:
            process.say(stdin)
        yield process
        # Only wait, and send no signal, because a signal to a process that is about to end would
        # change its exit code.
        await process.ended()
    except BaseException:
        await stop(process)
        raise


async def stop(process: Child) -> int:
    """Ask the child to end, and kill it if it does not. Returns the exit code."""
    if process.code is None:
        process.ask_to_end()
    return await process.ended()


async def line(process: Child, kind: type[T]) -> T:
    """The next answer of a child."""
    text = await process.line()
    if not text:
        raise Fatal(f"{process.name} ended early, with exit code {await process.wait()}")
    return msgspec.json.decode(text, type=kind)


async def ask(module: str, task: msgspec.Struct, kind: type[T]) -> T:
    """Run one child for one task, and return its answer."""
    async with child(f"penstock.tools.bench.{module}", stdin=msgspec.json.encode(task)) as process:
        return await line(process, kind)


def serve(kind: type[T], work: Callable[[T], Coroutine[Any, Any, None]]) -> None:
    """The child's side: read the task and do it. A failure goes to stderr, with exit code 1."""
    try:
        asyncio.run(work(msgspec.json.decode(sys.stdin.buffer.read(), type=kind)))
    except* PenstockError as failures:
        sys.exit("\n".join(map(str, failures.exceptions)))


def say(answer: msgspec.Struct) -> None:
    sys.stdout.buffer.write(msgspec.json.encode(answer) + b"\n")
    sys.stdout.buffer.flush()


READY_S = 30.0
_SAMPLE = re.compile(r'^(\w+?)(?:\{(?:\w+="([^"]*)")?.*\})? (\S+)$', re.MULTILINE)


class BenchWorker:
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
        """Let the worker drain and end. Raises `Fatal` if that fails, because the measurement is
        then worthless.
        """
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

    def ask_by(self, number: signal.Signals) -> None:
        os.kill(self.pid, number)

    async def line(self, kind: type[T]) -> T:
        return await line(self._process, kind)

    async def metrics(self) -> dict[tuple[str, str], float]:
        """The values of the worker's metrics, by the metric's name and the value of its first
        label.
        """
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
    config_path: Path | None, topics: Topics, module: str = "penstock", **settings: object
) -> AsyncIterator[BenchWorker]:
    """A worker on these topics. `module`: what runs the command line. `settings`: further settings,
    each named as `SECTION__KEY`.
    """
    http = config.Http(port=free_port())
    own = {
        "KAFKA__GROUP": f"bench-{uuid.uuid4().hex[:12]}",
        "HTTP__HOST": http.host,
        "HTTP__PORT": http.port,
        "HTTP__TOKEN": "",
    }
    settings = {**own, **settings}
    async with penstock(config_path, topics, "run", module=module, **settings) as process:
        yield BenchWorker(process, http)


def penstock(
    config_path: Path | None,
    topics: Topics,
    *arguments: str,
    module: str = "penstock",
    **settings: object,
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
    return child(module, END_WITH_PARENT, *arguments, env=env)
