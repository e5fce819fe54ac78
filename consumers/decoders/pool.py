"""The decoders of a worker: how many there are, and who has one.

Rule: at most `most` at a time, each started when it is first needed and used again and again. Who
does not come to the end of its object with one never gives it to another: it is ended. Owner: the
worker; used from its event loop only.
"""

import asyncio
import os
import signal
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Final

from consumers.decoders.decoder import LEAST_S, Decoder
from consumers.decoders.task import Died
from consumers.decoders.zygote import Zygote

MOST_BY_DEFAULT: Final = 4


def default_decoders() -> int:
    """As many as may be at work at once; two at least, so that one that hangs leaves another."""
    return min(max(2, len(os.sched_getaffinity(0))), MOST_BY_DEFAULT)


class Pool:
    """`most` None: as many as suit this machine. `ms_per_mib` and `least_s`: how long they may
    work. `died` is told of each that came to a bad end, by the name of the signal.
    """

    def __init__(
        self,
        most: int | None,
        ms_per_mib: float,
        died: Callable[[str], object] = lambda signal: None,
        *,
        least_s: float = LEAST_S,
    ) -> None:
        self._most = most or default_decoders()
        self._times = (ms_per_mib / 1000, least_s)
        self._died = died
        self._zygote: Zygote | None = None
        self._idle: list[Decoder] = []
        self._lent = 0
        self._waiting: dict[asyncio.Future[None], Callable[[], bool]] = {}

    @property
    def is_wanted(self) -> bool:
        return self._lent >= self._most and any(is_head() for is_head in self._waiting.values())

    @asynccontextmanager
    async def lent(
        self,
        is_head: Callable[[], bool],
        review: Callable[[], object],
        *,
        new: bool = False,
    ) -> AsyncIterator[Decoder]:
        await self._turn(is_head, review)
        self._lent += 1
        decoder: Decoder | None = None
        try:
            decoder = await self._taken(new=new)
            yield decoder
        except Died as died:
            self._died(signal.Signals(died.signal).name if died.signal else "none")
            raise
        finally:
            self._lent -= 1
            if decoder is not None:
                self._take_back(decoder)
            self._wake()

    async def aclose(self) -> None:
        for decoder in self._idle:
            decoder.close()
        self._idle.clear()
        if self._zygote is not None:
            self._zygote.close()

    async def _turn(self, is_head: Callable[[], bool], review: Callable[[], object]) -> None:
        """Those that everything waits for before the others."""
        while self._lent >= self._most:
            turn = asyncio.get_running_loop().create_future()
            self._waiting[turn] = is_head
            review()
            try:
                await turn
            except asyncio.CancelledError:
                self._waiting.pop(turn, None)
                self._wake()
                raise

    def _wake(self) -> None:
        if self._waiting and self._lent < self._most:
            heads = (turn for turn, is_head in self._waiting.items() if is_head())
            turn = next(heads, next(iter(self._waiting)))
            del self._waiting[turn]
            if not turn.done():
                turn.set_result(None)

    async def _taken(self, *, new: bool) -> Decoder:
        while self._idle and not new:
            decoder = self._idle.pop()
            if decoder.is_idle:
                return decoder
            decoder.close()  # somebody ended it while nobody used it
        if new and self._idle and self._lent + len(self._idle) > self._most:
            self._idle.pop().close()
        if self._zygote is None or not self._zygote.is_alive:
            self._zygote = Zygote()
        zygote = self._zygote
        number, end, memory = await zygote.fork()
        return Decoder(zygote, number, end, memory, *self._times)

    def _take_back(self, decoder: Decoder) -> None:
        if decoder.is_idle:
            self._idle.append(decoder)
        else:
            decoder.close()
