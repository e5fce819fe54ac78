"""The object stores: reading objects in one version, and writing result objects.

Rule: a reader gets bytes only of the version that it opened. A result object can be read only when
it is complete.
"""

from collections.abc import AsyncIterator
from typing import NamedTuple, Protocol

from penstock.core.routing.store_choice import DEFAULT


class Location(NamedTuple):
    """Names an object, and perhaps one version of it. If `version_id` is given, that version is
    read; else if `etag` is given, the version with this entity tag. `store`: the store's name in
    the configuration. `size`: how many bytes the object has, if somebody told it.
    """

    bucket: str
    key: str
    version_id: str | None = None
    etag: str | None = None
    store: str = DEFAULT
    size: int | None = None


# Any answer about this object shows that a store can be reached.
PROBE = Location("penstock", "probe-that-need-not-exist")
# The same about a bucket, by the key of an object that need not exist either.
PROBE_KEY = "penstock-probe"


class ObjectBody(Protocol):
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
    """Some bytes of an object. `size`: the size of the whole object."""

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

    async def open(self, location: Location) -> ObjectBody:
        """Start to read. Raises `Poison` (not_found, forbidden, changed), `Transient` or
        `Unreachable`.
        """
        ...

    async def part(self, location: Location, start: int, stop: int | None = None) -> Part:
        """Read bytes `start` to `stop` (half open; None: to the end) as a whole. A negative `start`
        counts from the end; if the object is shorter than that, all of it is read. Raises as `open`
        does. Raises `Poison` (changed) also if the object is not empty and `start` is at its end or
        behind its end.
        """
        ...

    def list(self, bucket: str, pattern: str, store: str = DEFAULT) -> AsyncIterator[Listed]:
        """The objects whose keys match the glob `pattern`, in the order of their keys. `*`, `?` and
        `[...]` match within a folder, and `**` matches across folders.
        """
        ...

    async def aclose(self) -> None: ...


class Stored(NamedTuple):
    """A complete result object. `version`: its version id, or its entity tag if the store tells no
    version id; None if the store tells neither.
    """

    version: str | None


class Upload(Protocol):
    """A result object that is being written. One task writes it, and ends the writing by `complete`
    or `abort`.
    """

    async def write(self, data: bytes) -> None:
        """Write the next bytes. This waits while too many earlier bytes are on their way, so that
        the caller slows down. Raises `Transient` if the adapter's own retries do not help, and
        `Fatal` if waiting cannot help.
        """
        ...

    async def complete(self) -> Stored:
        """Make the object readable. It replaces an earlier object of this name. Raises the errors
        of `write`; after such an error readers still see the earlier object, or none.
        """
        ...

    async def abort(self) -> None:
        """Remove the part that was written, if the store answers within the adapter's deadline."""
        ...


class ResultStore(Protocol):
    """Where result objects are written. Any number of tasks may use it at the same time, each for
    another name.
    """

    def begin(self, location: Location) -> Upload:
        """Begin a result object. Earlier workers may have begun objects under this name without
        ending them. In a folder and on S3 these are removed after the new object is complete; on S3
        only if the new object is too long for one request.
        """
        ...

    async def has(self, location: Location) -> bool:
        """Is there a complete object of this name? Raises as `Upload.write` does."""
        ...

    async def aclose(self) -> None: ...
