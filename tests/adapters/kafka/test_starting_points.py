"""Where reading goes on if a position is lost."""

from collections.abc import Collection, Mapping

import pytest

from penstock.adapters.kafka.assigned_partitions import StartingPlaces
from penstock.ports import Commit, Where
from penstock.tools.simulation.virtual_time import virtual_time
from tests.support.partitions import P0


class Member:
    """`changes`: how often its partitions change while it is asked for a span."""

    has_stopped = False

    def __init__(self, changes: int) -> None:
        self.assignments = 1
        self.said: list[str] = []
        self._changes = changes

    async def committed(self, partitions: Collection[Where]) -> Mapping[Where, Commit]:
        return {}

    async def made_again(self, partitions: Collection[Where]) -> Collection[Where]:
        return ()

    async def span(self, where: Where) -> tuple[int, int]:
        self.assignments += self._changes
        return 50, 100

    async def commit(self, commits: Mapping[Where, Commit]) -> None:
        self.said.append("commit")

    async def seek(self, starts: Mapping[Where, Commit]) -> None:
        self.said.append("seek")

    async def suspended(self, partitions: Collection[Where]) -> None: ...

    async def revoked(self, partitions: Collection[Where]) -> None:
        self.said.append("revoked")

    async def assigned(self, starts: Mapping[Where, Commit]) -> Mapping[Where, int]:
        self.said.append("assigned")
        return {}


@pytest.mark.parametrize(
    ("offset", "said"), [(5, ["seek"]), (500, ["revoked", "commit", "seek", "assigned"])]
)
@virtual_time
async def test_a_lost_position_is_left(offset: int, said: list[str]) -> None:
    member = Member(0)
    await StartingPlaces(member, 60.0).find(P0, offset, member)
    assert member.said == said


@pytest.mark.parametrize("offset", [5, 500])
@virtual_time
async def test_a_rebalance_meanwhile_decides_instead(offset: int) -> None:
    member = Member(1)
    await StartingPlaces(member, 60.0).find(P0, offset, member)
    assert member.said == []
