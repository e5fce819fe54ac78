"""Real decoders for pipelines on virtual time: the clock stands still while one is at work."""

import asyncio
import atexit
import threading
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from functools import cache
from typing import Any, TypeVar

from penstock.decoders.pool import Pool
from penstock.decoders.protocol import Decoder, Said, Task

T = TypeVar("T")


class _Behind:
    def __init__(self, decoder: Decoder, wait: Callable[[Coroutine[Any, Any, Said]], Said]) -> None:
        self._decoder = decoder
        self._wait = wait

    async def turn(self, said: Task | bytes) -> Said:
        return self._wait(self._decoder.turn(said))


class DecodersBehind:
    """A pool on a loop of its own, for all tests of this process."""

    is_wanted = False
    used = 0.0

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        threading.Thread(target=self._loop.run_forever, name="decoders", daemon=True).start()
        self.deaths: list[str] = []
        self._pool = Pool(16, 4_000, self.deaths.append)
        atexit.register(lambda: self._wait(self._pool.aclose()))

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
        lent = self._pool.lent(stream, lambda: False, lambda: None, new=new, task=task)
        decoder = _Behind(self._wait(lent.__aenter__()), self._wait)
        try:
            yield decoder
        except BaseException as error:
            self._wait(lent.__aexit__(type(error), error, error.__traceback__))
            raise
        else:
            self._wait(lent.__aexit__(None, None, None))

    def is_proven(self, stream: str) -> bool:
        return False

    async def aclose(self) -> None:
        return

    def _wait(self, work: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result()


@cache
def decoders_behind() -> DecodersBehind:
    return DecodersBehind()
