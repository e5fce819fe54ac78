"""A place goes to the object that has waited for it the longest, even if others ask meanwhile."""

import asyncio
from collections.abc import Callable

import pytest

from penstock.process.asyncio_additions import Places


class Users:
    """`order`: the users of the only place, in the order in which they had it."""

    def __init__(self, most: int = 1, weight: Callable[[str], int] = lambda stream: 1) -> None:
        self.places = Places(most, weight)
        self.order: list[str] = []
        self.leave = asyncio.Event()

    async def use(
        self, name: str, *, is_head: bool = False, stays: bool = False, stream: str = ""
    ) -> None:
        async with self.places.one(stream or name, lambda: is_head, lambda: None):
            self.order.append(name)
            if stays:
                await self.leave.wait()


async def settled() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


async def test_one_who_asks_when_a_place_becomes_free_comes_after_those_who_wait() -> None:
    users = Users()
    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(users.use("first", stays=True))
        tasks.create_task(users.use("waits"))
        tasks.create_task(users.use("waits, too"))
        await settled()
        users.leave.set()
        tasks.create_task(users.use("asks when the place becomes free"))
    assert users.order == ["first", "waits", "waits, too", "asks when the place becomes free"]


async def test_an_object_that_holds_up_all_behind_it_comes_first() -> None:
    users = Users()
    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(users.use("first", stays=True))
        tasks.create_task(users.use("waits"))
        tasks.create_task(users.use("head", is_head=True))
        await settled()
        assert users.places.is_wanted
        users.leave.set()
    assert users.order == ["first", "head", "waits"]
    assert users.places.has_free


async def test_a_stream_that_has_places_lets_others_come_first() -> None:
    users = Users(most=2)
    async with asyncio.TaskGroup() as tasks:
        for name in ("1", "2"):
            tasks.create_task(users.use(name, stream="many", stays=True))
        for name in ("3", "4", "5"):
            tasks.create_task(users.use(name, stream="many"))
        tasks.create_task(users.use("another"))
        await settled()
        users.leave.set()
    assert users.order == ["1", "2", "another", "3", "4", "5"]


async def test_a_stream_of_twice_the_weight_has_twice_the_places() -> None:
    users = Users(most=3, weight={"heavy": 2, "light": 1}.__getitem__)
    async with asyncio.TaskGroup() as tasks:
        for name in ("1", "2", "3"):
            tasks.create_task(users.use(name, stream="light", stays=True))
        for name in ("4", "5", "6"):
            tasks.create_task(users.use(name, stream="light"))
        for name in ("a", "b", "c"):
            tasks.create_task(users.use(name, stream="heavy"))
        await settled()
        users.leave.set()
    assert users.order[3:6] == ["a", "b", "4"]


@pytest.mark.parametrize("moment", ["before the place is free", "after it was handed over"])
async def test_a_user_who_is_cancelled_leaves_its_turn_to_the_next(moment: str) -> None:
    users = Users()
    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(users.use("first", stays=True))
        cancelled = tasks.create_task(users.use("cancelled"))
        tasks.create_task(users.use("next"))
        await settled()
        users.leave.set()
        if moment == "after it was handed over":
            await asyncio.sleep(0)
        cancelled.cancel()
    assert users.order == ["first", "next"]
    assert users.places.has_free
