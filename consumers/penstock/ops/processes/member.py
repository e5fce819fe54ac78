"""One worker process at a time, in one place of the group, until all must stop.

Rule: a process that a signal ended, or that somebody else asked to end, has a successor in the same
place, with the same listening socket: the worker in reserve at once, or a new process. One that has
done its job has none. Until a new one is there, others take the place's partitions, as the group is
told that it is free. Owner: the supervisor.
"""

import asyncio
import logging
import os
import random
import signal
import socket
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from typing import Final, NamedTuple, Self

from penstock.config.variables import ENV_PREFIX
from penstock.core.health.retry import Backoff
from penstock.ops.listening import HTTP_FD
from penstock.ops.processes.spare import Spare

log = logging.getLogger(__name__)

# A member that dies again and again is started ever more seldom.
RESTART: Final = Backoff(first_s=1.0, most_s=60.0)
# After a life longer than this (the longest pause), the count of failures begins anew.
CALM_S: Final = 60.0
# The variable by which each member gets a place of its own.
INSTANCE_ID: Final = f"{ENV_PREFIX}KAFKA__INSTANCE_ID"


class Terms(NamedTuple):
    """What all members have in common. `place`: each one's is this with its number behind;
    `free`: tells the group that a place is free. `stop_s`: the time for a drain.
    """

    command: Sequence[str]
    place: str
    free: Callable[[str], Awaitable[None]]
    stop_s: float
    backoff: Backoff = RESTART
    # The group takes nobody in the place of a dead member before it is told.
    frees_first: bool = False
    # A member that has ended well is done.
    is_job: bool = False


class Member:
    def __init__(self, number: int, terms: Terms, stop: asyncio.Event) -> None:
        self.number = number
        self.restarts = 0
        self._terms = terms
        self._place = f"{terms.place}-{number}"
        self._stop = stop
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._process: asyncio.subprocess.Process | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._listener.close()

    @property
    def url(self) -> str:
        host, port = self._listener.getsockname()
        return f"http://{host}:{port}"

    @property
    def listener(self) -> int:
        return self._listener.fileno()

    @property
    def running(self) -> bool:
        return self._process is not None and self._process.returncode is None

    def hang_up(self) -> None:
        """Tell the worker to read its configuration again."""
        if self._process is not None and self._process.returncode is None:
            self._process.send_signal(signal.SIGHUP)

    async def live(self, spare: Spare | None) -> int:
        """Run it until it exits with an error or all must stop; returns its exit code, 0 if it was
        stopped.
        """
        failures = 0
        now = asyncio.get_running_loop().time
        process = await self._start()
        while True:
            begun = now()
            code = await self._one_life(process)
            if code < 0 and self._stop.is_set():
                await self._terms.free(self._place)
            if code > 0 or self._stop.is_set() or (code == 0 and self._terms.is_job):
                return max(code, 0)
            failures = 1 if now() - begun > CALM_S else failures + 1
            how = f"was ended by {signal.Signals(-code).name}" if code else "was asked to end"
            # The reserve is for an accident, not for a member that cannot live.
            successor = await self._replaced(spare, how) if failures == 1 else None
            if successor is None:
                successor = await self._started_again(failures, how)
            if successor is None:
                return 0
            process = successor
            self.restarts += 1

    async def _replaced(self, spare: Spare | None, how: str) -> asyncio.subprocess.Process | None:
        if spare is None:
            return None
        if self._terms.frees_first:
            await self._terms.free(self._place)
        process = spare.take(self._environ)
        if process is not None:
            log.warning("process %d %s; the one in reserve takes its place", self.number, how)
        return process

    async def _started_again(self, failures: int, how: str) -> asyncio.subprocess.Process | None:
        """None: all must stop."""
        pause_s = self._terms.backoff.delay_s(failures, 0.0, random.random()) or 0.0
        log.warning("process %d %s; it is started again in %.1f s", self.number, how, pause_s)
        await self._terms.free(self._place)
        return None if await self._stopped_within(pause_s) else await self._start()

    @property
    def _environ(self) -> dict[str, str]:
        return {HTTP_FD: str(self.listener), INSTANCE_ID: self._place}

    async def _start(self) -> asyncio.subprocess.Process:
        return await asyncio.create_subprocess_exec(
            *self._terms.command,
            stdin=asyncio.subprocess.PIPE,
            env={**os.environ, **self._environ},
            pass_fds=[self.listener],
            start_new_session=True,
        )

    async def _one_life(self, process: asyncio.subprocess.Process) -> int:
        """One process to its end. Returns its exit code, or the negative number of the signal that
        ended it.
        """
        self._process = process
        log.info("process %d has the id %d", self.number, process.pid)
        try:
            async with asyncio.TaskGroup() as tasks:
                ending = tasks.create_task(self._end_at_stop(process))
                code = await process.wait()
                ending.cancel()
        finally:
            if process.returncode is None:
                process.kill()
                await process.wait()
        return code

    async def _end_at_stop(self, process: asyncio.subprocess.Process) -> None:
        await self._stop.wait()
        with suppress(ProcessLookupError):
            process.terminate()
        stop_s = self._terms.stop_s
        await asyncio.sleep(stop_s)
        log.warning(
            "process %d did not end within %.1f s and is killed; what it had not committed will be "
            "repeated",
            self.number,
            stop_s,
        )
        with suppress(ProcessLookupError):
            process.kill()

    async def _stopped_within(self, pause_s: float) -> bool:
        with suppress(TimeoutError):
            async with asyncio.timeout(pause_s):
                await self._stop.wait()
        return self._stop.is_set()
