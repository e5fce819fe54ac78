"""A place goes to the object that has waited for it the longest, even if others ask meanwhile."""

import asyncio
from collections.abc import Callable

import pytest

from penstock.process.asyncio_additions import LONG_S, Places
from penstock.tools.simulation.virtual_time import virtual_time


class Users:
    """`order`: the users of the only place, in the order in which they had it."""

    def __init__(self, most: int = 1, weight: Callable[[str], int] = lambda stream: 1) -> None:
        self.places = Places(most, weight, is_proven=str.isupper)
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


@pytest.mark.parametrize(
    ("most", "hang", "wait", "given"),
    [
        (2, "ab", ["c", "P"], ["P"]),
        (1, "a", ["c", "P"], ["P"]),
        (2, "ab", ["P", "Q", "P"], ["P", "Q", "P"]),  # one after the other
        (2, "ab", ["c", "d"], []),  # of nobody it is known that it would not hang, too
        (2, "aP", ["P"], []),  # it has one
        (2, "aP", ["P", "Q"], ["Q"]),
        (2, "PQ", ["R"], ["R"]),  # those that were read well may hang, too
        (2, "ab", ["P hangs", "Q"], ["P hangs"]),  # there is one more and no second
    ],
)
@virtual_time
async def test_a_proven_stream_gets_one_more_place_while_all_are_held_for_long(
    most: int, hang: str, wait: list[str], given: list[str]
) -> None:
    users = Users(most)
    async with asyncio.TaskGroup() as tasks:
        for name in hang:
            tasks.create_task(users.use(name, stays=True))
        await settled()
        for name in wait:
            tasks.create_task(users.use(name, stream=name[0], stays="hangs" in name))
        await settled()
        assert users.order == [*hang]
        await asyncio.sleep(2 * LONG_S)
        assert users.order[len(hang) :] == given
        assert users.places.used == 1.0
        users.leave.set()
    assert sorted(users.order) == sorted([*hang, *wait])
    assert users.places.has_free


@pytest.mark.parametrize(
    ("most", "hang", "wait", "order"),
    [
        (2, "ab", ["c", "d", "P", "Q"], ["P", "Q", "c", "d"]),
        (4, "abcd", ["e", "P"], ["P", "e"]),
        (4, "abPQ", ["e", "R"], ["R", "e"]),
        (4, "aPQR", ["e", "S"], ["e", "S"]),  # the others have less than half
        (2, "aP", ["c", "d"], ["c", "d"]),  # what nobody else wants is theirs
        (1, "a", ["c", "P"], ["c", "P"]),  # all that there is, if it is free
        (2, "ab", ["P", "c head"], ["c head", "P"]),
    ],
)
@virtual_time
async def test_streams_that_are_not_proven_have_half_of_the_places_while_a_proven_one_waits(
    most: int, hang: str, wait: list[str], order: list[str]
) -> None:
    users = Users(most)
    async with asyncio.TaskGroup() as tasks:
        last = tasks.create_task(users.use(hang[-1], stays=True))
        for name in hang[:-1]:
            tasks.create_task(users.use(name, stays=True))
        await settled()
        for name in wait:
            tasks.create_task(users.use(name, stream=name[0], is_head="head" in name))
        await settled()
        last.cancel()
        await settled()
        await asyncio.sleep(0)
        assert users.order[most:] == order
        users.leave.set()
