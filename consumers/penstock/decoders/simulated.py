"""Decoders that are threads of this process, for the simulation.

Rule: a thread and its user take turns, so that only one of the two runs at a time. So what happens
depends only on the order of the turns, and a simulation can be repeated.
"""

import threading
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from queue import SimpleQueue

from penstock.decoders.protocol import Decoder, Said, Task, decode
from penstock.formats.runs import Run
from penstock.formats.source import Need
from penstock.process.asyncio_additions import Places


class _Abandoned(BaseException):
    """Raised in the thread of a decoder whose user has gone: it ends the reading of the object."""


class _Threaded:
    def __init__(self) -> None:
        self._answers: SimpleQueue[bytes | None] = SimpleQueue()
        self._said: SimpleQueue[Said | BaseException] = SimpleQueue()

    async def turn(self, message: Task | bytes) -> Said:
        if isinstance(message, Task):
            threading.Thread(
                target=self._work, args=(message,), name="decoder", daemon=True
            ).start()
        else:
            self._answers.put(message)
        answer = self._said.get()
        if isinstance(answer, BaseException):
            raise answer
        return answer

    def abandon(self) -> None:
        """Give up the thread without waiting for it. It ends when it next waits for an answer."""
        self._answers.put(None)

    def _work(self, task: Task) -> None:
        end: BaseException | None = None
        try:
            if last := decode(task, self._ask, self._ask):
                self._ask(last)
        except _Abandoned:
            pass
        except BaseException as error:  # `turn` raises it again
            end = error
        self._said.put(end)

    def _ask(self, message: Need | list[Run]) -> bytes:
        self._said.put(message)
        answer = self._answers.get()
        if answer is None:
            raise _Abandoned
        return answer


class DecodersAtHand(Places):
    @asynccontextmanager
    async def lent(
        self,
        stream: str,
        is_head: Callable[[], bool],
        review: Callable[[], object],
        *,
        new: bool = False,
        task: Task | None = None,
    ) -> AsyncIterator[Decoder]:
        async with self.one(stream, is_head, review):
            decoder = _Threaded()
            try:
                yield decoder
            finally:
                decoder.abandon()

    def is_proven(self, stream: str) -> bool:
        return False

    async def aclose(self) -> None:
        return
