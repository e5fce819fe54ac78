"""Child processes that never outlive us.

Rule: each gets a pipe as its standard input and ends when that closes, however we die; what it says
on standard error goes to a file. Signals of the terminal reach us alone, so that we end the
children in our order. Owner: whoever entered the context.
"""

import asyncio
import os
import signal
import sys
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from pathlib import Path

from consumers.errors import Fatal

# Two interpreters that import at once on two busy cores take up to 5 s; several times that.
START_S = 30.0


class Child:
    """A running `python -m module`; made by `running`."""

    def __init__(self, name: str, process: asyncio.subprocess.Process, log: Path) -> None:
        self.name = name
        self.pid = process.pid
        self._process = process
        self._log = log

    async def address(self) -> str:
        """The first line it prints: it is there. Raises `Fatal` if it ends, or says nothing."""
        assert self._process.stdout is not None
        try:
            async with asyncio.timeout(START_S):
                line = await self._process.stdout.readline()
        except TimeoutError:
            raise Fatal(f"{self.name} did not start within {START_S:.0f} s") from None
        if not line:
            raise Fatal(f"{self.name} did not start: {last_words(self._log)}")
        return line.decode().strip()

    async def wait(self) -> int:
        """Its exit code; the negative signal if one ended it."""
        return await self._process.wait()

    def ask_to_end(self) -> None:
        with suppress(ProcessLookupError):
            self._process.send_signal(signal.SIGTERM)

    async def end(self) -> None:
        with suppress(ProcessLookupError):
            self._process.kill()
        await self._process.wait()


@asynccontextmanager
async def running(
    name: str, module: str, log: Path, *, arguments: Sequence[str] = (), environ: Mapping[str, str]
) -> AsyncIterator[Child]:
    """Start it; whatever happens in the body, it is gone afterwards."""
    with log.open("ab") as stderr:
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-m",
            module,
            *arguments,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=stderr,
            env=dict(environ),
            start_new_session=True,
        )
    child = Child(name, process, log)
    try:
        yield child
    finally:
        await child.end()


def last_words(log: Path) -> str:
    """What a person should know of why a process ended: its own message, else its last line."""
    lines = log.read_text(errors="replace").splitlines() or ["it left no message"]
    messages = [number for number, line in enumerate(lines) if line.startswith("penstock: ")]
    if messages:
        return os.linesep.join(lines[messages[-1] :]).removeprefix("penstock: ")
    return lines[-1].removeprefix("consumers.errors.Fatal: ")
