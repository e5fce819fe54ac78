"""The objects of a job, in an order that is the same at every start, with the place of each.

Rule: a place has two parts: the number of a URL or file in the listing, and within that URL or file
the object's key (globs) or the number of the object's row (lists). So after a crash the next start
goes on behind the place that was reached. Keys that have come or gone meanwhile do not change the
places of other keys. Owner: `penstock produce`.
"""

from collections.abc import AsyncIterator, Callable, Sequence
from typing import Protocol

from penstock.adapters.inputs.urls import references
from penstock.core.routing.store_choice import StoreChoice
from penstock.errors import Poison, usage
from penstock.messages.reference import Reference
from penstock.ports import Location, Objects

# Places of one listing can be compared: within a URL or file, all are keys, or all are numbers.
At = tuple[int, int | str]
CHUNK = 1_000


class Listing(Protocol):
    @property
    def pin(self) -> str:
        """The version of the list; "" if it has none, like the listing of a bucket."""
        ...

    def chunks(self, after: At | None) -> AsyncIterator[Sequence[tuple[At, Reference]]]:
        """All references behind this place, each with its place. Raises `Fatal` if the listing
        cannot be read.
        """
        ...


class Globs:
    """URLs and globs, in their order. An object that is named without a glob must exist."""

    pin = ""

    def __init__(self, objects: Objects, urls: Sequence[str], places: StoreChoice) -> None:
        self._objects = objects
        self._urls = urls
        self._places = places

    async def chunks(self, after: At | None) -> AsyncIterator[Sequence[tuple[At, Reference]]]:
        first = 0 if after is None else after[0]
        for number, url in enumerate(self._urls[first:], first):
            chunk: list[tuple[At, Reference]] = []
            last = ""
            async for reference in references(self._objects, [url], self._places):
                at = (number, reference.key)
                if after is not None and reference.key < last:
                    raise usage(
                        f"the store lists {url} not in the order of its keys ({reference.key} "
                        f"after {last}), so nobody can tell where to go on; announce it from a "
                        "list: --manifest"
                    )
                last = reference.key
                if after is not None and at <= after:
                    continue
                if reference.size is None:
                    await self._look_for(reference)
                chunk.append((at, reference))
                if len(chunk) == CHUNK:
                    yield chunk
                    chunk = []
            yield chunk

    async def _look_for(self, reference: Reference) -> None:
        """Raises `Fatal` if an object that was named without a glob does not exist."""
        bucket, key = reference.bucket, reference.key
        store = self._places.of(reference.store, bucket, key)
        try:
            body = await self._objects.open(Location(bucket, key, store=store))
        except Poison as error:
            inside = f"{key.rstrip('/')}/**"
            is_missing = error.code == "not_found"
            hint = f"; if it is a folder, name what is in it: '.../{inside}'" if is_missing else ""
            raise usage(f"not announced: {error}{hint}") from None
        await body.aclose()


class Lists:
    """The rows of list files, in their order. `read` gives the references of one file's rows, with
    None for a row that makes no reference.
    """

    def __init__(
        self,
        pin: str,
        files: Sequence[Location],
        read: Callable[[Location], AsyncIterator[Sequence[Reference | None]]],
    ) -> None:
        self.pin = pin
        self._files = files
        self._read = read

    async def chunks(self, after: At | None) -> AsyncIterator[Sequence[tuple[At, Reference]]]:
        first = 0 if after is None else after[0]
        for number, file in enumerate(self._files[first:], first):
            row = 0
            async for found in self._read(file):
                placed = (((number, row), one) for row, one in enumerate(found, row))
                yield [(at, one) for at, one in placed if one and (after is None or at > after)]
                row += len(found)
