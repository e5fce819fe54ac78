"""What every `Outlets` adapter promises.

Rule: a subclass gives the fixture `ground`: outlets, and what readers of committed records and the
group see. Partition 0 of the input is written to partition 0 of the output.
"""

import asyncio
from typing import Protocol

import pytest

from penstock.errors import Fenced
from penstock.ports import Commit, Outgoing, Outlets

TOPIC, LETTERS = "predictions", "letters"


class Ground(Protocol):
    """`topic` gives the real name of one of the two above."""

    @property
    def outlets(self) -> Outlets: ...

    def topic(self, name: str) -> str: ...

    async def values(self, name: str) -> list[bytes]:
        """Of partition 0, as a reader of committed records sees them."""
        ...

    async def position(self, partition: int = 0) -> Commit | None: ...


def some(ground: Ground, *values: bytes, name: str = TOPIC) -> Outgoing:
    return Outgoing(ground.topic(name), 0, [b"k"] * len(values), list(values))


class OutletsContract:
    async def test_records_of_all_topics_and_the_position_become_visible(
        self, ground: Ground
    ) -> None:
        outlet = await ground.outlets.open(0)
        records = [some(ground, b"1", b"2"), some(ground, b"x", name=LETTERS)]
        await outlet.publish(records, Commit(7, "p1:0.2.0123456789abcdef"))
        await outlet.publish([some(ground, b"3")], Commit(8))
        await outlet.close()
        assert await ground.values(TOPIC) == [b"1", b"2", b"3"]
        assert await ground.values(LETTERS) == [b"x"]
        assert await ground.position() == Commit(8)

    async def test_the_metadata_goes_with_the_position(self, ground: Ground) -> None:
        outlet = await ground.outlets.open(0)
        await outlet.publish([some(ground, b"1")], Commit(7, "p1:0.2.0123456789abcdef"))
        await outlet.close()
        assert await ground.position() == Commit(7, "p1:0.2.0123456789abcdef")

    async def test_a_position_may_move_alone(self, ground: Ground) -> None:
        outlet = await ground.outlets.open(0)
        await outlet.publish([], Commit(3))
        await outlet.close()
        assert await ground.position() == Commit(3)
        assert await ground.values(TOPIC) == []

    async def test_more_than_a_batch_holds_is_one_transaction_in_order(
        self, ground: Ground
    ) -> None:
        outlet = await ground.outlets.open(0)
        values = [b"%04d" % number + b"." * 1_000 for number in range(2_500)]
        await outlet.publish([some(ground, *values)], Commit(1))
        await outlet.close()
        assert await ground.values(TOPIC) == values

    async def test_a_later_outlet_fences_the_earlier_one(self, ground: Ground) -> None:
        former = await ground.outlets.open(0)
        await former.publish([some(ground, b"1")], Commit(1))
        heir = await ground.outlets.open(0)
        with pytest.raises(Fenced):
            await former.publish([some(ground, b"zombie")], Commit(99))
        await former.close()
        await heir.publish([some(ground, b"2")], Commit(2))
        await heir.close()
        assert await ground.values(TOPIC) == [b"1", b"2"]
        assert await ground.position() == Commit(2)

    async def test_outlets_of_other_partitions_are_left_alone(self, ground: Ground) -> None:
        one, other = await ground.outlets.open(0), await ground.outlets.open(1)
        await one.publish([some(ground, b"1")], Commit(1))
        await other.publish([], Commit(2))
        await one.close()
        await other.close()
        assert (await ground.position(0), await ground.position(1)) == (Commit(1), Commit(2))

    @pytest.mark.parametrize("turns", [1, 2, 5, 20])
    async def test_a_cancelled_transaction_is_all_or_nothing(
        self, ground: Ground, turns: int
    ) -> None:
        outlet = await ground.outlets.open(0)
        async with asyncio.TaskGroup() as tasks:
            publishing = tasks.create_task(outlet.publish([some(ground, b"1")], Commit(1)))
            for _ in range(turns):
                await asyncio.sleep(0)
            publishing.cancel()
        await outlet.close()
        await outlet.close()
        heir = await ground.outlets.open(0)
        await heir.close()
        seen = (await ground.values(TOPIC), await ground.position())
        assert seen in (([], None), ([b"1"], Commit(1)))
