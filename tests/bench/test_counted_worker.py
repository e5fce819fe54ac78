"""What a worker calls is counted, and counted alike each time."""

import asyncio
import socket
import sys

from penstock.tools.bench.counted_worker import Calls


async def _pings(turns: int) -> None:
    one, other = socket.socketpair()
    with one, other:
        for _ in range(turns):
            one.send(b"ping")
            other.recv(4)
            await asyncio.sleep(0)


def _counted(turns: int) -> Calls:
    calls = Calls()
    with asyncio.Runner() as runner:
        runner.run(asyncio.sleep(0))  # makes the loop, which calls much
        sys.setprofile(calls.note)
        try:
            runner.run(_pings(turns))
        finally:
            sys.setprofile(None)
    return calls


def test_calls_turns_and_calls_of_the_system_are_counted() -> None:
    few, many = _counted(10), _counted(110)
    assert (many.sends - few.sends, many.receives - few.receives) == (100, 100)
    assert (many.turns - few.turns, many.selects - few.selects) == (100, 100)
    assert many.python - few.python >= 200  # the coroutine goes on, and the loop turns


def test_the_counts_are_the_same_each_time() -> None:
    assert _counted(20) == _counted(20)


def test_counts_are_told_for_each_tick() -> None:
    assert Calls(10, 20, 30, 40, 50).for_each_of(10) == Calls(1, 2, 3, 4, 5)
