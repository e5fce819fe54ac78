"""Where result objects are written.

Rule: a result can be read when it is complete, and not before. Owner: the publish stage.
"""

from typing import NamedTuple, Protocol

from penstock.ports.objects import Location


class Stored(NamedTuple):
    """A result object that is complete: its version id, else its entity tag, if the store says."""

    version: str | None


class Upload(Protocol):
    """A result object being written. One task; ends by `complete` or by `abort`."""

    async def write(self, data: bytes) -> None:
        """The next bytes. Waits while those before are on their way: that is the brake. Raises
        `Transient` after own retries, `Fatal` for what waiting cannot mend.
        """
        ...

    async def complete(self) -> Stored:
        """All is written: from here on the object can be read, in place of one that was there
        before. Raises as `write` does, and then there is no more to be seen than before.
        """
        ...

    async def abort(self) -> None:
        """Nothing is left of it, as far as the store answers within the adapter's deadline."""
        ...


class Results(Protocol):
    """Where result objects are written. Any number of tasks, one for each name."""

    def begin(self, location: Location) -> Upload:
        """What an earlier worker began under this name and did not end is removed, at the latest
        when a new one is too long for one request.
        """
        ...

    async def has(self, location: Location) -> bool:
        """Is there a complete object of this name? Raises as `Upload.write` does."""
        ...

    async def aclose(self) -> None: ...
