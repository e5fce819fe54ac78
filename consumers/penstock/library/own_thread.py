"""Runs a call to its end for a caller who is no coroutine, or whose thread has an event loop.

Rule: the call has a loop and a thread of its own. An exception that reaches the waiting caller, as
an interrupt does, ends the call before it is raised. Owner: `predict_sync`.
"""

import asyncio
from collections.abc import Coroutine
from threading import Event, Thread
from typing import Any

from penstock.errors import PenstockError


def run_in_thread(work: Coroutine[Any, Any, None]) -> None:
    failed: list[BaseException] = []
    running: list[tuple[asyncio.AbstractEventLoop, asyncio.Task[None]]] = []
    ended = Event()

    async def run() -> None:
        task = asyncio.ensure_future(work)
        running.append((asyncio.get_running_loop(), task))
        await task

    def work_on() -> None:
        try:
            asyncio.run(run())
        except BaseException as error:  # raised in the caller's thread
            failed.append(error)
        finally:
            ended.set()

    thread = Thread(target=work_on, name="predict_sync", daemon=True)
    thread.start()
    try:
        ended.wait()  # and no join: Python 3.11 takes a thread for ended whose join is interrupted
    except BaseException:
        for loop, task in running:
            loop.call_soon_threadsafe(task.cancel)
        thread.join()
        raise
    if failed and isinstance(failed[0], PenstockError):
        raise failed[0].with_traceback(None) from None
    if failed:
        raise failed[0]
