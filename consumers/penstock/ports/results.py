"""Where result objects are written.

Rule: a result can be read only when it is complete. Owner: the publish stage.
"""

from typing import NamedTuple, Protocol

from penstock.ports.objects import Location


class Stored(NamedTuple):
    """A complete result object: its version id, else its entity tag, if the store tells one."""

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
        """All is written: from now on the object can be read, in place of an earlier object of this
        name. Raises as `write` does; then readers see what they saw before.
        """
        ...

    async def abort(self) -> None:
        """Remove what was written, if the store answers within the adapter's deadline."""
        ...


class Results(Protocol):
    """Where result objects are written. Any number of tasks may use it, each for another name."""

    def begin(self, location: Location) -> Upload:
        """Begin a result object. An object that an earlier worker began under this name and did not
        end is removed, at the latest when the new object is too long for one request.
        """
        ...

    async def has(self, location: Location) -> bool:
        """Is there a complete object of this name? Raises as `Upload.write` does."""
        ...

    async def aclose(self) -> None: ...
