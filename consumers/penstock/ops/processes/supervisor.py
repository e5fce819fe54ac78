"""Starts, watches and ends several workers of the group on one machine.

Rule: if a member exits with an error, all members end, and the supervisor exits with the same code.
If a member ends in any other way, a successor takes its place. No member outlives the supervisor:
each member has a pipe from the supervisor, and ends when the system closes this pipe because the
supervisor has died. A terminal's signals reach only the supervisor, which then ends the members.
Owner: the command.
"""

import asyncio
import logging
import signal
import sys
import uuid
from collections.abc import Sequence
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Final

from penstock import config
from penstock.adapters.kafka.group.leaving import leave_at_last
from penstock.adapters.kafka.group.membership import instance_of
from penstock.ops.page.actions import Actions
from penstock.ops.processes.member import Member, Spare, Terms
from penstock.ops.processes.members_page import serve_members
from penstock.process.process_end import END_WITH_PARENT, RESERVE
from penstock.process.signals import on_stop

log = logging.getLogger(__name__)

# After its drain a member has this time to commit, leave the group and close the producer. With the
# default of delivery.drain_ms, drain and leaving together take 25 s at most, within the 30 s that
# Kubernetes grants.
LEAVE_S: Final = 10.0


async def supervise(
    http: config.Http,
    terms: Terms,
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
        async with (
            serve_members(http, members, kafka, actions) as url,
            asyncio.TaskGroup() as tasks,
        ):
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
    terms = Terms(
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
