"""A failure that nobody could mend, because there was nothing to do afterwards, is not the begin of
one that lasts: hours later the next single failure ends no worker.
"""

import asyncio

import pytest

from penstock.errors import Fatal, Unreachable
from penstock.failures.outage import KAFKA
from penstock.stages.settle import TransactionRetry
from penstock.tools.simulation.virtual_time import VirtualClock, virtual_time
from tests.support.pipelines import World, csv, running, until

# Far longer than a failure may last. A worker that is idle in virtual time takes real time.
LONG_S = 600.0
HOUR_S = 3_600.0
LOST = Unreachable("no answer")


class Once:
    """Raises at its first call."""

    def __init__(self) -> None:
        self.calls = 0

    async def __call__(self, *_: object) -> None:
        self.calls += 1
        if self.calls == 1:
            raise LOST


@virtual_time
async def test_a_failed_commit_whose_partition_went_is_forgotten() -> None:
    world = World()

    async def fails() -> None:
        raise LOST

    world.source.on_commit = fails
    world.announce("a.csv", csv(3))
    async with running(world) as pipeline:
        await until(lambda: world.published() == 3)
        kafka = next(outage for outage in pipeline.wiring.outages if outage.service == KAFKA)
        await until(lambda: kafka.away_s is not None)
        await world.source.revoke([0])
        await until(lambda: kafka.away_s is None)
        await asyncio.sleep(LONG_S)
        await world.source.assign([0])
        world.source.on_commit = Once()
        world.announce("b.csv", csv(3))
        await until(lambda: world.next_offset() == 2)


@virtual_time
async def test_a_transaction_whose_answer_was_lost_is_no_failure_once_its_end_is_read() -> None:
    world = World(exactly_once=True)
    async with running(world):
        world.producers.loses_answers = 1
        world.announce("a.csv", csv(3))
        await until(lambda: world.next_offset() == 1)
        await asyncio.sleep(LONG_S)
        world.producers.before_commit = Once()
        world.announce("b.csv", csv(3))
        await until(lambda: world.next_offset() == 2)
    assert world.published() == 6


async def fails_for_ever(retry: TransactionRetry) -> None:
    for _ in range(100):
        await asyncio.sleep(30.0 + retry.pause_s(LOST))  # a try may take half a minute


@pytest.mark.parametrize("patience_s", [10.0, 120.0])
def test_single_failures_hours_apart_end_nobody_and_those_in_a_row_do(patience_s: float) -> None:
    @virtual_time
    async def scenario() -> None:
        retry = TransactionRetry(patience_s, VirtualClock(), lambda: 1.0)
        for _ in range(3):
            assert retry.pause_s(LOST) <= 5.0
            await asyncio.sleep(HOUR_S)
        with pytest.raises(Fatal, match="no transaction for"):
            await fails_for_ever(retry)

    scenario()
