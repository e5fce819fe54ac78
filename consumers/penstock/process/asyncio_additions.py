"""What our code needs beyond asyncio, and the clocks of a process.

Rule: if a block fails, its own error is raised and one of the stop dropped; else one of the stop is
raised. If work beside a block fails, the block fails with it.
"""

import asyncio
import sys
import threading
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from functools import partial
from itertools import zip_longest
from typing import Any, Final, Generic, TypeVar

from penstock.errors import PenstockError, first_cause


@asynccontextmanager
async def stopped_after(stop: Callable[[], Awaitable[None]]) -> AsyncIterator[None]:
    """Call `stop` when the block is left, however it is left."""
    try:
        yield
    except BaseException:
        with suppress(PenstockError):
            await stop()
        raise
    await stop()


@asynccontextmanager
async def meanwhile(*works: Coroutine[Any, Any, None]) -> AsyncIterator[None]:
    """Run these coroutines until the block is left, then cancel them."""
    async with asyncio.TaskGroup() as tasks:
        running = [tasks.create_task(work) for work in works]
        try:
            yield
        finally:
            for task in running:
                task.cancel()


T = TypeVar("T")


async def side_by_side(works: Iterable[Coroutine[Any, Any, T]]) -> list[T]:
    """Returns the results in the order of the works. If one fails, the others are cancelled."""
    try:
        async with asyncio.TaskGroup() as tasks:
            running = [tasks.create_task(work) for work in works]
    except BaseExceptionGroup as group:
        raise first_cause(group) from group
    return [task.result() for task in running]


async def first_of(*works: Coroutine[Any, Any, object]) -> None:
    """Return when one of the works has ended; the others are cancelled, and have ended by then."""
    try:
        async with asyncio.TaskGroup() as tasks:
            running = [tasks.create_task(work) for work in works]
            await asyncio.wait(running, return_when=asyncio.FIRST_COMPLETED)
            for task in running:
                task.cancel()
    except BaseExceptionGroup as group:
        raise first_cause(group) from group


# A thread opens so many at a time: a slow one keeps few others waiting.
OPENED_BY_ONE: Final = 8


async def in_thread(work: Callable[[], T]) -> T:
    """Like `asyncio.to_thread`, but does not keep a large result alive. The futures between the
    thread and the event loop refer to each other until the garbage collector runs. If they held the
    result, megabytes would stay in memory until then.
    """
    box: list[T] = []
    await asyncio.to_thread(lambda: box.append(work()))
    return box.pop()


async def opened_in_thread(work: Callable[[], T], close: Callable[[T], object]) -> T:
    """Like `asyncio.to_thread`, for work that opens what must be closed. A thread goes on when its
    caller is cancelled: then `close` is called with what it opens, which nobody else would know.
    """
    box: list[T] = []
    is_wanted = True
    handing_over = threading.Lock()

    def open_() -> None:
        opened = work()
        with handing_over:
            if is_wanted:
                box.append(opened)
                return
        close(opened)

    try:
        await asyncio.to_thread(open_)
    except asyncio.CancelledError:
        with handing_over:
            is_wanted = False
        for opened in box:
            close(opened)
        raise
    return box.pop()


class OpenedInThreads(Generic[T]):
    """Opens many things that must be closed. What is asked for in one turn of the event loop is
    opened by few threads, because to call a thread takes longer than to open a file. A thread goes
    on when its caller is cancelled: then `close` is called with what it opens.
    """

    def __init__(self, close: Callable[[T], object]) -> None:
        self._close = close
        self._asked: list[tuple[Callable[[], T], asyncio.Future[T]]] = []

    async def opened(self, work: Callable[[], T]) -> T:
        loop = asyncio.get_running_loop()
        if not self._asked:
            loop.call_soon(self._begin)
        opening: asyncio.Future[T] = loop.create_future()
        self._asked.append((work, opening))
        return await taken(opening, self._close)

    def _begin(self) -> None:
        loop, asked = asyncio.get_running_loop(), self._asked
        self._asked = []
        for start in range(0, len(asked), OPENED_BY_ONE):
            works, openings = zip(*asked[start : start + OPENED_BY_ONE], strict=True)
            results: list[T | Exception] = []
            thread = loop.run_in_executor(None, _do_all, works, results)
            thread.add_done_callback(partial(self._tell, openings, results))

    def _tell(
        self,
        openings: Iterable[asyncio.Future[T]],
        results: list[T | Exception],
        _: asyncio.Future[None],
    ) -> None:
        for opening, result in zip_longest(openings, results):
            if opening.done():  # the caller was cancelled
                if result is not None and not isinstance(result, Exception):
                    self._close(result)
            elif isinstance(result, Exception):
                opening.set_exception(result)
            elif result is None:  # the thread was never begun, because the loop ends
                opening.cancel()
            else:
                opening.set_result(result)
        results.clear()


def _do_all(works: Iterable[Callable[[], T]], results: list[T | Exception]) -> None:
    for work in works:
        try:
            results.append(work())
        except Exception as error:
            results.append(error)


async def taken(turn: asyncio.Future[T], give_back: Callable[[T], object]) -> T:
    """Wait for the turn of a waiting task, and return its result. A turn is never lost:
    `give_back` is called with the result if the task was cancelled just after it had got its turn.
    """
    try:
        return await turn
    except asyncio.CancelledError:
        if turn.done() and not turn.cancelled():
            give_back(turn.result())
        raise


