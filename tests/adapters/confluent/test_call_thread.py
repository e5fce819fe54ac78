"""Blocking calls on a thread: in their turn, with their answers in the event loop."""

import asyncio
import threading
from functools import partial

import pytest

from penstock.adapters.confluent.consumer_thread import CallThread


@pytest.fixture
async def thread() -> CallThread:
    return CallThread("test")


async def test_calls_are_made_one_after_the_other_off_the_loop(thread: CallThread) -> None:
    said: list[int] = []

    def say(number: int) -> int:
        said.append(number)
        return threading.get_ident()

    answers = [thread.call(partial(say, number)) for number in range(5)]
    others = set(await asyncio.gather(*answers))
    thread.end()
    assert said == list(range(5))
    assert len(others) == 1
    assert threading.get_ident() not in others


async def test_what_a_call_raises_is_raised_to_its_caller_and_the_next_is_made(
    thread: CallThread,
) -> None:
    failing = thread.call(lambda: 1 // 0)
    following = thread.call(lambda: 7)
    with pytest.raises(ZeroDivisionError):
        await failing
    assert await following == 7
    thread.end()


async def test_a_call_whose_caller_has_gone_is_not_made(thread: CallThread) -> None:
    free, said = threading.Event(), list[str]()
    first = thread.call(free.wait)
    second = thread.call(lambda: said.append("late"))
    second.cancel()
    free.set()
    await first
    await thread.call(lambda: None)
    thread.end()
    assert said == []


async def test_work_of_the_loop_within_a_call_may_ask_for_calls(thread: CallThread) -> None:
    loop = asyncio.get_running_loop()

    async def work() -> int:
        return await thread.call(lambda: 3) + 1

    assert await thread.call(lambda: thread.in_loop(work(), loop)) == 4
    assert await thread.call(lambda: 5) == 5
    thread.end()


async def test_what_is_made_apart_waits_for_the_end_of_the_call_around_it(
    thread: CallThread,
) -> None:
    loop, said = asyncio.get_running_loop(), list[str]()

    async def work() -> None:
        apart.append(thread.call(partial(said.append, "apart"), apart=True))
        apart.append(thread.call(partial(said.append, "apart, too"), apart=True))
        await thread.call(partial(said.append, "within"))

    def around() -> None:
        thread.in_loop(work(), loop)
        said.append("the end")

    apart = list[asyncio.Future[None]]()
    await thread.call(around)
    await thread.call(partial(said.append, "after"))
    await asyncio.gather(*apart)
    thread.end()
    assert said == ["within", "the end", "apart", "apart, too", "after"]
