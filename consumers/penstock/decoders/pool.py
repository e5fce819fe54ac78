"""The decoders of a worker: starts them, lends each to one object at a time, and ends them.

Rule: there are at most `most` at a time. Each is started when it is first needed, and then reused.
A decoder that did not finish its object is ended; it never gets another object. Owner: the worker;
used from its event loop only.
"""

import os
import signal
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Final

from penstock.decoders.decoder_client import LEAST_S, Decoder
from penstock.decoders.next_object import Places
from penstock.decoders.protocol import Died
from penstock.decoders.zygote_client import Zygote

MOST_BY_DEFAULT: Final = 4


def default_decoders() -> int:
    """One decoder for each core, up to four; at least two, so that one is left while the other
    hangs.
    """
    return min(max(2, len(os.sched_getaffinity(0))), MOST_BY_DEFAULT)


class Pool(Places):
    """`most`: how many decoders; None: as many as fit this machine. A decoder may work on an object
    for `least_s`, and for `ms_per_mib` more with each MiB that it receives or sends. `died` is
    called for each decoder that died over an object, with the name of the signal.
    """

    def __init__(
        self,
        most: int | None,
        ms_per_mib: float,
        died: Callable[[str], object] = lambda signal: None,
        *,
        least_s: float = LEAST_S,
    ) -> None:
        super().__init__(most or default_decoders())
        self._times = (ms_per_mib / 1000, least_s)
        self._died = died
        self._zygote: Zygote | None = None
        self._idle: list[Decoder] = []

    @asynccontextmanager
    async def lent(
        self, is_head: Callable[[], bool], review: Callable[[], object], *, new: bool = False
    ) -> AsyncIterator[Decoder]:
        async with self.one(is_head, review):
            decoder = await self._decoder(new=new)
            try:
                yield decoder
            except Died as died:
                self._died(signal.Signals(died.signal).name if died.signal else "none")
                raise
            finally:
                self._take_back(decoder)

    async def aclose(self) -> None:
        for decoder in self._idle:
            decoder.close()
        self._idle.clear()
        if self._zygote is not None:
            self._zygote.close()

    async def _decoder(self, *, new: bool) -> Decoder:
        while self._idle and not new:
            decoder = self._idle.pop()
            if decoder.is_idle:
                return decoder
            decoder.close()  # it died while it was idle
        if new and self._idle:  # else there would be more decoders than `most`
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
