"""What a thread opens is closed by somebody, also when its caller is cancelled."""

import asyncio
import threading

import pytest

from penstock.process.asyncio_additions import opened_in_thread


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
