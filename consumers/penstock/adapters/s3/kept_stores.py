"""obstore's stores, one for each bucket, kept for some time. Each has its own connections.

Rule: obstore's HTTP library ends a connection only after it was idle, and has no way to close one.
So a store is replaced as a whole: when it is old, so that servers which joined get their share; and
when a request is silent for too long, because the connection, and others of that store that were
idle for as long, may have been forgotten on their way. The request is then made once more. What
still reads from the former store keeps it until it is done. Owner: the clients that use obstore.
"""

import asyncio
import random
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Final, TypeVar

from penstock.adapters.http.connections import AGE_S, SILENCE_S, SILENT_TIMES
from penstock.adapters.s3.buckets import Buckets

if TYPE_CHECKING:
    from obstore.store import ObjectStore

T = TypeVar("T")

# The most stores that are kept. A bound is needed, because bucket names come from messages.
MAX_STORES: Final = 128


class _Kept:
    def __init__(self, store: "ObjectStore", now_s: float) -> None:
        self.store = store
        self.ends_s = now_s + AGE_S * random.uniform(2 / 3, 4 / 3)
        # How long the slowest answer took. None: there was no answer yet, so there is no connection
        # that could have been forgotten.
        self.slowest_s: float | None = None


class KeptStores:
    """`opens`: a function that opens a bucket, which takes some milliseconds."""

    def __init__(self, opens: Buckets) -> None:
        self._opens = opens
        self._kept: dict[str, _Kept] = {}

    def of(self, bucket: str) -> "ObjectStore":
        return self._of(bucket).store

    async def ask(
        self, bucket: str, question: Callable[["ObjectStore"], Awaitable[T]]
    ) -> tuple["ObjectStore", T]:
        """Returns the answer, and the store that gave it. The answer should come at once, so this
        is for the head of an object, not for its bytes.
        """
        kept = self._of(bucket)
        if kept.slowest_s is not None:
            try:
                async with asyncio.timeout(max(SILENCE_S, SILENT_TIMES * kept.slowest_s)):
                    return kept.store, await self._asked(kept, question)
            except TimeoutError:
                if self._kept.get(bucket) is kept:
                    del self._kept[bucket]
                kept = self._of(bucket)
        return kept.store, await self._asked(kept, question)

    def _of(self, bucket: str) -> _Kept:
        now_s = asyncio.get_running_loop().time()
        kept = self._kept.pop(bucket, None)
        if kept is None or now_s >= kept.ends_s:
            kept = _Kept(self._opens(bucket), now_s)
            if len(self._kept) >= MAX_STORES:
                del self._kept[next(iter(self._kept))]  # the one that was not used for longest
        self._kept[bucket] = kept
        return kept

    @staticmethod
    async def _asked(kept: _Kept, question: Callable[["ObjectStore"], Awaitable[T]]) -> T:
        now_s = asyncio.get_running_loop().time
        began_s = now_s()
        answer = await question(kept.store)
        kept.slowest_s = max(now_s() - began_s, kept.slowest_s or 0.0)
        return answer
