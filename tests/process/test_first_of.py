"""Whichever of several works ends first."""

import asyncio

import pytest

from penstock.errors import Fatal
from penstock.process.asyncio_additions import first_of
from penstock.tools.simulation.virtual_time import virtual_time


class Works:
    def __init__(self) -> None:
        self.ended: list[str] = []

    async def last(self, name: str, for_s: float, error: Exception | None = None) -> None:
        try:
            await asyncio.sleep(for_s)
            if error is not None:
                raise error
        finally:
            self.ended.append(name)


@virtual_time
async def test_the_others_have_ended_when_the_first_is_over() -> None:
    works, now_s = Works(), asyncio.get_running_loop().time
    await first_of(works.last("long", 60.0), works.last("short", 1.0))
    assert (works.ended, now_s()) == (["short", "long"], 1.0)
    assert asyncio.all_tasks() == {asyncio.current_task()}


@virtual_time
async def test_an_error_of_the_first_is_raised_as_it_is() -> None:
    works = Works()
    with pytest.raises(Fatal, match="it is gone"):
        await first_of(works.last("long", 60.0), works.last("short", 1.0, Fatal("it is gone")))
    assert sorted(works.ended) == ["long", "short"]


@virtual_time
async def test_a_cancellation_ends_all_of_them() -> None:
    works = Works()
    waiting = asyncio.ensure_future(first_of(works.last("a", 60.0), works.last("b", 60.0)))
    await asyncio.sleep(1.0)
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    assert sorted(works.ended) == ["a", "b"]
