"""Several workers of the group on one machine: started, watched and ended as one.

Rule: a member that a signal ended, or that was asked to end by somebody else, is started again; one
that gives up by itself ends all with its exit code. No member outlives us: each holds a pipe that
the system closes however we die. Signals of a terminal reach us alone, so that we end the members.
"""

import asyncio
import logging
import os
import random
import signal
import socket
import sys
from collections.abc import Sequence
from contextlib import ExitStack, suppress
from functools import partial
from pathlib import Path
from typing import Final, Self

from consumers import config
from consumers.core.retry import Backoff
from consumers.ops.listening import HTTP_FD
from consumers.ops.members_page import serve_members
from consumers.process import parent

log = logging.getLogger(__name__)

# Heartbeats come every 2 s, so the last one of a killed member is up to 2 s old: a member that
# rejoins sooner meets the dead one in the group and has to join once more. The first
# pause is 2 to 4 s.
RESTART: Final = Backoff(first_s=4.0, most_s=60.0)
# A member that lived longer than the longest pause is no longer the one that failed at its start.
CALM_S: Final = 60.0
# After its drain a member commits, leaves the group and closes its producer. With delivery.drain_ms
# this is 25 s, within the 30 s that Kubernetes grants.
LEAVE_S: Final = 10.0


class Member:
    """One worker at a time, always behind the same socket."""

    def __init__(
        self,
        number: int,
        command: Sequence[str],
        stop: asyncio.Event,
        *,
        stop_s: float,
        backoff: Backoff,
    ) -> None:
        self.number = number
        self.restarts = 0
        self._command = command
        self._stop = stop
        self._stop_s = stop_s
        self._backoff = backoff
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
    def running(self) -> bool:
        return self._process is not None and self._process.returncode is None

    def hang_up(self) -> None:
        """Have it read its configuration again."""
        if self._process is not None and self._process.returncode is None:
            self._process.send_signal(signal.SIGHUP)

    async def live(self) -> int:
        """Until it gives up or all are to stop; its exit code, 0 for one that did not give up."""
        failures = 0
        now = asyncio.get_running_loop().time
        while True:
            begun = now()
            code = await self._one_life()
            if code > 0 or self._stop.is_set():
                return max(code, 0)
            failures = 1 if now() - begun > CALM_S else failures + 1
            pause_s = self._backoff.delay_s(failures, 0.0, random.random()) or 0.0
            how = f"was ended by {signal.Signals(-code).name}" if code else "was asked to end"
            log.warning("process %d %s; it is started again in %.1f s", self.number, how, pause_s)
            if await self._stopped_within(pause_s):
                return 0
            self.restarts += 1

    async def _one_life(self) -> int:
        """Its exit code; the negative signal if one ended it."""
        listening = self._listener.fileno()
        self._process = process = await asyncio.create_subprocess_exec(
            *self._command,
            stdin=asyncio.subprocess.PIPE,
            env={**os.environ, HTTP_FD: str(listening)},
            pass_fds=[listening],
            start_new_session=True,
        )
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
        await asyncio.sleep(self._stop_s)
        log.warning(
            "process %d did not end within %.1f s and is killed; what it had not committed will be "
            "repeated",
            self.number,
            self._stop_s,
        )
        with suppress(ProcessLookupError):
            process.kill()

    async def _stopped_within(self, pause_s: float) -> bool:
        with suppress(TimeoutError):
            async with asyncio.timeout(pause_s):
                await self._stop.wait()
        return self._stop.is_set()


async def supervise(
    http: config.Http,
    command: Sequence[str],
    count: int,
    stop: asyncio.Event,
    *,
    stop_s: float,
    backoff: Backoff = RESTART,
) -> int:
    """Until `stop` is set or a member gives up, and all have ended; the exit code of the whole."""
    codes: list[int] = []

    async def live(member: Member) -> None:
        code = await member.live()
        if code:
            log.error("process %d ended with exit code %d; so do the others", member.number, code)
            codes.append(code)
            stop.set()

    with ExitStack() as sockets:
        members = [
            sockets.enter_context(Member(number, command, stop, stop_s=stop_s, backoff=backoff))
            for number in range(count)
        ]
        hang_up = partial(_hang_up, members)
        asyncio.get_running_loop().add_signal_handler(signal.SIGHUP, hang_up)
        async with serve_members(http, members) as url, asyncio.TaskGroup() as tasks:
            log.info("%d processes; their health and metrics are on %s", count, url)
            for member in members:
                tasks.create_task(live(member))
    return codes[0] if codes else 0


def _hang_up(members: Sequence[Member]) -> None:
    for member in members:
        member.hang_up()


async def run_processes(
    cfg: config.Config, path: Path | None, count: int, *, debug: bool = False
) -> None:
    """`penstock run`, `count` times, until SIGTERM or SIGINT. Leaves with the exit code of a member
    that gave up, which has said the reason itself.
    """
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    command = [sys.executable, "-m", "consumers", parent.OPTION, "run"]
    command += ["--config", str(path)] if path else []
    command += ["--debug"] if debug else []
    code = await supervise(
        cfg.http, command, count, stop, stop_s=cfg.delivery.drain_ms / 1000 + LEAVE_S
    )
    if code:
        raise SystemExit(code)
