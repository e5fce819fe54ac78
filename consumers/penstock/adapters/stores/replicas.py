"""Reads a store's replicas, which have the same objects, while the store is unavailable.

Rule: `core.health.standby` decides which is asked: the store itself while it is healthy.
On a replica the entity tag must match the pin, because each store has version ids of its own. A
replica without the object proves nothing, because the copy may still arrive: the caller waits for
the store itself.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from typing import Final, NamedTuple, Protocol, TypeVar

from penstock.adapters.stores.names import name
from penstock.core.health.standby import Standby
from penstock.core.routing.store_choice import DEFAULT
from penstock.errors import Poison, Unreachable
from penstock.ports import Listed, Location, ObjectBody, Objects, Part

T = TypeVar("T")

# How long we wait for the answer of a store if another copy can be asked. This is longer than a
# slow answer of a healthy store takes, but so short that an object takes less than 5 s in all if a
# replica then answers.
PATIENCE_S: Final = 4.0
# How often an unavailable store is tried again.
LOOK_AGAIN_S: Final = 5.0


class StoreWatcher(Protocol):
    """A watcher is told of reads, and of stores that did not answer."""

    def store_read(self, store: str, nbytes: int) -> None: ...

    def store_failed_over(self, store: str) -> None: ...


class Copy(NamedTuple):
    """A store with a copy of the objects, and the store's name."""

    store: str
    objects: Objects


class ReplicatedObjects:
    """Implements the port `Objects` over several copies of a store. The first copy is the store
    itself.
    """

    def __init__(self, copies: Sequence[Copy], watcher: StoreWatcher | None = None) -> None:
        self._copies = copies
        self._watcher = watcher
        self._standby = Standby(len(copies), look_again_s=LOOK_AGAIN_S)

    async def open(self, location: Location) -> ObjectBody:
        copy, body = await self._ask(
            location, lambda copy, here: copy.objects.open(here), PATIENCE_S
        )
        return ReplicaBody(body, copy is self._copies[0], self._count_for(copy))

    async def part(self, location: Location, start: int, stop: int | None = None) -> Part:
        copy, part = await self._ask(
            location, lambda copy, here: copy.objects.part(here, start, stop), None
        )
        self._count_for(copy)(len(part.data))
        return part if copy is self._copies[0] else part._replace(version_id=None)

    def list(self, bucket: str, pattern: str, store: str = DEFAULT) -> AsyncIterator[Listed]:
        """Always list the store itself, because a replica's listing may silently lack objects."""
        return self._copies[0].objects.list(bucket, pattern, store)

    async def aclose(self) -> None:
        """Closes nothing: `Stores` owns every copy and closes it."""

    async def _ask(
        self,
        location: Location,
        ask: Callable[[Copy, Location], Awaitable[T]],
        patience_s: float | None,
    ) -> tuple[Copy, T]:
        """`patience_s`: how long to wait for one copy if another one is left; None: without limit,
        for parts, because they may take long.
        """
        own = self._copies[0]
        failure = Unreachable(
            f"{name(location)}: {own.store} is unavailable, and no replica has it"
        )
        in_turn = self._in_turn()
        for number in in_turn:
            copy = self._copies[number]
            here = self._pinned(copy, location)
            try:
                async with asyncio.timeout(None if number == in_turn[-1] else patience_s):
                    answer = await ask(copy, here)
                self._standby.answered(number)
                return copy, answer
            except TimeoutError:
                failure = self._away(number, Unreachable(f"{name(here)}: no answer in time"))
            except Unreachable as error:
                failure = self._away(number, error)
            except Poison as error:
                self._standby.answered(number)
                if error.code != "not_found" or copy is own:
                    raise
        raise failure

    def _in_turn(self) -> Sequence[int]:
        """The copies to ask: the healthy ones, and one that is due to be tried again. Reads serve
        as probes.
        """
        due = self._standby.due(asyncio.get_running_loop().time())
        well = self._standby.well()
        return well if due is None else sorted([due, *well])

    def _pinned(self, copy: Copy, location: Location) -> Location:
        if copy is self._copies[0]:
            return location
        version_id = None if location.etag is not None else location.version_id
        return location._replace(version_id=version_id, store=copy.store)

    def _away(self, number: int, error: Unreachable) -> Unreachable:
        now_s = asyncio.get_running_loop().time()
        has_others = len(self._copies) > 1
        if self._standby.failed(number, now_s) and has_others and self._watcher is not None:
            self._watcher.store_failed_over(self._copies[number].store)
        return error

    def _count_for(self, copy: Copy) -> Callable[[int], None]:
        watcher = self._watcher
        if watcher is None:
            return lambda nbytes: None
        return lambda nbytes: watcher.store_read(copy.store, nbytes)


class ReplicaBody:
    """A body that counts the bytes read. It hides the version id of a replica, because the store
    itself does not know that id. So only the entity tag can pin the object later.
    """

    def __init__(self, body: ObjectBody, is_own: bool, count: Callable[[int], None]) -> None:
        self._body = body
        self.size = body.size
        self.etag = body.etag
        self.version_id = body.version_id if is_own else None
        self._count = count

    async def __aiter__(self) -> AsyncIterator[bytes]:
        async for chunk in self._body:
            self._count(len(chunk))
            yield chunk

    async def aclose(self) -> None:
        await self._body.aclose()
