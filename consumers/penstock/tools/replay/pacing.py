"""Watches a group whose work has an end, a replay or a job: ends the work when all is done, and
holds it while the live group is behind.

Rule: the watch asks the broker for the positions, not the worker: so of several processes each ends
when the work of all is done, and one started again knows the progress. If the broker does not
answer, nothing changes. Kafka forgets the commits of a group without members after
`offsets.retention.minutes`, so the decision on the range is written again from time to time.
"""

import asyncio
import logging
from collections.abc import Callable, Mapping, Sequence, Set
from dataclasses import dataclass, field
from typing import NamedTuple

from penstock.adapters.inputs.bounded_sources import BoundedSource
from penstock.adapters.kafka.positions_from_outside import Groups
from penstock.core.health.other_groups import GroupState, KeepingUp
from penstock.core.progress.cursor import Position
from penstock.errors import Fatal, PenstockError, Transient
from penstock.pipeline.life import Pipeline
from penstock.ports import Clock, Commit, Where
from penstock.tools.replay.decided_range import Spans

log = logging.getLogger(__name__)

LOOK_S = 1.0
# How often the progress is logged.
SAY_S = 30.0
# How often the decision on the range is written again. The shortest retention of commits is a
# minute.
KEEP_S = 30.0


@dataclass(slots=True)
class Look:
    """What one look at the groups has shown. The watched group has done `done` of `total` messages.
    `live`: the state of the live group. `idle_s`: how long the watched group has waited for the
    live group, in all.
    """

    total: int
    done: int = 0
    live: GroupState = field(default_factory=lambda: GroupState("quiet", 0))
    idle_s: float = 0.0

    @property
    def sentence(self) -> str:
        message = f"{self.done:,} of {self.total:,} messages"
        if self.live.neighbour == "behind":
            message += f"; waits, as the live group is {self.live.lag:,} messages behind"
        return message


class KeptRange(NamedTuple):
    """Where the decision on the range is kept: a group, and the commits of this group that hold the
    decision.
    """

    group: str
    written: Mapping[Where, Commit]


class Watch:
    """Watches `group`. `run` calls `on_look` after each look, and returns when all is done."""

    def __init__(
        self,
        spans: Spans,
        groups: Groups,
        clock: Clock,
        kept: KeptRange,
        *,
        group: str,
        live_group: str = "",
        within_s: float | None = None,
        on_look: Callable[[Look], None] = lambda _: None,
    ) -> None:
        """`within_s`: the live group is behind if it leaves a message uncommitted for longer than
        this. None: the watch does not look at the live group.
        """
        self.look = Look(sum(span.end - span.begin for span in spans.values()))
        self._spans = spans
        self._groups = groups
        self._clock = clock
        self._kept = kept
        self._live_group, self._group = live_group, group
        self._keeping_up = None if within_s is None else KeepingUp[Where](within_s)
        self._on_look = on_look
        self.reached: dict[Where, int] = {}
        self._marked: set[Where] = set()

    @property
    def is_done(self) -> bool:
        return self.look.done >= self.look.total

    async def ask(self) -> None:
        """Ask how far the group has come. Work of earlier processes also counts. Raises
        `Transient`.
        """
        self._took(await self._groups.positions(self._group, list(self._spans)))

    async def run(self, pipeline: Pipeline, source: BoundedSource) -> None:
        """Look until all is done. Raises `Fatal` if only stopped lines are left."""
        said_s = looked_s = kept_s = self._clock.now()
        while True:
            before = self.look.live.neighbour
            try:
                await self._look()
            except Transient as error:
                log.debug("asked again in %g s: %s", LOOK_S, error)
            else:
                if self.is_done:
                    return
                self._check_lines(pipeline)
                source.is_held = self.look.live.neighbour == "behind"
                if self._clock.now() - kept_s >= KEEP_S and await self._keep():
                    kept_s = self._clock.now()
            now_s, neighbour = self._clock.now(), self.look.live.neighbour
            if before == "behind":
                self.look.idle_s += now_s - looked_s
            looked_s = now_s
            pipeline.wiring.give_way(neighbour)
            self._on_look(self.look)
            is_news = (before == "behind") != (neighbour == "behind")
            if is_news or now_s - said_s >= SAY_S:
                said_s = now_s
                log.info("%s: %s", self._group, self.look.sentence)
            await asyncio.sleep(LOOK_S)

    async def _keep(self) -> bool:
        """Write the decision on the range again. If another range has been decided since, do
        nothing. Returns False if the broker did not accept the commit; then the caller must try
        again later.
        """
        group, written = self._kept
        try:
            if await self._groups.positions(group, list(written)) in ({}, written):
                await self._groups.begin(group, written)
        except PenstockError as error:
            log.debug("group %s is written again later: %s", group, error)
            return False
        return True

    def _check_lines(self, pipeline: Pipeline) -> None:
        lanes = pipeline.wiring.lanes.values()
        stopped = {
            lane.where: list(map(str, lane.stops))
            for lane in lanes
            if lane.stops and lane.stands_at(self._spans[lane.where].end)
        }
        ours = {lane.where for lane in lanes}
        check_lines(self._unfinished, ours, stopped, self._marked)

    async def _look(self) -> None:
        await self.ask()
        if self._keeping_up is None:
            return
        parts = list(self._spans)
        live = await self._groups.positions(self._live_group, parts)
        ends = await self._groups.ends(parts)
        # A partition with a stopped line does not count as behind, because waiting would not help
        # it.
        committed = {
            part: commit.next_offset
            for part, commit in live.items()
            if not Position.of(commit).stopped_at
        }
        self.look.live = self._keeping_up.look(self._clock.now(), ends, committed)

    def _took(self, ours: Mapping[Where, Commit]) -> None:
        self.reached = {part: commit.next_offset for part, commit in ours.items()}
        self._marked = {part for part, commit in ours.items() if Position.of(commit).stopped_at}
        self.look.done = sum(
            self._spans[part].done(offset) for part, offset in self.reached.items()
        )

    @property
    def _unfinished(self) -> set[Where]:
        return {
            part
            for part, span in self._spans.items()
            if self.reached.get(part, span.begin) < span.end
        }


def check_lines(
    unfinished: Set[Where],
    ours: Set[Where],
    stopped: Mapping[Where, Sequence[str]],
    marked: Set[Where],
) -> None:
    """Raises `Fatal` if all unfinished partitions have stopped lines, so that no more work can be
    done. `ours`: the partitions of this worker. `stopped`: a mapping from one of these partitions
    to the places of its stopped lines. `marked`: the partitions, of all workers, whose commits say
    that a line has stopped; nothing else is known about the partitions of other workers. If no line
    of this worker has stopped, this worker goes on, because a worker with a stopped line ends, and
    its partitions may then move to this one.
    """
    standing = stopped.keys() & unfinished
    others = unfinished - standing
    if not standing or others & ours or others - marked:
        return
    at = [each for part in sorted(standing) for each in stopped[part]]
    at += [f"{topic}/{partition}, of another worker" for topic, partition in sorted(others)]
    lines = "\n".join(at)
    raise Fatal(
        f"every line that is not at its end is stopped, by dead letters:\n{lines}\nMend the "
        "cause, then start the same command again: it goes on there."
    )
