"""Leaves out objects of other processes' shards, and those that have a result already.

Rule: a shard depends only on bucket and key, so processes that list the same objects divide them
without talking to each other. A result appears complete or not at all, so its object is done.
"""

from collections.abc import AsyncGenerator, AsyncIterator, Callable, Sequence
from hashlib import blake2b
from typing import Final, NamedTuple

from penstock.core.records.result_names import ResultNames
from penstock.core.routing.store_choice import StoreChoice
from penstock.core.routing.stream_keys import StreamNames
from penstock.core.rows.blocks import StoppedOwner, Ticket
from penstock.errors import Poison
from penstock.messages.reference import Reference
from penstock.ports import Location, Record, ResultStore, Where
from penstock.process.asyncio_additions import side_by_side

# For how many results the store is asked at a time.
LOOKS: Final = 64


class Shard(NamedTuple):
    """Shard `number` of `parts` shards. Numbers begin at 0."""

    number: int
    parts: int

    def has(self, reference: Reference) -> bool:
        name = f"{reference.bucket}/{reference.key}".encode()
        digest = blake2b(name, digest_size=8).digest()
        return int.from_bytes(digest) % self.parts == self.number


async def of_shard(references: AsyncIterator[Reference], shard: Shard) -> AsyncGenerator[Reference]:
    async for reference in references:
        if shard.has(reference):
            yield reference


class ExistingResults:
    """Asks the store of results whether the result of a reference exists. `names`: the names that
    the pipeline gives to results.
    """

    def __init__(
        self, results: ResultStore, names: ResultNames, stream_from: str | None, places: StoreChoice
    ) -> None:
        self._results = results
        self._names = names
        self._naming = StreamNames(stream_from)
        self._places = places

    async def left_out(
        self, references: AsyncIterator[Reference], skipped: Callable[[], object]
    ) -> AsyncGenerator[Reference]:
        """Yields the references without a result, in order. For each reference with a result,
        `skipped` is called.
        """
        some: list[Reference] = []
        async for reference in references:
            some.append(reference)
            if len(some) == LOOKS:
                for fresh in await self._without_result(some, skipped):
                    yield fresh
                some = []
        for fresh in await self._without_result(some, skipped):
            yield fresh

    async def _without_result(
        self, references: Sequence[Reference], skipped: Callable[[], object]
    ) -> list[Reference]:
        answers = await side_by_side(self._has_result(each) for each in references)
        left = []
        for reference, has_result in zip(references, answers, strict=True):
            if has_result:
                skipped()
            else:
                left.append(reference)
        return left

    async def _has_result(self, reference: Reference) -> bool:
        try:
            store = self._places.of(reference.store, reference.bucket, reference.key)
        except Poison:
            return False  # the pipeline answers the reference with this error
        stream = self._naming.of(reference, "")
        # Offset and partition do not matter, so they are 0: a template for result names that uses
        # them is refused here.
        where = Where("predict", 0)
        record = Record(where, 0, None, b"", 0)
        ticket = Ticket(StoppedOwner(where), record, 0, stream, reference, store=store)
        name = self._names.of(ticket)
        return await self._results.has(Location(name.bucket, name.key))
