"""The loop on virtual time: what rings when, whatever else waits."""

import asyncio

from penstock.tools.simulation.virtual_time import virtual_time


@virtual_time
async def test_timers_of_one_instant_ring_in_the_order_in_which_they_were_set() -> None:
    loop, rung = asyncio.get_running_loop(), list[int]()
    for number in range(20):
        loop.call_at(1.0, rung.append, number)
        loop.call_at(0.5 - number / 100, int)  # others, which ring before
    await asyncio.sleep(2.0)
    assert rung == list(range(20))


@virtual_time
async def test_a_timer_rings_at_its_very_time_whatever_has_rung_before() -> None:
    loop, rung_s = asyncio.get_running_loop(), list[float]()
    times_s = [0.12, 1.2]  # as floats, 0.12 + (1.2 - 0.12) is not 1.2
    for at_s in times_s:
        loop.call_at(at_s, lambda: rung_s.append(loop.time()))
    await asyncio.sleep(10.0)
    assert rung_s == times_s
