"""Who may wait for whom, and who may publish, are rules that no type holds: a world in which one of
them is broken is noticed within a few seeds (core/progress/order.py, lane/budget.py, and what
a group promises).

A new rule of this kind gets a line here, with the smallest change that breaks it.
"""

import re
from typing import Any

import pytest

from penstock.core.progress.order import FetchQueueInOrder
from penstock.core.rows.blocks import Ticket
from penstock.lane.lane import Lane
from penstock.pipeline.wiring import Wiring
from penstock.tools.simulation.checks.history import Violation
from penstock.tools.simulation.kafka.group import Group, SimulatedMember
from penstock.tools.simulation.simulation import simulate
from penstock.tools.simulation.world import World

SEEDS = 20


class NewestFirst(FetchQueueInOrder):
    def take(self, store: str) -> Ticket:
        return self._ready[store].pop()


class LaneNewestFirst(Lane):
    """Fetches what came last."""

    def __init__(self, *where: Any, **terms: Any) -> None:
        super().__init__(*where, **terms)
        if terms["stream_share"] is None:
            self.fetch_queues = {model: NewestFirst() for model in self.fetch_queues}


class LaneWithoutPermit(Lane):
    """Its first object waits for the budget like any other."""

    def may_overdraw(self, ticket: Ticket) -> bool:
        return not self.alive


class WiringNewestFirst(Wiring):
    lane_kind = LaneNewestFirst


class WiringWithoutPermit(Wiring):
    lane_kind = LaneWithoutPermit


class FirstInFirstOutBroken(World):
    wiring_kind = WiringNewestFirst


class PermitBroken(World):
    wiring_kind = WiringWithoutPermit


class GroupOfAll(Group):
    """Takes positions, and transactions with them, of members without which it has gone on."""

    def accepts(self, member: SimulatedMember, generation: int) -> bool:
        return True


class GenerationsBroken(World):
    group_kind = GroupOfAll


STILL = "does not move|stands still"


@pytest.mark.parametrize(
    ("kind", "first", "says"),
    [
        (FirstInFirstOutBroken, 55, STILL),
        (PermitBroken, 70, STILL),
        (GenerationsBroken, 105, "is not its own|handed back"),
    ],
)
def test_a_broken_rule_is_noticed(kind: type[World], first: int, says: str) -> None:
    """Of the seeds, the first that noticed it when this was written is tried first."""
    noticed = (said for seed in range(first, first + SEEDS) if (said := violation(seed, kind)))
    said = next(noticed, None)
    assert said is not None, f"{SEEDS} seeds from {first} on notice nothing: look for others"
    assert re.search(says, said)


def violation(seed: int, kind: type[World]) -> str | None:
    try:
        simulate(seed, kind=kind)
    except Violation as broken:
        return str(broken)
    return None
