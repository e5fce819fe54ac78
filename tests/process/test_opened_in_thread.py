"""What a thread opens is closed by somebody, also when its caller is cancelled."""

import asyncio
import threading

import pytest

from penstock.process.asyncio_additions import OPENED_BY_ONE, OpenedInThreads, opened_in_thread


class Door:
    """Opens when it is let; knows how often it was opened and closed."""

    def __init__(self) -> None:
        self.is_let = threading.Event()
        self.has_opened = threading.Event()
        self.calls: list[str] = []

    def open(self) -> str:
        assert self.is_let.wait(60.0)
        self.calls.append("open")
        self.has_opened.set()
        return "opened"

    def close(self, opened: str) -> None:
        self.calls.append(f"close what was {opened}")


async def cancelled(opening: "asyncio.Task[str]") -> None:
    opening.cancel()
    with pytest.raises(asyncio.CancelledError):
        await opening


async def test_what_was_opened_is_given_to_the_caller() -> None:
    door = Door()
    door.is_let.set()
    assert await opened_in_thread(door.open, door.close) == "opened"
    assert door.calls == ["open"]


async def test_what_opens_after_its_caller_was_cancelled_is_closed() -> None:
    door = Door()
    opening = asyncio.create_task(opened_in_thread(door.open, door.close))
    await asyncio.sleep(0)
    await cancelled(opening)
    assert door.calls == []
    door.is_let.set()
    await asyncio.get_running_loop().shutdown_default_executor()  # waits for its threads
    assert door.calls == ["open", "close what was opened"]


async def test_what_is_open_when_its_caller_is_cancelled_is_closed() -> None:
    door = Door()
    opening = asyncio.create_task(opened_in_thread(door.open, door.close))
    await asyncio.sleep(0)
    door.is_let.set()
    assert door.has_opened.wait(60.0)  # and the loop has had no turn to hear of it
    await cancelled(opening)
    await asyncio.get_running_loop().shutdown_default_executor()
    assert door.calls == ["open", "close what was opened"]


async def test_an_error_of_the_work_is_raised() -> None:
    def fails() -> str:
        raise FileNotFoundError("gone")

    with pytest.raises(FileNotFoundError, match="gone"):
        await opened_in_thread(fails, Door().close)


async def test_what_is_asked_for_in_one_turn_is_opened_by_few_threads() -> None:
    def number() -> int:
        threads.append(threading.get_ident())
        return len(threads)

    threads: list[int] = []
    opening = OpenedInThreads[int](print)
    numbers = await asyncio.gather(*[opening.opened(number) for _ in range(OPENED_BY_ONE)])
    assert numbers == list(range(1, OPENED_BY_ONE + 1))
    assert len(set(threads)) == 1


async def test_of_several_each_has_its_own_error_and_what_nobody_wants_is_closed() -> None:
    def fails() -> str:
        raise FileNotFoundError("gone")

    door = Door()
    opening = OpenedInThreads[str](door.close)
    works = (door.open, fails, door.open, door.open)
    asked = [asyncio.create_task(opening.opened(work)) for work in works]
    await asyncio.sleep(0)
    await cancelled(asked[0])
    await asyncio.sleep(0)
    await cancelled(asked[2])
    door.is_let.set()
    with pytest.raises(FileNotFoundError, match="gone"):
        await asked[1]
    assert await asked[3] == "opened"
    assert door.calls == [*["open"] * 3, *["close what was opened"] * 2]
