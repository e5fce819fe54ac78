"""Tasks that wait for their turn: each turn is used once, whoever is cancelled."""

import asyncio
from contextlib import suppress
from random import Random

import pytest

from penstock.process.asyncio_additions import taken
from penstock.stages.store_reads import Waiters
from penstock.tools.simulation.virtual_time import virtual_time


class Tokens:
    """So many tokens; a task that holds one gives it back after a while."""

    def __init__(self, count: int) -> None:
        self.count = self.free = count
        self.waiters: Waiters[int] = Waiters()
        self.got: list[int] = []

    async def use(self, name: int, held_s: float) -> None:
        turn = self.waiters.join()
        self.serve()
        await taken(turn, self.back)
        try:
            self.got.append(name)
            await asyncio.sleep(held_s)
        finally:
            self.back(1)

    def back(self, token: int) -> None:
        self.free += token
        self.serve()

    def serve(self) -> None:
        while self.free and (turn := self.waiters.next()) is not None:
            self.free -= 1
            turn.set_result(1)


@virtual_time
async def test_turns_come_in_the_order_of_the_tasks() -> None:
    tokens = Tokens(2)
    async with asyncio.TaskGroup() as tasks:
        for name in range(9):
            tasks.create_task(tokens.use(name, 1.0))
    assert tokens.got == list(range(9))
    assert tokens.free == 2


@virtual_time
async def test_a_task_that_is_cancelled_while_it_waits_is_passed_over() -> None:
    tokens = Tokens(1)
    tasks = [asyncio.ensure_future(tokens.use(name, 1.0)) for name in range(3)]
    await asyncio.sleep(0.5)
    tasks[1].cancel()
    await asyncio.wait(tasks)
    assert (tokens.got, tokens.free) == ([0, 2], 1)


@virtual_time
async def test_a_turn_that_came_together_with_the_cancellation_goes_to_the_next() -> None:
    tokens = Tokens(1)
    tasks = [asyncio.ensure_future(tokens.use(name, 1.0)) for name in range(3)]
    await asyncio.sleep(0.5)
    tokens.back(1)  # the second task has its turn, and has not run since
    tasks[1].cancel()
    await asyncio.wait(tasks)
    assert (tokens.got, tokens.free) == ([0, 2], 2)


@pytest.mark.parametrize("seed", range(20))
@virtual_time
async def test_no_turn_is_lost_whenever_tasks_are_cancelled(seed: int) -> None:
    random, tokens = Random(seed), Tokens(2)
    tasks = []
    for name in range(60):
        tasks.append(asyncio.ensure_future(tokens.use(name, random.choice((0.0, 0.1)))))
        await asyncio.sleep(random.choice((0.0, 0.0, 0.1)))
        random.choice(tasks).cancel()
        if random.random() < 0.3:
            random.choice(tasks).cancel()
    with suppress(asyncio.CancelledError):
        await asyncio.wait(tasks)
    assert tokens.free == 2
    assert tokens.waiters.next() is None
