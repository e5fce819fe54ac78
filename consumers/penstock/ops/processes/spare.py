"""A worker process in reserve: it has loaded everything, and waits to take a dead member's place.

Rule: until it has a place, the process reads no configuration and asks no service: it costs only
memory. When the process has taken a place, the next process is started only after a while, so that
the first one has the processors for itself. Owner: the supervisor.
"""

import asyncio
import logging
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Final

import orjson

log = logging.getLogger(__name__)

# The pause before the next process is started. A start takes up to two CPU seconds, and the worker
# that took the place needs the CPU to catch up.
REST_S: Final = 10.0


class Spare:
    """`listeners`: the sockets of all members, because the process may take any member's place."""

    def __init__(self, command: Sequence[str], listeners: Sequence[int]) -> None:
        self._command = command
        self._listeners = listeners
        self._process: asyncio.subprocess.Process | None = None
        self._taken = asyncio.Event()

    def take(self, environ: Mapping[str, str]) -> asyncio.subprocess.Process | None:
        """Let the process in reserve begin its work, with these environment variables; None if no
        process is in reserve. A process that is still loading begins when it has loaded everything.
        """
        process = self._process
        if process is None or process.returncode is not None:
            return None
        assert process.stdin is not None
        process.stdin.write(orjson.dumps(environ) + b"\n")
        self._process = None
        self._taken.set()
        return process

    async def keep(self) -> None:
        """Keep a process in reserve until cancelled."""
        while True:
            self._process = process = await asyncio.create_subprocess_exec(
                *self._command,
                stdin=asyncio.subprocess.PIPE,
                pass_fds=self._listeners,
                start_new_session=True,
            )
            log.info("process %d is in reserve", process.pid)
            try:
                await self._until_away(process)
            finally:
                await self._dismiss()
            await asyncio.sleep(REST_S)

    async def _until_away(self, process: asyncio.subprocess.Process) -> None:
        """Wait until the process has taken a place, or has ended."""
        self._taken.clear()
        async with asyncio.TaskGroup() as tasks:
            either = [tasks.create_task(process.wait()), tasks.create_task(self._taken.wait())]
            await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
            for one in either:
                one.cancel()

    async def _dismiss(self) -> None:
        process, self._process = self._process, None
        if process is not None and process.returncode is None:
            with suppress(ProcessLookupError):
                process.kill()
            await process.wait()
        elif process is not None:
            log.warning("the process in reserve ended by itself with %s", process.returncode)
