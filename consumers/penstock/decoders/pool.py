"""The decoders of a worker: starts them, lends each to one object at a time, closes idle ones.

Rule: at most `most` work at a time. One is reused by default for objects of the same stream only:
an object that takes over its decoder sees and forges no rows of others. Idle ones are kept for
their streams, for some time and as far as their memory is bounded. One that did not finish its
object never gets another.
"""

import asyncio
import logging
import os
import random
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from typing import Final, Literal

from penstock.decoders.bounds import missing
from penstock.decoders.kernel_figures import signal_name
from penstock.decoders.pooled_decoder import PooledDecoder
from penstock.decoders.protocol import Decoder, Died, Task
from penstock.decoders.small_objects import SmallObjects
from penstock.decoders.zygote_client import Fork, Zygote
from penstock.errors import Transient
from penstock.process.asyncio_additions import Places

log = logging.getLogger(__name__)

# Even a small object gets this much time, because loading a library takes seconds on a busy
# machine.
LEAST_S: Final = 10.0
# A fork takes milliseconds, behind the start of the zygote half a second, and on a machine that is
# short of memory many times that.
FORK_S: Final = 60.0
_MIB: Final = 1 << 20
# Idle decoders may hold this much together: those of some 80 streams, if they read small objects.
IDLE_BYTES: Final = 512 * _MIB
# Of more idle decoders than may work at a time, one that had no object for so long ends. Another
# takes 8 ms of CPU to begin, and 16 ms until it reads: 0.03 % of a core for each stream.
IDLE_S: Final = 30.0
# Idle decoders are looked at so often. One that computes meanwhile is ended. An honest one takes a
# millisecond, to give memory back.
REVIEW_S: Final = 1.0
MOST_BY_DEFAULT: Final = 4
# So many streams are remembered as proven. What is kept of one takes 100 bytes.
MOST_PROVEN: Final = 5_000
# Streams share the decoders for so long after another one needed a decoder.
SHARED_S: Final = 5.0


def default_decoders() -> int:
    """One decoder for each core, but at most four; and at least two, so that one is left while the
    other hangs.
    """
    return min(max(2, len(os.sched_getaffinity(0))), MOST_BY_DEFAULT)


Reuse = Literal["stream", "object", "any"]


