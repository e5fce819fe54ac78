"""What every `Producers` adapter promises.

Rule: a subclass gives the fixture `ground`: producers, and what readers of committed records and
the group see. Partition 0 of the input is written to partition 0 of the output.
"""

import asyncio
from typing import Protocol

import pytest

from penstock.errors import Fenced
from penstock.ports import Commit, Headers, Outgoing, Producers, Where

TOPIC, LETTERS = "predictions", "letters"


class Ground(Protocol):
    """`topic` gives the real name of one of the two above."""

    @property
    def producers(self) -> Producers: ...

    def topic(self, name: str) -> str: ...

    def place(self, partition: int) -> Where:
        """Of the input."""
        ...

    def expel(self) -> None:
        """The group has gone on without this worker."""
        ...

    async def values(self, name: str) -> list[bytes]:
        """Of partition 0, as a reader of committed records sees them."""
        ...

    async def headers(self, name: str) -> list[Headers]:
        """Those of each value."""
        ...

    async def position(self, partition: int = 0) -> Commit | None: ...


def some(ground: Ground, *values: bytes, name: str = TOPIC) -> Outgoing:
    return Outgoing(ground.topic(name), 0, [b"k"] * len(values), list(values))


class ProducersContract:
    async def test_records_of_all_topics_and_the_position_become_visible(
        self, ground: Ground
    ) -> None:
        passage = await ground.producers.open(0)
        records = [some(ground, b"1", b"2"), some(ground, b"x", name=LETTERS)]
        await passage.publish(records, {ground.place(0): Commit(7, "p1:0.2.0123456789abcdef")})
        await passage.publish([some(ground, b"3")], {ground.place(0): Commit(8)})
        await passage.close()
        assert await ground.values(TOPIC) == [b"1", b"2", b"3"]
        assert await ground.values(LETTERS) == [b"x"]
        assert await ground.position() == Commit(8)

    async def test_headers_go_with_their_records(self, ground: Ground) -> None:
        passage = await ground.producers.open(0)
        records = some(ground, b"1")
        records.add(b"k", [b"2"], [("traceparent", b"00-1")])
        await passage.publish([records], {ground.place(0): Commit(7)})
        await passage.close()
        assert await ground.headers(TOPIC) == [[], [("traceparent", b"00-1")]]

    async def test_the_metadata_goes_with_the_position(self, ground: Ground) -> None:
        passage = await ground.producers.open(0)
        at = Commit(7, "p1:0.2.0123456789abcdef")
        await passage.publish([some(ground, b"1")], {ground.place(0): at})
        await passage.close()
        assert await ground.position() == at

    async def test_a_position_may_move_alone(self, ground: Ground) -> None:
        passage = await ground.producers.open(0)
        await passage.publish([], {ground.place(0): Commit(3)})
        await passage.close()
        assert await ground.position() == Commit(3)
        assert await ground.values(TOPIC) == []

    async def test_positions_of_several_partitions_go_into_one_transaction(
        self, ground: Ground
    ) -> None:
        passage = await ground.producers.open(0)
        both = {ground.place(0): Commit(1, "p1:"), ground.place(1): Commit(2)}
        await passage.publish([some(ground, b"1"), some(ground, b"2")], both)
        await passage.close()
        assert await ground.values(TOPIC) == [b"1", b"2"]
        assert (await ground.position(0), await ground.position(1)) == (Commit(1, "p1:"), Commit(2))

    async def test_more_than_a_batch_holds_is_one_transaction_in_order(
        self, ground: Ground
    ) -> None:
        passage = await ground.producers.open(0)
        values = [b"%04d" % number + b"." * 1_000 for number in range(2_500)]
        await passage.publish([some(ground, *values)], {ground.place(0): Commit(1)})
        await passage.close()
        assert await ground.values(TOPIC) == values

    async def test_a_worker_that_the_group_has_gone_on_without_publishes_nothing(
        self, ground: Ground
    ) -> None:
        passage = await ground.producers.open(0)
        await passage.publish([some(ground, b"1")], {ground.place(0): Commit(1)})
        ground.expel()
        with pytest.raises(Fenced):
            await passage.publish([some(ground, b"zombie")], {ground.place(0): Commit(99)})
        await passage.close()
        assert await ground.values(TOPIC) == [b"1"]
        assert await ground.position() == Commit(1)

    async def test_two_producers_leave_each_other_alone(self, ground: Ground) -> None:
        one, other = await ground.producers.open(0), await ground.producers.open(1)
        await one.publish([some(ground, b"1")], {ground.place(0): Commit(1)})
        await other.publish([], {ground.place(1): Commit(2)})
        await one.publish([some(ground, b"2")], {ground.place(0): Commit(2)})
        await one.close()
        await other.close()
        assert (await ground.position(0), await ground.position(1)) == (Commit(2), Commit(2))

    @pytest.mark.parametrize("turns", [1, 2, 5, 20])
    async def test_a_cancelled_transaction_is_all_or_nothing(
        self, ground: Ground, turns: int
    ) -> None:
        passage = await ground.producers.open(0)
        async with asyncio.TaskGroup() as tasks:
            publishing = tasks.create_task(
                passage.publish([some(ground, b"1")], {ground.place(0): Commit(1)})
            )
            for _ in range(turns):
                await asyncio.sleep(0)
            publishing.cancel()
        await passage.close()
        await passage.close()
        seen = (await ground.values(TOPIC), await ground.position())
        assert seen in (([], None), ([b"1"], Commit(1)))
