"""Small objects that wait for a decoder take one turn with it together.

Rule: only objects of one stream, whose bytes are at hand, and only as many as take the decoder a
moment; none waits for others to come. While other streams need decoders, too, each object takes a
turn of its own, so that no stream waits longer for a decoder than before. An object that takes more
than one turn is decoded alone; one that was with another that ended their decoder, by a new one, so
that it is certain which of them does so.
"""

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from itertools import zip_longest
from typing import Final, Protocol

from penstock.decoders.pooled_decoder import PooledDecoder
from penstock.decoders.protocol import Answer, Decoder, Died, Said, Task
from penstock.errors import Poison
from penstock.formats.runs import Run

# With the words of their tasks they are one piece in the inbox of a decoder.
MOST_BYTES: Final = 768 << 10


class Lend(Protocol):
    def __call__(
        self,
        stream: str,
        is_head: Callable[[], bool],
        review: Callable[[], object],
        *,
        new: bool = False,
    ) -> AbstractAsyncContextManager[PooledDecoder]: ...


class _WaitingObject:
    """`answer`: is set if the object was decoded with others, or must be decoded alone, or is now
    the first that waits. `by_new`: it must be decoded by a new decoder.
    """

    def __init__(self, task: Task, is_head: Callable[[], bool]) -> None:
        self.task = task
        self.is_head = is_head
        self.by_new = False
        self.answer: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()

    @property
    def nbytes(self) -> int:
        return len(self.task.whole or b"")

    def tell(self, answer: Answer) -> None:
        if not self.answer.done():  # otherwise its task was cancelled
            self.answer.set_result(answer)


class _Answered:
    """In place of a decoder, for an object that was decoded with others."""

    def __init__(self, answer: list[Run] | Poison) -> None:
        self._answer: list[Run] | Poison | None = answer

    async def turn(self, message: Task | bytes) -> Said:
        answer, self._answer = self._answer, None
        if isinstance(answer, Poison):
            raise answer
        return answer


class SmallObjects:
    """`is_shared`: do several streams need decoders now?"""

    def __init__(self, lend: Lend, is_shared: Callable[[], bool]) -> None:
        self._lend = lend
        self._is_shared = is_shared
        # The first of each stream waits for a decoder, the others for the first.
        self._waiting: dict[str, deque[_WaitingObject]] = {}

    @asynccontextmanager
    async def lent(
        self, stream: str, is_head: Callable[[], bool], review: Callable[[], object], task: Task
    ) -> AsyncIterator[Decoder]:
        """As of `Decoders`, for a task that brings its object."""
        ours, answer = _WaitingObject(task, is_head), None
        queue = self._waiting.setdefault(stream, deque())
        queue.append(ours)

        def has_head() -> bool:
            return any(each.is_head() for each in queue)

        taken: Sequence[_WaitingObject] = ()
        try:
            if queue[0] is not ours:
                answer = await ours.answer
            if queue and queue[0] is ours:
                async with self._lend(stream, has_head, review) as decoder:
                    taken = self._taken(stream, decoder.most_together)
                    if len(taken) == 1:
                        yield decoder
                        return
                    answer = await _together(decoder, taken)
        except Died:
            if len(taken) == 1:
                raise
            for each in taken:
                each.by_new = True
        finally:
            self._leave(stream, queue, ours)
        if answer is not None:
            yield _Answered(answer)
            return
        async with self._lend(stream, is_head, review, new=ours.by_new) as decoder:
            yield decoder

    def _taken(self, stream: str, most: int) -> Sequence[_WaitingObject]:
        """The first object and those that take its turn. Some are left for another decoder."""
        queue = self._waiting[stream]
        most = 1 if self._is_shared() else min(most, -(-len(queue) // 2))
        taken = [queue.popleft()]
        left_bytes = MOST_BYTES - taken[0].nbytes
        while queue and len(taken) < most and queue[0].nbytes <= left_bytes:
            left_bytes -= queue[0].nbytes
            taken.append(queue.popleft())
        self._call_first(stream, queue)
        return taken

    def _leave(self, stream: str, queue: deque[_WaitingObject], ours: _WaitingObject) -> None:
        if ours in queue:
            queue.remove(ours)
            self._call_first(stream, queue)

    def _call_first(self, stream: str, queue: deque[_WaitingObject]) -> None:
        if queue:
            queue[0].tell(None)
        else:
            del self._waiting[stream]


async def _together(decoder: PooledDecoder, taken: Sequence[_WaitingObject]) -> Answer:
    """Decode these, and tell all but the first, which is returned."""
    answers: Sequence[Answer] = ()
    try:
        answers = await decoder.together([each.task for each in taken])
    finally:
        for each, answer in zip_longest(taken[1:], answers[1:]):
            each.tell(answer)
    return answers[0]
