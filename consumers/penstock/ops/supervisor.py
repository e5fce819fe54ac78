"""Starts, watches and ends several workers of the group on one machine.

Rule: if a member exits with an error, all end, with the same code. If a signal ends one, a
successor takes its place with the same listening socket: a spare at once, a new process after a
pause, before which the group is told that the place is free. No member outlives the supervisor: the
system closes the pipe between them. A terminal's signals reach only the supervisor.
"""

import asyncio
import logging
import os
import random
import signal
import socket
import sys
import uuid
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import ExitStack, suppress
from functools import partial
from pathlib import Path
from typing import Final, NamedTuple, Self

import orjson

from penstock import config
from penstock.adapters.kafka.group.leaving import leave_at_last
from penstock.adapters.kafka.group.membership import instance_of
from penstock.config.variables import ENV_PREFIX
from penstock.core.health.retries import Backoff
from penstock.ops.http_server import HTTP_FD
from penstock.ops.members_page import MembersSource
from penstock.ops.page.actions import Actions
from penstock.ops.page.page import Page
from penstock.ops.page.whole_group import WholeGroup
from penstock.process.asyncio_additions import first_of
from penstock.process.process_end import END_WITH_PARENT, RESERVE
from penstock.process.signals import on_stop

log = logging.getLogger(__name__)

# The pause before a restart grows while the member dies again and again.
RESTART: Final = Backoff(first_s=1.0, most_s=60.0)
# If a process has lived longer than this (the longest pause), its next failure counts as the first
# again.
CALM_S: Final = 60.0
# The environment variable that tells a member the name of its place.
INSTANCE_ID: Final = f"{ENV_PREFIX}KAFKA__INSTANCE_ID"
# When the process in reserve has taken a place, the next process in reserve is started after this
# pause. Its start takes up to two CPU seconds, and the worker that took the place needs the CPU to
# catch up.
REST_S: Final = 10.0


class Spare:
    """A worker process in reserve, which has loaded everything and waits to take a dead member's
    place. Until it has a place, the process reads no configuration and asks no service, so it costs
    only memory. `listeners`: the sockets of all members, because the process may take any member's
    place.
    """

    def __init__(self, command: Sequence[str], listeners: Sequence[int]) -> None:
        self._command = command
        self._listeners = listeners
        self._process: asyncio.subprocess.Process | None = None
        self._taken = asyncio.Event()

    def take(self, environ: Mapping[str, str]) -> asyncio.subprocess.Process | None:
        """Let the process in reserve begin its work with these environment variables, and return
        the process; None if no process is in reserve. If the process is still loading, it begins
        its work when it has loaded everything.
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
        """Keep a process in reserve, until this call is cancelled."""
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
        """Wait until the process in reserve has taken a place, or has ended."""
        self._taken.clear()
        await first_of(process.wait(), self._taken.wait())

    async def _dismiss(self) -> None:
        process, self._process = self._process, None
        if process is not None and process.returncode is None:
            with suppress(ProcessLookupError):
                process.kill()
            await process.wait()
        elif process is not None:
            log.warning("the process in reserve ended by itself with %s", process.returncode)


class MemberTerms(NamedTuple):
    """What all members have in common. `place`: the name of a member's place is this text followed
    by the member's number. `free`: a function that tells the group that a place is free. `stop_s`:
    how long a member may take to end.
    """

    command: Sequence[str]
    place: str
    free: Callable[[str], Awaitable[None]]
    stop_s: float
    backoff: Backoff = RESTART
    # True if the group accepts a successor in a dead member's place only after the place was freed.
    frees_first: bool = False
    # True if a member that ends with exit code 0 has done its job, and gets no successor.
    is_job: bool = False


class Member:
    def __init__(self, number: int, terms: MemberTerms, stop: asyncio.Event) -> None:
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
        """Keep a process in this place until the process exits with an error, has done its job, or
        all members must stop. Returns the exit code of the last process; 0 if a signal ended it.
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
            # The worker in reserve takes the place only after the first failure. If members die in
            # this place again and again, it would die, too.
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
        """Starts a new process after the pause, and returns it. None: all members must stop."""
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
        """Wait for the process to end. Returns its exit code, or the negative number of the signal
        that ended it.
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


# After its drain a member has this time to commit, leave the group and close the producer. With the
# default of delivery.drain_ms, drain and leaving together take 25 s at most, within the 30 s that
# Kubernetes grants.
LEAVE_S: Final = 10.0


async def supervise(
    http: config.Http,
    terms: MemberTerms,
    count: int,
    stop: asyncio.Event,
    *,
    reserve: Sequence[str] | None = None,
    kafka: config.Kafka | None = None,
    actions: Actions | None = None,
) -> int:
    """Run the members until `stop` is set, one of them exits with an error, or all have done their
    job. Returns the supervisor's exit code when all members have ended. `reserve`: the command of
    the process in reserve; None: no process waits in reserve.
    """
    codes: list[int] = []

    async def live(member: Member, spare: Spare | None) -> None:
        code = await member.live(spare)
        if code:
            log.error("process %d ended with exit code %d; so do the others", member.number, code)
            codes.append(code)
            stop.set()

    with ExitStack() as sockets:
        members = [sockets.enter_context(Member(number, terms, stop)) for number in range(count)]
        listeners = [member.listener for member in members]
        spare = None if reserve is None else Spare(reserve, listeners)
        hang_up = partial(_hang_up, members)
        asyncio.get_running_loop().add_signal_handler(signal.SIGHUP, hang_up)
        source, around = MembersSource(members, http.token), WholeGroup(http, kafka)
        handlers = None if actions is None else actions.handlers
        page = Page(http, source, around=around, actions=handlers)
        async with page.open() as url, asyncio.TaskGroup() as tasks:
            log.info("%d processes; their health and metrics are on %s", count, url)
            lives = [tasks.create_task(live(member, spare)) for member in members]
            if spare is not None:
                keeping = tasks.create_task(spare.keep())
                await stop.wait()
                keeping.cancel()
            await asyncio.wait(lives)
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
    has_spare: bool = False,
    job: Sequence[str] = (),
) -> None:
    """Run `count` processes of `penstock run`, until SIGTERM or SIGINT. `job`: the options of a
    job, which ends when all members have done it. If a member exits with an error, this process
    exits with the same code; the member has printed the reason. Each member has a place of its own
    in the group. If `kafka.instance_id` is not set, the places end with the supervisor.
    """
    stop = asyncio.Event()
    on_stop(stop.set)
    place = instance_of(cfg.kafka)
    options = ["--config", str(path)] if path else []
    options += ["--debug"] if debug else []
    options += ["--leave"] if leaves or place is None else []
    options += job
    penstock = [sys.executable, "-m", "penstock"]
    terms = MemberTerms(
        [*penstock, END_WITH_PARENT, "run", *options],
        place or f"penstock-{uuid.uuid4().hex[:12]}",
        partial(leave_at_last, cfg.kafka),
        cfg.delivery.drain_ms / 1000 + LEAVE_S,
        frees_first=cfg.kafka.group_protocol == "consumer",
        is_job=bool(job),
    )
    reserve = [*penstock, "run", RESERVE, *options] if has_spare else None
    code = await supervise(
        cfg.http, terms, count, stop, reserve=reserve, kafka=cfg.kafka, actions=Actions(path)
    )
    if code:
        raise SystemExit(code)