# An object that has had its place for so long may hang.
LONG_S: Final = 2.0


@dataclass(frozen=True, slots=True, eq=False)
class _Place:
    stream: str
    since_s: float


class Places:
    """At most `most` objects have a place at a time. A place is a decoder, or one of the reads that
    an object's store allows at a time. Of the other objects, one that holds up everything behind it
    comes first, then one whose stream has the fewest places for its weight, then the one that came
    first. So no stream keeps others waiting for more than its objects that have a place. Used from
    one event loop only.

    Objects of many streams may hang at once. `is_proven`: was this stream read well lately? While
    such a stream waits, half of the places are enough for all others; and if all places are held
    for long, it gets one more, if it has none.
    """

    def __init__(
        self,
        most: int = sys.maxsize,
        weight: Callable[[str], int] = lambda stream: 1,
        is_proven: Callable[[str], bool] = lambda stream: False,
    ) -> None:
        self._most = most
        self._weight = weight
        self._is_proven = is_proven
        self._given: dict[_Place, None] = {}  # the last that was given is the last
        # How many places each stream has that has some.
        self._held: dict[str, int] = {}
        self._waiting: dict[asyncio.Future[_Place], tuple[str, Callable[[], bool]]] = {}
        self._looking: asyncio.TimerHandle | None = None

    @property
    def most(self) -> int:
        """May be another number each time, but never one below 1."""
        return self._most

    @property
    def has_free(self) -> bool:
        return len(self._given) < self.most

    @property
    def used(self) -> float:
        """The share of the places that is taken."""
        return min(1.0, len(self._given) / self.most)

    @property
    def is_wanted(self) -> bool:
        """True if all places are taken and a waiting object holds up everything behind it."""
        return not self.has_free and any(is_head() for _, is_head in self._waiting.values())

    @asynccontextmanager
    async def one(
        self, stream: str, is_head: Callable[[], bool], review: Callable[[], object]
    ) -> AsyncIterator[None]:
        """A place, as soon as one is free. `is_head`: does the object that waits for the place hold
        up everything behind it? `review`: a function that is called when the wait begins.
        """
        if self.has_free:
            place = self._take(stream)
        else:
            place = await self._turn(stream, is_head, review)
        try:
            yield
        finally:
            self._hand_over(place)

    async def _turn(
        self, stream: str, is_head: Callable[[], bool], review: Callable[[], object]
    ) -> _Place:
        turn: asyncio.Future[_Place] = asyncio.get_running_loop().create_future()
        self._waiting[turn] = stream, is_head
        review()
        self._give()
        try:
            return await taken(turn, self._hand_over)
        finally:
            self._waiting.pop(turn, None)

    def _take(self, stream: str) -> _Place:
        place = _Place(stream, asyncio.get_running_loop().time())
        self._given[place] = None
        self._held[stream] = self._held.get(stream, 0) + 1
        return place

    def _hand_over(self, former: _Place) -> None:
        del self._given[former]
        self._held[former.stream] -= 1
        if not self._held[former.stream]:
            del self._held[former.stream]
        self._give()

    def _give(self) -> None:
        """Give places to the next waiting objects. A place counts as taken as soon as it is given,
        so that no new object gets ahead of those that wait.
        """
        while self._waiting and (turn := self._next()) is not None:
            stream, _ = self._waiting.pop(turn)
            if not turn.done():  # otherwise the object was cancelled while it waited
                turn.set_result(self._take(stream))
        if self._waiting and self._looking is None:
            self._looking = asyncio.get_running_loop().call_later(LONG_S / 2, self._look)

    def _look(self) -> None:
        self._looking = None
        self._give()

    def _next(self) -> asyncio.Future[_Place] | None:
        waiting = self._waiting
        if not self.has_free:
            if not self._is_stuck:
                return None
            waiting = {
                turn: of
                for turn, of in waiting.items()
                if of[0] not in self._held and self._is_proven(of[0])
            }
        waiting = {turn: of for turn, of in waiting.items() if of[1]()} or waiting
        others = sum(not self._is_proven(place.stream) for place in self._given)
        if others >= max(1, self.most // 2):
            proven = {turn: of for turn, of in waiting.items() if self._is_proven(of[0])}
            waiting = proven or waiting
        firsts: dict[str, asyncio.Future[_Place]] = {}
        for turn, (stream, _) in waiting.items():
            firsts.setdefault(stream, turn)
        return firsts[min(firsts, key=self._share)] if firsts else None

    @property
    def _is_stuck(self) -> bool:
        """True if each place, and no more than those, is held for long."""
        last = next(reversed(self._given))
        is_long = asyncio.get_running_loop().time() - last.since_s >= LONG_S
        return is_long and len(self._given) == self.most

    def _share(self, stream: str) -> float:
        return (self._held.get(stream, 0) + 1) / self._weight(stream)


class SystemClock:
    # The loop's `time()` returns the same. `now` is the function of the system itself, because it
    # is called at every step of an object.
    now = staticmethod(time.monotonic)

    def wall_ms(self) -> int:
        return time.time_ns() // 1_000_000
