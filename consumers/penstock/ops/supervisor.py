"""Starts, watches and ends several workers of the group on one machine.

Rule: a member that was ended by a signal, or that another process asked to end, is started again.
A member that exits with an error ends all with its exit code. No member outlives us: each has a
pipe from us that the system closes if we die. A terminal's signals reach us alone, and we end the
members. Owner: the command.
"""

import asyncio
import logging
import os
import random
import signal
import socket
import sys
from collections.abc import Mapping, Sequence
from contextlib import ExitStack, suppress
from functools import partial
from pathlib import Path
from typing import Final, Self

from penstock import config
from penstock.adapters.kafka.group.instance import instance_of
from penstock.config.variables import ENV_PREFIX
from penstock.core.health.retry import Backoff
from penstock.ops.listening import HTTP_FD
from penstock.ops.members_page import serve_members
from penstock.process import parent
from penstock.process.signals import on_stop

log = logging.getLogger(__name__)

# The first pause is 2 to 4 s: a member that rejoins sooner may meet the killed one, which Kafka
# still counts in the group, and would have to join once more.
RESTART: Final = Backoff(first_s=4.0, most_s=60.0)
# After a life longer than this (the longest pause), the count of failures begins anew.
CALM_S: Final = 60.0
# Time after the drain, to commit, leave the group and close the producer. Together with the default
# of delivery.drain_ms this is 25 s, within the 30 s that Kubernetes grants.
LEAVE_S: Final = 10.0
# The variable by which each member gets a place of its own.
INSTANCE_ID: Final = f"{ENV_PREFIX}KAFKA__INSTANCE_ID"


class Member:
    """One worker process at a time; its successors inherit the same listening socket."""

    def __init__(
        self,
        number: int,
        command: Sequence[str],
        stop: asyncio.Event,
        *,
        stop_s: float,
        backoff: Backoff,
        environ: Mapping[str, str],
    ) -> None:
        self.number = number
        self._environ = environ
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
        """Tell the worker to read its configuration again."""
        if self._process is not None and self._process.returncode is None:
            self._process.send_signal(signal.SIGHUP)

    async def live(self) -> int:
        """Run it until it exits with an error or all must stop; returns its exit code, 0 if it was
        stopped.
        """
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
        """One process from start to end. Returns its exit code, or the negative number of the
        signal that ended it.
        """
        listening = self._listener.fileno()
        self._process = process = await asyncio.create_subprocess_exec(
            *self._command,
            stdin=asyncio.subprocess.PIPE,
            env={**os.environ, **self._environ, HTTP_FD: str(listening)},
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
    place: str | None = None,
) -> int:
    """Run the members until `stop` is set or one exits with an error. Returns when all have ended,
    with the exit code of the whole. `place`: the instance id; each member's has its number behind.
    """
    codes: list[int] = []

    async def live(member: Member) -> None:
        code = await member.live()
        if code:
            log.error("process %d ended with exit code %d; so do the others", member.number, code)
            codes.append(code)
            stop.set()

    with ExitStack() as sockets:
        members = [
            sockets.enter_context(
                Member(
                    number,
                    command,
                    stop,
                    stop_s=stop_s,
                    backoff=backoff,
                    environ={} if place is None else {INSTANCE_ID: f"{place}-{number}"},
                )
            )
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
    cfg: config.Config,
    path: Path | None,
    count: int,
    *,
    debug: bool = False,
    leaves: bool = False,
) -> None:
    """`penstock run`, `count` times, until SIGTERM or SIGINT. If a member exits with an error, so
    does this process, with the same code; the member has printed the reason.
    """
    stop = asyncio.Event()
    on_stop(stop.set)
    command = [sys.executable, "-m", "penstock", parent.OPTION, "run"]
    command += ["--config", str(path)] if path else []
    command += ["--debug"] if debug else []
    command += ["--leave"] if leaves else []
    stop_s, place = cfg.delivery.drain_ms / 1000 + LEAVE_S, instance_of(cfg.kafka)
    code = await supervise(cfg.http, command, count, stop, stop_s=stop_s, place=place)
    if code:
        raise SystemExit(code)
