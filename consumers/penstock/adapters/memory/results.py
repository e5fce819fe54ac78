"""Result objects in memory for tests and simulations.

Rule: the results keep the same promises as the real adapters (all pass one contract suite), and
fail when the test says so. Owner: the test.
"""

import asyncio
from collections.abc import Awaitable, Callable

from penstock.ports import Location, Stored

Name = tuple[str, str]


class MemoryResults:
    """`objects`: the complete results. `written`: every version that was ever completed. `begun`:
    the uploads that are not complete. `on_step` may raise or wait before each write and each
    completion.
    """

    def __init__(self) -> None:
        self.objects: dict[Name, bytes] = {}
        self.written: dict[tuple[str, str, str], bytes] = {}
        self.begun: dict[Name, MemoryUpload] = {}
        self.on_step: Callable[[Location], Awaitable[None]] | None = None

    def begin(self, location: Location) -> "MemoryUpload":
        upload = MemoryUpload(self, location)
        self.begun[location.bucket, location.key] = upload
        return upload

    async def has(self, location: Location) -> bool:
        return (location.bucket, location.key) in self.objects

    async def aclose(self) -> None:
        return


class MemoryUpload:
    """The upload of one result. `begun` keeps only the latest upload of a name."""

    def __init__(self, results: MemoryResults, location: Location) -> None:
        self._results = results
        self._location = location
        self._name = (location.bucket, location.key)
        self._data: list[bytes] = []

    async def write(self, data: bytes) -> None:
        await self._step()
        self._data.append(data)

    async def complete(self) -> Stored:
        await self._step()
        results, name = self._results, self._name
        results.objects[name] = data = b"".join(self._data)
        version = f"v{len(results.written) + 1}"
        results.written[(*name, version)] = data
        self._forget()
        return Stored(version)

    async def abort(self) -> None:
        self._forget()

    async def _step(self) -> None:
        await asyncio.sleep(0)
        if self._results.on_step is not None:
            await self._results.on_step(self._location)

    def _forget(self) -> None:
        if self._results.begun.get(self._name) is self:
            del self._results.begun[self._name]
