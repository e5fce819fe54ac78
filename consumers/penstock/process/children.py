"""Child processes that never outlive us, each in a session of its own, so that a terminal's signals
reach only us.
"""

import asyncio
import os
import signal
import socket
import sys
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager, closing, suppress
from pathlib import Path
from typing import IO

import msgspec

from penstock.errors import Fatal

# How long a start may take: several times the 5 s that two interpreters may need to import at once
# on two busy cores.
START_S = 30.0
# How long a stop may take: a worker's drain and its last commit.
STOP_S = 20.0
# The longest line. A line may hold a whole answer: the bench's reader writes all ticks of a trial
# in one line.
LINE_BYTES = 256 << 20


class Child:
    """A running `python -m`. `start` makes it."""

    def __init__(self, name: str, process: asyncio.subprocess.Process) -> None:
        self.name = name
        self.pid = process.pid
        self._process = process

    @property
    def code(self) -> int | None:
        """The exit code of the process, or the negative number of the signal that ended it; None:
        the process still runs.
        """
        return self._process.returncode

    async def line(self) -> bytes:
        """The next line that the process prints; empty after the last line."""
        assert self._process.stdout is not None
        return await self._process.stdout.readline()

    async def wait(self) -> int:
        return await self._process.wait()

    def say(self, text: bytes) -> None:
        """Write this text to the process's standard input, and close that input."""
        assert self._process.stdin is not None
        self._process.stdin.write(text)
        self._process.stdin.close()

    def ask_to_end(self) -> None:
        with suppress(ProcessLookupError):
            self._process.send_signal(signal.SIGTERM)

    async def ended(self) -> int:
        """Wait until the process ends, and return its exit code. If it has not ended after
        `STOP_S`, it is killed.
        """
        try:
            async with asyncio.timeout(STOP_S):
                return await self.wait()
        except TimeoutError:
            await self.kill()
            return await self.wait()

    async def kill(self) -> None:
        with suppress(ProcessLookupError):
            self._process.kill()
        await self.wait()


async def start(
    name: str,
    *arguments: str,
    environ: Mapping[str, str],
    stdin: int = asyncio.subprocess.PIPE,
    stderr: IO[bytes] | None = None,
    launcher: Sequence[str] = (),
) -> Child:
    """Start `python -m` with these arguments. The caller must end the process. `launcher`: a
    command such as `nice`, which replaces itself by the command that follows it.
    """
    process = await asyncio.create_subprocess_exec(
        *launcher,
        sys.executable,
        "-m",
        *arguments,
        stdin=stdin,
        stdout=asyncio.subprocess.PIPE,
        stderr=stderr,
        env=dict(environ),
        limit=LINE_BYTES,
        start_new_session=True,
    )
    return Child(name, process)


@asynccontextmanager
async def running(
    name: str,
    module: str,
    log: Path,
    *,
    arguments: Sequence[str] = (),
    environ: Mapping[str, str],
    launcher: Sequence[str] = (),
) -> AsyncIterator[Child]:
    """Run a service while the body runs, then kill it. Its standard input closes if we die, and the
    service then ends by itself. Its standard error goes to the file `log`.
    """
    with log.open("ab") as stderr:
        child = await start(
            name, module, *arguments, environ=environ, stderr=stderr, launcher=launcher
        )
    try:
        yield child
    finally:
        await child.kill()


async def address(child: Child, log: Path) -> str:
    """The first line that a service prints, which is its address. A service prints it once it is
    ready. Raises `Fatal` if the service ends before it prints a line, or prints nothing for
    `START_S`.
    """
    try:
        async with asyncio.timeout(START_S):
            line = await child.line()
    except TimeoutError:
        raise Fatal(f"{child.name} did not start within {START_S:.0f} s") from None
    if not line:
        raise Fatal(f"{child.name} did not start: {last_words(log)}")
    return line.decode().strip()


def free_port() -> int:
    """A port of the loopback interface that is free now."""
    with closing(socket.socket()) as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def last_words(log: Path) -> str:
    """Why a process ended, for a person: its own message, or else the last line of its log."""
    lines = log.read_text(errors="replace").splitlines() or ["it left no message"]
    messages = [number for number, line in enumerate(lines) if line.startswith("penstock: ")]
    if messages:
        return os.linesep.join(lines[messages[-1] :]).removeprefix("penstock: ")
    try:
        return msgspec.json.decode(lines[-1], type=_LogLine).message
    except msgspec.DecodeError:
        return lines[-1].removeprefix("penstock.errors.Fatal: ")


class _LogLine(msgspec.Struct):
    message: str
