"""The object stores: what is read, and under which version.

Rule: what is read is pinned; only bytes of the version that was opened count. Owner: the fetchers.
"""

from collections.abc import AsyncIterator
from typing import NamedTuple, Protocol, Self

from penstock.core.routing.store_choice import DEFAULT


class Location(NamedTuple):
    """Which bytes: exactly this key, of this version when one is given, else of this entity tag.
    `store`: by its name in the configuration.
    """

    bucket: str
    key: str
    version_id: str | None = None
    etag: str | None = None
    store: str = DEFAULT


class Body(Protocol):
    """An object being read, pinned to one version. Iterate once; `aclose` in any case."""

    @property
    def size(self) -> int: ...

    @property
    def etag(self) -> str | None:
        """As the store gives it, quotes included."""
        ...

    @property
    def version_id(self) -> str | None: ...

    def __aiter__(self) -> AsyncIterator[bytes]:
        """Chunks of at most a few MiB. A broken transfer raises `Transient` after own retries."""
        ...

    async def aclose(self) -> None: ...


class WholeBody:
    """A body that is here already, in one chunk, or none if it is empty."""

    __slots__ = ("_given", "data", "etag", "version_id")

    def __init__(self, data: bytes, etag: str | None, version_id: str | None) -> None:
        self.data = data
        self.etag = etag
        self.version_id = version_id
        self._given = not data

    @property
    def size(self) -> int:
        return len(self.data)

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> bytes:
        if self._given:
            raise StopAsyncIteration
        self._given = True
        return self.data

    async def aclose(self) -> None:
        return


class Part(NamedTuple):
    """Some bytes of an object, and which version of which size they are of."""

    data: bytes
    size: int
    etag: str | None
    version_id: str | None


class Listed(NamedTuple):
    """An object as a listing names it."""

    location: Location
    size: int


class Objects(Protocol):
    """The object stores. Any number of tasks."""

    async def open(self, location: Location) -> Body:
        """Start reading. Raises `Poison` (not_found, forbidden, changed),
        `Transient` or `Unreachable`.
        """
        ...

    async def part(self, location: Location, start: int, stop: int | None = None) -> Part:
        """Bytes `start` to `stop` (half open; None: to the end), read whole. A negative `start`
        counts from the end; of a shorter object that is all of it. Raises as `open` does; a start
        at or behind the end of an object that is not empty is `changed`.
        """
        ...

    def list(self, bucket: str, pattern: str, store: str = DEFAULT) -> AsyncIterator[Listed]:
        """Objects whose key matches the glob (`*`, `?`, `[...]` within a folder, `**`
        across), by key.
        """
        ...

    async def aclose(self) -> None: ...
