"""The reads of a store take turns, whatever happens to their limit and to those who wait."""

import asyncio

from penstock.core.health.limiter import Limiter
from penstock.errors import HungUp, NoAnswer, Overloaded, Poison, Transient, Unreachable
from penstock.stages.store_reads import Fetcher, StoreReads
from penstock.tools.simulation.virtual_time import VirtualClock, virtual_time


def store_reads(most: int) -> StoreReads:
    return StoreReads(Limiter(most), VirtualClock())


async def settle() -> None:
    for _ in range(3):
        await asyncio.sleep(0)


@virtual_time
async def test_those_who_wait_are_served_in_their_order_and_their_wait_is_not_the_objects() -> None:
    reads, fetcher = store_reads(1), Fetcher(lambda: None)
    first = await reads.begin(fetcher)
    served: list[int] = []

    async def read(number: int) -> None:
        request = await reads.begin(fetcher)
        served.append(number)
        await asyncio.sleep(1.0)
        reads.answered(request)

    async with asyncio.TaskGroup() as tasks:
        for number in range(3):
            tasks.create_task(read(number))
        await asyncio.sleep(5.0)
        reads.answered(first)
    assert served == [0, 1, 2]
    assert reads.limiter.in_flight == 0
    assert fetcher.waited_s == 5.0 + 6.0 + 7.0


@virtual_time
async def test_a_reader_that_is_cancelled_leaves_its_turn_to_the_next() -> None:
    reads = store_reads(1)
    first = await reads.begin()
    gone, given, stays = (asyncio.ensure_future(reads.begin()) for _ in range(3))
    await settle()
    gone.cancel()
    reads.answered(first)
    given.cancel()  # it has the turn, and was not woken yet
    await settle()
    assert stays.done()
    assert reads.limiter.in_flight == 1
    reads.answered(stays.result())
    assert reads.limiter.in_flight == 0


@virtual_time
async def test_a_read_has_its_turn_when_a_probe_that_was_sent_again_ends() -> None:
    reads = store_reads(1)
    reads.asked_again(1)
    turn = asyncio.ensure_future(reads.begin())
    await settle()
    assert not turn.done()
    reads.asked_again(-1)
    await settle()
    reads.answered(turn.result())
    assert reads.limiter.in_flight == 0


@virtual_time
async def test_all_are_served_after_the_limit_has_fallen_to_one() -> None:
    reads = store_reads(4)

    async def read(*, is_full: bool) -> None:
        request = await reads.begin()
        await asyncio.sleep(0.010)
        if is_full:
            reads.broke(request, Overloaded("SlowDown"))
        else:
            reads.answered(request)

    async with asyncio.TaskGroup() as tasks:
        for number in range(50):
            tasks.create_task(read(is_full=number < 20))
    assert reads.limiter.in_flight == 0


@virtual_time
async def test_only_a_store_that_has_too_much_to_do_or_is_silent_gets_less() -> None:
    for error, limit in (
        (Overloaded("SlowDown"), 4),
        (NoAnswer("timed out"), 4),
        (HungUp("closed"), 4),
        (Unreachable("refused"), 8),
        (Transient("500"), 8),
        (Poison("not_found", "no such key"), 8),
        (asyncio.CancelledError(), 8),
    ):
        reads = store_reads(8)
        requests = [await reads.begin() for _ in range(8)]
        reads.broke(requests[-1], error)
        assert reads.limiter.limit == limit, error
        assert reads.limiter.in_flight == 7


@virtual_time
async def test_answers_whose_times_are_not_compared_bring_the_limit_back() -> None:
    reads = StoreReads(Limiter(64, 16), VirtualClock())
    for _ in range(6):
        reads.broke(await reads.begin(), NoAnswer("timed out"))
    assert reads.limiter.limit == 1
    for _ in range(20):
        reads.dropped(await reads.begin(), is_answered=True)
    assert reads.limiter.limit == 16


@virtual_time
async def test_objects_that_wait_for_something_else_keep_none_from_a_store_with_a_low_limit() -> (
    None
):
    reads = StoreReads(Limiter(64, 16), VirtualClock())
    reads.broke(await reads.begin(), Overloaded("SlowDown"))
    assert reads.limiter.limit < 16
    assert reads.readers == 16
