"""Runs a coroutine to its end for a caller that cannot await it.

Rule: the coroutine has a thread and an event loop of its own, because the caller's thread may have
a running loop already. If an exception, such as an interrupt, reaches the waiting caller, the
coroutine is ended before that exception is raised. Owner: `predict_sync`.
"""

import asyncio
from collections.abc import Callable, Coroutine
from contextlib import suppress
from functools import partial
from threading import Event, Thread
from typing import Any


def run_in_thread(work: Coroutine[Any, Any, None]) -> None:
    failed: list[BaseException] = []
    running: list[Callable[[], object]] = []
    ended, is_interrupted = Event(), Event()

    async def run() -> None:
        task, loop = asyncio.current_task(), asyncio.get_running_loop()
        assert task is not None
        running.append(partial(loop.call_soon_threadsafe, task.cancel))
        # The interrupt may have come before there was a task to cancel.
        if is_interrupted.is_set():
            work.close()
            return
        await work

    def work_on() -> None:
        try:
            asyncio.run(run())
        except BaseException as error:  # raised in the caller's thread
            failed.append(error)
        finally:
            ended.set()

    thread = Thread(target=work_on, name="predict_sync", daemon=True)
    try:
        thread.start()
        ended.wait()  # not `join`: if `join` is interrupted, Python 3.11 takes the thread for ended
    except BaseException:
        is_interrupted.set()
        with suppress(RuntimeError):  # the work has just ended, and its loop is closed
            for cancel in running:
                cancel()
        if thread.is_alive():
            thread.join()
        raise
    if failed:
        raise failed[0]
