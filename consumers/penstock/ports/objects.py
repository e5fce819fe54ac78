"""The object stores: which objects are read, in which version; where result objects are written.

Rule: a reader gets bytes of one version only, the version that was opened. A result object can be
read only when it is complete. Owner: the fetchers read, the publish stage writes.
"""

from collections.abc import AsyncIterator
from typing import NamedTuple, Protocol

from penstock.core.routing.store_choice import DEFAULT


class Location(NamedTuple):
    """Which bytes are read: those of exactly this key, in this version if one is given, else with
    this entity tag. `store`: the store's name in the configuration.
    """

    bucket: str
    key: str
    version_id: str | None = None
    etag: str | None = None
    store: str = DEFAULT


class Body(Protocol):
    """An object that is being read, pinned to one version. Iterate over it once, and call `aclose`
    in any case.
    """

    @property
    def size(self) -> int: ...

    @property
    def etag(self) -> str | None:
        """The entity tag as the store gives it, with its quotes."""
        ...

    @property
    def version_id(self) -> str | None: ...

    def __aiter__(self) -> AsyncIterator[bytes]:
        """Chunks of at most a few MiB. Raises `Transient` if a transfer breaks and the adapter's
        own retries do not help.
        """
        ...

    async def aclose(self) -> None: ...


class Part(NamedTuple):
    """Some bytes of an object, with the object's whole `size` and its version."""

    data: bytes
    size: int
    etag: str | None
    version_id: str | None


class Listed(NamedTuple):
    """An object in a listing."""

    location: Location
    size: int


class Objects(Protocol):
    """The object stores. Any number of tasks may use them."""

    async def open(self, location: Location) -> Body:
        """Start to read. Raises `Poison` (not_found, forbidden, changed), `Transient` or
        `Unreachable`.
        """
        ...

    async def part(self, location: Location, start: int, stop: int | None = None) -> Part:
        """Read bytes `start` to `stop` (half open; None: to the end) as a whole. A negative `start`
        counts from the end; if the object is shorter than that, all of it is read. Raises as `open`
        does. If the object is not empty and `start` is at its end or behind it, that is the
        `Poison` error `changed`.
        """
        ...

    def list(self, bucket: str, pattern: str, store: str = DEFAULT) -> AsyncIterator[Listed]:
        """The objects whose key matches the glob, in the order of their keys: `*`, `?` and `[...]`
        match within a folder, `**` across folders.
        """
        ...

    async def aclose(self) -> None: ...


class Stored(NamedTuple):
    """A complete result object. `version`: its version id; if the store tells none, its entity tag;
    None: the store tells neither.
    """

    version: str | None


class Upload(Protocol):
    """A result object that is being written, by one task. It ends by `complete` or `abort`."""

    async def write(self, data: bytes) -> None:
        """Write the next bytes. Waits while earlier bytes are on their way, and so slows the caller
        down. Raises `Transient` if the adapter's own retries do not help, `Fatal` for what waiting
        cannot mend.
        """
        ...

    async def complete(self) -> Stored:
        """Make the object readable, in the place of an earlier object of this name. Raises the
        errors of `write`; readers then see what they saw before.
        """
        ...

    async def abort(self) -> None:
        """Remove what was written, if the store answers within the adapter's deadline."""
        ...


class Results(Protocol):
    """Where result objects are written. Any number of tasks may use it, each for another name."""

    def begin(self, location: Location) -> Upload:
        """Begin a result object. In a folder and on S3, objects that earlier workers began under
        this name and did not end are removed after the new object is complete; on S3 only if the
        new object is too long for one request.
        """
        ...

    async def has(self, location: Location) -> bool:
        """Is there a complete object of this name? Raises as `Upload.write` does."""
        ...

    async def aclose(self) -> None: ...
