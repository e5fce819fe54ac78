"""Transactions that the broker does not end in time become smaller, and grow again; a pool whose
producers the broker has forgotten is opened anew at once.
"""

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager

import pytest

from penstock.errors import Expired, Unreachable
from penstock.pipeline.transaction_pool import (
    LEAST_BYTES,
    PRODUCERS,
    TRANSACTION_BYTES,
    TransactionPool,
)
from penstock.ports import Commit, Outgoing, Where
from penstock.tools.simulation.virtual_time import virtual_time
from tests.support.pipelines import World, csv, running, until

GIVEN_UP_S = 30.0


class Producers:
    """Their broker takes `rate` bytes a second. `forgotten`: the numbers of the producers that it
    does not know any more.
    """

    def __init__(self) -> None:
        self.rate = float("inf")
        self.forgotten: set[int] = set()
        self.opened: list[int] = []
        self.sizes: list[int] = []
        self.failures = 0

    async def open(self, number: int) -> "Passage":
        await asyncio.sleep(0.1)
        self.opened.append(number)
        self.forgotten.discard(number)
        return Passage(self, number)

    async def take_back_left(self) -> None:
        return

    def group(self, where: Where) -> str:
        return "group"


class Passage:
    def __init__(self, producers: Producers, number: int) -> None:
        self._producers = producers
        self._number = number

    async def publish(
        self, outgoing: Sequence[Outgoing], positions: Mapping[Where, Commit]
    ) -> None:
        mine = self._producers
        if self._number in mine.forgotten:
            mine.failures += 1
            raise Expired("forgotten")
        nbytes = sum(sum(map(len, out.values)) for out in outgoing)
        if nbytes / mine.rate > GIVEN_UP_S:
            await asyncio.sleep(GIVEN_UP_S)
            mine.failures += 1
            raise Unreachable("not ended")
        await asyncio.sleep(nbytes / mine.rate)
        mine.sizes.append(nbytes)

    async def close(self) -> None:
        return


@asynccontextmanager
async def pool_of(producers: Producers) -> AsyncIterator[TransactionPool]:
    pool = TransactionPool(producers)
    async with asyncio.TaskGroup() as tasks:
        pool.tasks = tasks
        pool.open()
        await asyncio.sleep(1.0)
        yield pool
        pool.stop()
    await pool.close()


async def publish(pool: TransactionPool, nbytes: int, partition: int = 0) -> None:
    out = Outgoing("predictions", partition, [b"k"], [b"x" * nbytes])
    await pool.publish(Where("refs", partition), [out], Commit(1))


async def delivered(pool: TransactionPool, nbytes: int) -> None:
    """A lane with this many bytes: it makes its releases as small as the pool wants them."""
    while nbytes > 0:
        size = min(nbytes, pool.most_bytes, 2 << 20)
        try:
            await publish(pool, size)
            nbytes -= size
        except Unreachable:
            continue


@virtual_time
async def test_a_transaction_that_is_not_ended_in_time_is_tried_smaller() -> None:
    producers = Producers()
    producers.rate = 1_000.0
    async with pool_of(producers) as pool:
        began_s = asyncio.get_running_loop().time()
        await delivered(pool, 1 << 20)
        took_s = asyncio.get_running_loop().time() - began_s
    assert producers.failures == 2  # 256 KiB, 64 KiB; the third of 16 KiB goes through
    assert sum(producers.sizes) == 1 << 20
    assert took_s < (1 << 20) / producers.rate + 2 * GIVEN_UP_S + 10.0


@virtual_time
async def test_it_is_never_smaller_than_the_least_and_grows_again() -> None:
    producers = Producers()
    async with pool_of(producers) as pool:
        producers.rate = 0.001
        for _ in range(9):
            with pytest.raises(Unreachable):
                await publish(pool, min(pool.most_bytes, 2 << 20))
        assert pool.most_bytes == LEAST_BYTES
        producers.rate = float("inf")
        await delivered(pool, 64 << 20)
        assert pool.most_bytes == TRANSACTION_BYTES


@virtual_time
async def test_if_one_producer_is_forgotten_all_are_opened_anew_at_once() -> None:
    producers = Producers()
    async with pool_of(producers) as pool:
        producers.opened.clear()
        producers.forgotten = set(range(PRODUCERS))
        began_s = asyncio.get_running_loop().time()
        await publish(pool, 10)
        assert asyncio.get_running_loop().time() - began_s < 0.2
        await asyncio.sleep(1.0)
        for number in range(PRODUCERS):
            await publish(pool, 10, number)
    assert producers.failures == 1
    assert sorted(producers.opened) == list(range(PRODUCERS))


@virtual_time
async def test_a_lane_releases_no_more_than_a_transaction_may_hold() -> None:
    world = World(partitions=1, exactly_once=True)
    silent = True

    async def before_commit(_: int) -> None:
        if silent:
            raise Unreachable("not ended")

    world.producers.before_commit = before_commit
    for number in range(100):
        # Long names: the answers of one batch are more than two of the smallest transactions.
        world.announce(f"{'k' * 400}{number}.csv", csv(20))
    async with running(world):
        await until(lambda: len(world.producers.aborted) >= 6)
        silent = False
        await until(lambda: world.next_offset(0) == 100)
    sizes = [sum(map(len, out.values)) for out in world.producers.aborted]
    assert sizes[0] > 2 * LEAST_BYTES
    assert sizes[-1] < 1.5 * LEAST_BYTES
