"""Where reading goes on if a position is lost."""

from collections.abc import Collection, Mapping

import pytest

from penstock.adapters.kafka.assigned_partitions import Places
from penstock.ports import Commit, Where
from penstock.tools.simulation.virtual_time import virtual_time


class Member:
    """`changes`: how often its partitions change while it is asked for a span."""

    has_stopped = False

    def __init__(self, changes: int) -> None:
        self.assignments = 1
        self.said: list[str] = []
        self._changes = changes

    def where(self, partition: int) -> Where:
        return Where("refs", partition)

    async def committed(self, partitions: Collection[int]) -> Mapping[int, Commit]:
        return {}

    async def made_again(self, partitions: Collection[int]) -> Collection[int]:
        return ()

    async def span(self, partition: int) -> tuple[int, int]:
        self.assignments += self._changes
        return 50, 100

    async def commit(self, commits: Mapping[int, Commit]) -> None:
        self.said.append("commit")

    async def seek(self, starts: Mapping[int, Commit]) -> None:
        self.said.append("seek")

    async def suspended(self, partitions: Collection[int]) -> None: ...

    async def revoked(self, partitions: Collection[int]) -> None:
        self.said.append("revoked")

    async def assigned(self, starts: Mapping[int, Commit]) -> Mapping[int, int]:
        self.said.append("assigned")
        return {}


@pytest.mark.parametrize(
    ("offset", "said"), [(5, ["seek"]), (500, ["revoked", "commit", "seek", "assigned"])]
)
@virtual_time
async def test_a_lost_position_is_left(offset: int, said: list[str]) -> None:
    member = Member(0)
    await Places(member, 60.0).find(0, offset, member)
    assert member.said == said


@pytest.mark.parametrize("offset", [5, 500])
@virtual_time
async def test_a_rebalance_meanwhile_decides_instead(offset: int) -> None:
    member = Member(1)
    await Places(member, 60.0).find(0, offset, member)
    assert member.said == []
