"""Batches go to callers, and no more of them at a time than the pace allows."""

import asyncio

from penstock.core.window.stream_costs import Prices
from penstock.core.window.window import BatchWindow, WindowLimits
from penstock.stages.microbatch import Microbatch
from penstock.telemetry.worker import Telemetry
from penstock.tools.simulation.virtual_time import VirtualClock, virtual_time
from tests.core.builders import block, ticket


@virtual_time
async def test_in_a_trial_one_call_is_with_the_model_but_not_for_ever() -> None:
    window = BatchWindow(WindowLimits(max_rows=2, max_bytes=1 << 20, max_wait_s=0.0))
    microbatch = Microbatch(window, None, VirtualClock(), Telemetry(), calls=3)
    names = {"a", "b"}
    until_s = VirtualClock().now() + 5.0
    microbatch.reprice(Prices({}, {"a"}, None, names, 1, until_s))
    for name in names:
        microbatch.add(block(ticket(name), 4))
    async with asyncio.TaskGroup() as tasks:
        first, second, third = (tasks.create_task(microbatch.take()) for _ in range(3))
        await asyncio.sleep(1.0)
        assert [call.done() for call in (first, second, third)] == [True, False, False]
        microbatch.done(first.result(), lambda _: 0.01)
        await asyncio.sleep(1.0)
        assert [call.done() for call in (second, third)] == [True, False]
        await asyncio.sleep(4.0)
        microbatch.add(block(ticket("b"), 1))


@virtual_time
async def test_a_drain_ends_a_trial() -> None:
    window = BatchWindow(WindowLimits(max_rows=2, max_bytes=1 << 20, max_wait_s=0.0))
    microbatch = Microbatch(window, None, VirtualClock(), Telemetry(), calls=2)
    microbatch.reprice(Prices({}, {"a"}, None, {"a", "b"}, 1, VirtualClock().now() + 5.0))
    for name in ("a", "b"):
        microbatch.add(block(ticket(name), 4))
    async with asyncio.TaskGroup() as tasks:
        first, second = (tasks.create_task(microbatch.take()) for _ in range(2))
        await asyncio.sleep(1.0)
        assert [call.done() for call in (first, second)] == [True, False]
        microbatch.drain()
        await asyncio.sleep(0.1)
        assert second.done()


@virtual_time
async def test_a_free_caller_waits_while_as_many_calls_as_allowed_are_in_flight() -> None:
    window = BatchWindow(WindowLimits(max_rows=2, max_bytes=1 << 20, max_wait_s=0.0))
    microbatch = Microbatch(window, None, VirtualClock(), Telemetry(), calls=1)
    microbatch.add(block(ticket(), 4))
    async with asyncio.TaskGroup() as tasks:
        first, second = (tasks.create_task(microbatch.take()) for _ in range(2))
        await asyncio.sleep(1.0)
        assert (first.done(), second.done()) == (True, False)
        microbatch.done(first.result(), lambda _: 0.01)
        microbatch.add(block(ticket(), 1))
    assert second.result().rows == 2
