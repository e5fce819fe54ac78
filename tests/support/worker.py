"""`penstock run`, and any other command, as child processes pointed at the real services.

Rule: a child is gone when the block that started it is left, and what it said is in the failure of
the test that waited for it in vain.
"""

import asyncio
import os
import signal
import socket
import subprocess
from collections import deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import BinaryIO, NamedTuple

import aiohttp

from tests.support.services import ROOT, Services, Topics
from tests.support.waiting import until
from tests.support.warm_start import PENSTOCK

# More than the worker's own drain (15 s), the session of a member that was killed before (8 s), and
# a start of the interpreter, on two cores that seven test processes share.
EXIT_S = 200.0
# More than the workers of one test.
HELD_PORTS = 64
_held: deque[socket.socket] = deque()


class Ended(NamedTuple):
    """What a command left behind."""

    code: int
    stdout: bytes
    stderr: str


class Worker:
    """One `penstock run`; made by `running_worker`."""

    def __init__(self, process: asyncio.subprocess.Process, url: str, log: Path) -> None:
        self.pid = process.pid
        self._process = process
        self._url = url
        self._log = log
        self._may_end = False

    @property
    def said(self) -> str:
        """Its log so far."""
        return self._log.read_text(errors="replace")

    async def ready(self, partitions: int | None = None) -> None:
        """Until it has partitions (this many, if given) and the model answers."""

        wanted = "ready" if partitions is None else f"ready: {partitions} partitions"
        await self._until_it_says("/readyz", wanted)

    async def _until_it_says(self, path: str, wanted: str) -> None:
        async def says() -> bool:
            try:
                status, page = await self.get(path)
            except aiohttp.ClientError:
                return False
            return status == 200 and page.startswith(wanted)

        await until(says, lambda: f"{wanted!r} from {path}; the worker says {self.said}")

    async def get(self, path: str) -> tuple[int, str]:
        async with aiohttp.ClientSession() as session, session.get(self._url + path) as answer:
            return answer.status, await answer.text()

    async def alive(self) -> None:
        """Until it answers at all."""
        await self._until_it_says("/healthz", "ok")

    def send(self, number: signal.Signals) -> None:
        self.may_end()
        self._process.send_signal(number)

    def may_end(self) -> None:
        """From now on it is no failure if it ends by itself."""
        self._may_end = True

    async def stop(self) -> int:
        """Ask it to drain; its exit code."""
        self.send(signal.SIGTERM)
        return await self.ended()

    async def kill(self) -> None:
        self.may_end()
        self._process.kill()
        await self._process.wait()

    async def watch(self) -> None:
        """Fails, with what it said, if it ends before it was asked to."""
        code = await self._process.wait()
        assert self._may_end, f"the worker ended by itself with {code}: {self.said}"

    async def ended(self, within_s: float = EXIT_S) -> int:
        """Its exit code, when it has ended."""
        try:
            async with asyncio.timeout(within_s):
                return await self._process.wait()
        except TimeoutError:
            raise AssertionError(f"the worker did not end: {self.said}") from None


def own_port() -> int:
    """A port that the system gives nobody else until a worker listens on it, which may be long
    after: it is bound here, and may be bound a second time, as servers do it.
    """
    holder = socket.socket()
    holder.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    holder.bind(("127.0.0.1", 0))
    _held.append(holder)
    if len(_held) > HELD_PORTS:
        _held.popleft().close()
    port: int = holder.getsockname()[1]
    return port


def environment(
    services: Services, topics: Topics, group: str | None = None, **changes: object
) -> dict[str, str]:
    """Variables for these services and topics; `changes` as `SECTION__KEY=value`."""
    settings: dict[str, object] = {
        "KAFKA__BOOTSTRAP_SERVERS": services.bootstrap_servers,
        "KAFKA__INPUT_TOPIC": topics.input,
        "KAFKA__GROUP": group or topics.input,
        "OBJECTS__ENDPOINT_URL": services.endpoint_url,
        "OBJECTS__KEY": services.key,
        "OBJECTS__SECRET": services.secret,
        "OBJECTS__REGION": services.region,
        "MODEL__URL": services.model_url,
        "MODEL__NAME": services.model_name,
        "OUTPUT__TOPIC": topics.output,
        "OUTPUT__DLQ_TOPIC": topics.dlq,
        "HTTP__PORT": own_port(),
    } | changes
    inherited = {k: v for k, v in os.environ.items() if not k.startswith("PENSTOCK_")}
    return inherited | {f"PENSTOCK_{name}": str(value) for name, value in settings.items()}


@asynccontextmanager
async def running_worker(
    environ: dict[str, str], *arguments: str, command: str = "run"
) -> AsyncIterator[Worker]:
    """Start it; it may not be ready yet. The block fails if the worker ends by itself. Another
    `command` that works like one may take its place.
    """
    with TemporaryDirectory() as folder:
        log = Path(folder, "log")
        with open_log(log) as stderr:
            process = await asyncio.create_subprocess_exec(
                *(*PENSTOCK, command, *arguments),
                cwd=ROOT,
                env=environ,
                stdin=subprocess.DEVNULL,
                stdout=stderr,
                stderr=stderr,
            )
        worker = Worker(process, f"http://127.0.0.1:{environ['PENSTOCK_HTTP__PORT']}", log)
        try:
            # A body that waits for a worker that is dead is cancelled.
            async with asyncio.TaskGroup() as tasks:
                watching = tasks.create_task(worker.watch())
                yield worker
                watching.cancel()
        finally:
            if process.returncode is None:
                await worker.kill()


async def penstock(*arguments: str, environ: dict[str, str]) -> Ended:
    """Run a command to its end."""
    process = await asyncio.create_subprocess_exec(
        *(*PENSTOCK, *arguments),
        cwd=ROOT,
        env=environ,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    try:
        async with asyncio.timeout(EXIT_S):
            stdout, stderr = await process.communicate()
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    assert process.returncode is not None
    return Ended(process.returncode, stdout, stderr.decode())


def open_log(path: Path) -> BinaryIO:
    return path.open("wb")
