"""Commits that are not answered, and a group that cannot be joined."""

import asyncio

import pytest

from penstock.errors import Fatal, Unreachable
from penstock.tools.simulation.virtual_time import virtual_time
from tests.support.pipelines import World, csv, run_to_end, running, until


async def away() -> None:
    raise Unreachable("no answer")


@virtual_time
async def test_commits_that_fail_are_told_once_and_made_again(
    caplog: pytest.LogCaptureFixture,
) -> None:
    world = World()

    async def away_for_a_minute() -> None:
        if world.clock.now() < 60.0:
            raise Unreachable("no answer")

    world.source.on_commit = away_for_a_minute
    world.announce("a.csv", csv(3))
    await run_to_end(world, 1)
    logged = [line for line in caplog.messages if "Kafka broker" in line]
    assert [line.split(" after")[0] for line in logged] == [
        "the Kafka broker does not answer, waiting up to 120 s: no answer",
        "the Kafka broker answers again",
    ]


@virtual_time
async def test_commits_that_fail_for_too_long_end_the_worker_with_3() -> None:
    world = World()
    world.source.on_commit = away
    world.announce("a.csv", csv(3))
    with pytest.raises(BaseExceptionGroup) as caught:
        async with running(world):
            await until(lambda: False, within_s=600.0)
    assert caught.group_contains(Fatal, match="the Kafka broker did not answer for 120 s")
    assert 120.0 <= world.clock.now() < 130.0


@virtual_time
async def test_a_stop_whose_last_commit_is_not_answered_is_no_clean_end() -> None:
    world = World().with_settings(commit_interval_s=3600.0)
    world.source.on_commit = away
    world.announce("a.csv", csv(3))
    with pytest.raises(BaseExceptionGroup) as caught:
        async with running(world):
            await until(lambda: world.published() == 3)
    assert caught.group_contains(Fatal, match="the last commit failed.*no answer")


@virtual_time
async def test_a_stop_tries_its_last_commit_more_than_once() -> None:
    world = World().with_settings(commit_interval_s=3600.0)
    tries = 0

    async def fails_twice() -> None:
        nonlocal tries
        tries += 1
        if tries < 3:
            raise Unreachable("no answer")

    world.source.on_commit = fails_twice
    world.announce("a.csv", csv(3))
    async with running(world):
        await until(lambda: world.published() == 3)
    assert world.next_offset() == 1


@virtual_time
async def test_a_stop_while_the_group_is_joined_does_not_wait_for_it() -> None:
    world = World()

    async def never() -> None:
        await asyncio.Event().wait()

    world.source.on_start = never
    async with running(world):
        await asyncio.sleep(1.0)
    assert world.clock.now() == 1.0
