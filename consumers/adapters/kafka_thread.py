"""Blocking calls of a client library, one after the other, on a thread of their own.

Rule: the event loop never waits for the thread, only for its answers; a call whose caller has gone
before its turn is not made. Where the library calls us back within a call and that takes work of
the event loop, further calls are made meanwhile, as that work may ask for them. The thread is a
daemon: a call that hangs keeps no process from ending. Owner: the source.
"""

import asyncio
import threading
from collections.abc import Callable, Coroutine
from queue import SimpleQueue
from typing import Any, NamedTuple, TypeVar

T = TypeVar("T")


class _Call(NamedTuple):
    work: Callable[[], Any]
    answer: asyncio.Future[Any]
    loop: asyncio.AbstractEventLoop


class CallThread:
    """Made in the event loop; ends with `end`."""

    def __init__(self, name: str) -> None:
        self._calls: SimpleQueue[_Call | None] = SimpleQueue()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    def call(self, work: Callable[[], T]) -> "asyncio.Future[T]":
        """In its turn. What `work` raises is what the future raises."""
        loop = asyncio.get_running_loop()
        answer: asyncio.Future[T] = loop.create_future()
        self._calls.put(_Call(work, answer, loop))
        return answer

    def end(self) -> None:
        """After the calls that were asked for."""
        self._calls.put(None)

    def in_loop(self, work: Coroutine[Any, Any, T], loop: asyncio.AbstractEventLoop) -> T:
        """From within a call of this thread: have it done in the event loop, and make the calls
        that come until then.
        """
        done = asyncio.run_coroutine_threadsafe(work, loop)
        done.add_done_callback(lambda _: self._calls.put(None))
        self._run()
        return done.result()

    def _run(self) -> None:
        """Until the next None."""
        while (call := self._calls.get()) is not None:
            if call.answer.cancelled():
                continue
            result, failure = None, None
            try:
                result = call.work()
            except BaseException as error:  # whatever it is, its caller raises it
                failure = error
            try:
                call.loop.call_soon_threadsafe(_answer, call.answer, result, failure)
            except RuntimeError:
                return  # the loop is closed: nobody waits any more
            # Results are large, and the next call may be long in coming.
            del call, result, failure


def _answer(answer: asyncio.Future[Any], result: object, failure: BaseException | None) -> None:
    if answer.done():
        return
    if failure is not None:
        answer.set_exception(failure)
    else:
        answer.set_result(result)
