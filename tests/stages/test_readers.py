"""Who may begin to read an object here and there, by what readers hold of the budget."""

import asyncio

from consumers.budget import Budget
from consumers.readers import Readers
from consumers.testing.virtual_time import virtual_time


class Reader:
    """One that reads until it is ended."""

    def __init__(self, readers: Readers, nbytes: int = 30, *, is_head: bool = False) -> None:
        self.is_head = is_head
        self.reads = False
        self._end = asyncio.Event()
        self._task = asyncio.create_task(self._read(readers, nbytes))

    async def _read(self, readers: Readers, nbytes: int) -> None:
        async with readers.reading(nbytes, lambda: self.is_head):
            self.reads = True
            await self._end.wait()
            self.reads = False

    async def end(self) -> None:
        self._end.set()
        await self._task


async def turn() -> None:
    for _ in range(3):
        await asyncio.sleep(0)


@virtual_time
async def test_one_begins_while_the_others_hold_less_than_their_share() -> None:
    budget = Budget(100)
    readers = Readers(budget, 50, heads_first=False)
    found = [Reader(readers) for _ in range(4)]
    await turn()
    assert [one.reads for one in found] == [True, True, False, False]
    assert budget.spent_bytes == 60
    await found[0].end()
    await turn()
    assert [one.reads for one in found] == [False, True, True, False]
    for one in found[1:]:
        await one.end()
    assert not budget.spent_bytes


@virtual_time
async def test_a_head_begins_when_the_others_cannot_come_to_an_end() -> None:
    budget = Budget(100)
    readers = Readers(budget, 50, heads_first=False)
    others = [Reader(readers), Reader(readers)]
    head = Reader(readers, is_head=True)
    await turn()
    assert not head.reads
    budget.spend(40)  # rows of the others, which wait for the head's
    await turn()
    assert head.reads
    for one in (*others, head):
        await one.end()


@virtual_time
async def test_where_each_stream_has_a_head_these_begin_at_once() -> None:
    readers = Readers(Budget(100), 50, heads_first=True)
    others = [Reader(readers), Reader(readers), Reader(readers)]
    head = Reader(readers, is_head=True)
    await turn()
    assert [one.reads for one in (*others, head)] == [True, True, False, True]
    for one in (*others, head):
        await one.end()


@virtual_time
async def test_a_small_budget_has_room_for_one_at_a_time() -> None:
    budget = Budget(10)
    readers = Readers(budget, 5, heads_first=False)
    first, second = Reader(readers), Reader(readers)
    await turn()
    assert (first.reads, second.reads, budget.spent_bytes) == (True, False, 5)
    await first.end()
    await second.end()
