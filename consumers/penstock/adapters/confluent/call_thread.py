"""Makes the blocking calls of a client library, one after the other, on a thread of their own.

Rule: the event loop awaits the answers and never blocks on the thread. A call is skipped if its
caller was cancelled before the call began. Within a call the library may call us back, and the
callback may need work in the event loop. That work may need further calls, so the thread makes them
while it waits for the work. Only a call that the library forbids within a callback waits until the
outer call has ended. The thread is a daemon, so a call that hangs cannot keep the process from
ending. Owner: the source.
"""

import asyncio
import threading
from collections import deque
from collections.abc import Callable, Coroutine
from queue import SimpleQueue
from typing import Any, NamedTuple, TypeVar

T = TypeVar("T")


class _Call(NamedTuple):
    work: Callable[[], Any]
    answer: asyncio.Future[Any]
    loop: asyncio.AbstractEventLoop
    is_apart: bool


class CallThread:
    """The thread starts at once and runs until `end`."""

    def __init__(self, name: str) -> None:
        self._calls: SimpleQueue[_Call | None] = SimpleQueue()
        self._later: deque[_Call] = deque()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    def call(self, work: Callable[[], T], *, apart: bool = False) -> "asyncio.Future[T]":
        """Queue `work`; the future gets its result or its exception. `apart`: True if the call must
        never be made within another call.
        """
        loop = asyncio.get_running_loop()
        answer: asyncio.Future[T] = loop.create_future()
        self._calls.put(_Call(work, answer, loop, apart))
        return answer

    def end(self) -> None:
        """End the thread after the calls that are already queued."""
        self._calls.put(None)

    def in_loop(self, work: Coroutine[Any, Any, T], loop: asyncio.AbstractEventLoop) -> T:
        """Run `work` in the event loop and return its result. Call this only on the thread itself,
        within a call. Until the work is done, the thread makes the calls that are queued, except
        those that are `apart`.
        """
        done = asyncio.run_coroutine_threadsafe(work, loop)
        done.add_done_callback(lambda _: self._calls.put(None))
        self._run(is_within=True)
        return done.result()

    def _run(self, *, is_within: bool = False) -> None:
        """Make calls until the next None in the queue."""
        while (call := self._next(is_within)) is not None:
            if call.answer.cancelled():
                continue
            result, failure = None, None
            try:
                result = call.work()
            except BaseException as error:  # the caller's future raises it again
                failure = error
            try:
                call.loop.call_soon_threadsafe(_answer, call.answer, result, failure)
            except RuntimeError:
                return  # the event loop is closed: no caller is left
            # Free the result now: it may be large, and the next call may come much later.
            del call, result, failure

    def _next(self, is_within: bool) -> _Call | None:
        if self._later and not is_within:
            return self._later.popleft()
        while (call := self._calls.get()) is not None and is_within and call.is_apart:
            self._later.append(call)
        return call


def _answer(answer: asyncio.Future[Any], result: object, failure: BaseException | None) -> None:
    if answer.done():
        return
    if failure is not None:
        answer.set_exception(failure)
    else:
        answer.set_result(result)