class Pool(Places):
    """`most`: how many decoders may work at a time; None: as many as fit this machine. A decoder
    may work on an object for `least_s`, and for `ms_per_mib` more with each MiB that it receives or
    sends.
    `died`: a function that is called for each decoder that died over an object, with the name of
    the signal. `reuse`: for which objects a decoder may be used again: those of the same stream,
    none, or any. `idle_bytes`: how much memory the idle ones may hold together, if they are more
    than `most`. `weight`: of a stream, where decoders are too few.
    """

    def __init__(
        self,
        most: int | None,
        ms_per_mib: float,
        died: Callable[[str], object] = lambda signal: None,
        *,
        reuse: Reuse = "stream",
        least_s: float = LEAST_S,
        idle_bytes: int = IDLE_BYTES,
        weight: Callable[[str], int] = lambda stream: 1,
    ) -> None:
        super().__init__(most or default_decoders(), weight, self.is_proven)
        self._times = (ms_per_mib / 1000, least_s)
        self._died = died
        self._reuse = reuse
        self._idle_bytes = 0 if reuse == "any" else idle_bytes
        self._zygote: Zygote | None = None
        # The idle decoders, each with the stream of its objects; the one that was used last is the
        # last.
        self._idle: list[tuple[str, PooledDecoder]] = []
        self._held_bytes = 0  # what they hold together
        self._reviewing: asyncio.TimerHandle | None = None
        # If decoders are used up, the next one is made while others work.
        self._wears_out = reuse == "object"
        self._spare: Fork | None = None
        # The streams whose last object was read well, by the hashes of their names, which may be
        # long; the one that was read last is the last.
        self._proven: dict[int, None] = {}
        self._small = SmallObjects(self.lent_alone, self._is_shared)
        self._last_stream: str | None = None
        self._shared_until_s = 0.0
        self._libraries: frozenset[str] = frozenset()
        for what in missing():
            log.warning("this system does not keep decoders from %s", what)

    def lent(
        self,
        stream: str,
        is_head: Callable[[], bool],
        review: Callable[[], object],
        *,
        new: bool = False,
        task: Task | None = None,
    ) -> AbstractAsyncContextManager[Decoder]:
        if task is None or task.whole is None or new:
            return self.lent_alone(stream, is_head, review, new=new)
        return self._small.lent(stream, is_head, review, task)

    @asynccontextmanager
    async def lent_alone(
        self,
        stream: str,
        is_head: Callable[[], bool],
        review: Callable[[], object],
        *,
        new: bool = False,
    ) -> AsyncIterator[PooledDecoder]:
        of = "" if self._reuse == "any" else stream
        async with self.one(stream, is_head, review):
            if stream != self._last_stream:
                now_s = asyncio.get_running_loop().time()
                self._shared_until_s = 0.0 if self._last_stream is None else now_s + SHARED_S
                self._last_stream = stream
            decoder = (None if new else self._known(of)) or await self._fresh()
            try:
                yield decoder
            except Died as died:
                self._note(stream, is_proven=False)
                self._died(signal_name(died.signal) if died.signal else "none")
                raise
            finally:
                if decoder.is_idle and not decoder.is_new:
                    self._note(stream, is_proven=decoder.was_quick)
                self._libraries |= decoder.libraries
                if decoder.is_idle and self._reuse != "object":
                    decoder.idle_since_s = asyncio.get_running_loop().time()
                    self._idle.append((of, decoder))
                    self._held_bytes += decoder.held_bytes
                    self._make_room()
                    if self._reviewing is None:
                        self._review()
                else:
                    decoder.close()

    def is_proven(self, stream: str) -> bool:
        return hash(stream) in self._proven

    def _note(self, stream: str, *, is_proven: bool) -> None:
        self._proven.pop(hash(stream), None)
        if is_proven:
            self._proven[hash(stream)] = None
            if len(self._proven) > MOST_PROVEN:
                del self._proven[next(iter(self._proven))]

    def _is_shared(self) -> bool:
        return asyncio.get_running_loop().time() < self._shared_until_s

    async def aclose(self) -> None:
        for _, decoder in self._idle:
            decoder.close()
        self._idle.clear()
        if self._reviewing is not None:
            self._reviewing.cancel()
        self._drop_spare()
        if self._zygote is not None:
            self._zygote.close()

    def _known(self, of: str) -> PooledDecoder | None:
        """An idle decoder that has decoded objects of this stream and no other."""
        for place in reversed(range(len(self._idle))):
            stream, decoder = self._idle[place]
            if not decoder.is_idle:  # it died while it was idle
                self._popped(place).close()
            elif stream == of:
                return self._popped(place)
        return None

    def _popped(self, place: int) -> PooledDecoder:
        _, decoder = self._idle.pop(place)
        self._held_bytes -= decoder.held_bytes
        return decoder

    def _make_room(self) -> None:
        """End idle decoders that hold too much memory together. Which of them is left to chance:
        streams take turns, so the one that was idle longest is mostly the one that is needed next.
        """
        if self._has_room:
            return
        # By now, they may have given memory back.
        self._held_bytes = sum(decoder.weigh() for _, decoder in self._idle)
        while not self._has_room:
            self._popped(random.randrange(len(self._idle) - 1)).close()
            self._wears_out = True

    def _review(self) -> None:
        """Look at the idle decoders now and then."""
        ended_s = asyncio.get_running_loop().time() - IDLE_S
        while len(self._idle) > self.most and self._idle[0][1].idle_since_s <= ended_s:
            self._popped(0).close()
        for _, decoder in self._idle:
            if decoder.is_idle:
                decoder.review()
        self._held_bytes = sum(decoder.held_bytes for _, decoder in self._idle)
        self._make_room()
        self._reviewing = asyncio.get_running_loop().call_later(REVIEW_S, self._review)

    @property
    def _has_room(self) -> bool:
        return len(self._idle) <= self.most or self._held_bytes <= self._idle_bytes

    async def _fresh(self) -> PooledDecoder:
        if self._zygote is None or not self._zygote.is_alive:
            self._drop_spare()
            self._zygote = Zygote()
        zygote, fork, self._spare = self._zygote, self._spare, None
        if fork is not None and zygote.has_lost(fork):
            zygote.discard(fork)
            fork = None
        fork = fork or zygote.fork(self._libraries)
        if self._wears_out:
            with suppress(Transient):
                self._spare = zygote.fork(self._libraries)
        try:
            async with asyncio.timeout(FORK_S):
                await fork.number
            return PooledDecoder(zygote, fork, *self._times)
        except TimeoutError:
            zygote.close()
            zygote.discard(fork)
            raise Transient("the process that starts decoders did nothing and was ended") from None
        except OSError as error:
            zygote.discard(fork)
            raise Transient(f"no memory to share with a decoder: {error}") from error
        except BaseException:
            zygote.discard(fork)
            raise

    def _drop_spare(self) -> None:
        if self._zygote is not None and self._spare is not None:
            self._zygote.discard(self._spare)
            self._spare = None
