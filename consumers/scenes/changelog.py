"""The changelog: what sites remember, and whose turn it is to write it.

Rule: a worker that takes a partition over claims it with a record of its own; the offset of that
record is the claim. Every state carries the claim that it was written under. Nobody else writes
between two of ours, so our offsets follow each other: where they do not, another worker wrote, and
a claim among its records means that the partition is no longer ours. What was written under an
older claim than the last one is void. Owner: the ledger.
"""

from collections.abc import AsyncIterator, Mapping
from contextlib import aclosing

from consumers import config
from consumers.adapters.kafka_reader import open_reader
from consumers.scenes.boundary import Logged

# No site has an empty name.
CLAIM_KEY = b""
CLAIM_BYTES = 8


class Turn:
    """Of one partition: which offset our next record must get."""

    def __init__(self, claim: int) -> None:
        self.claim = claim
        self._next = claim + 1

    def seal(self, state: bytes) -> bytes:
        return self.claim.to_bytes(CLAIM_BYTES) + state

    def written(self, offset: int) -> range:
        """The offsets that others wrote since our last record; most often none."""
        others = range(self._next, offset)
        self._next = offset + 1
        return others


class Replay:
    """Of one partition: give it the records in order, then take the `states`."""

    def __init__(self) -> None:
        self._claim = -1
        self.states: dict[str, bytes] = {}
        # Sites whose last record is void: in a compacted topic it may soon be their only one.
        self.shadowed: set[str] = set()

    def add(self, record: Logged) -> None:
        if record.key == CLAIM_KEY:
            self._claim = record.offset
            return
        site = record.key.decode()
        if int.from_bytes(record.value[:CLAIM_BYTES]) < self._claim:
            self.shadowed.add(site)
            return
        self.shadowed.discard(site)
        self.states[site] = record.value[CLAIM_BYTES:]


class KafkaChangelog:
    """Reads it without a group."""

    def __init__(self, kafka: config.Kafka, topic: str) -> None:
        self._kafka = kafka
        self._topic = topic

    async def read(
        self, ends: Mapping[int, int], begins: Mapping[int, int] | None = None
    ) -> AsyncIterator[Logged]:
        async with open_reader(self._kafka, "read_uncommitted") as reader:
            if begins is None:
                found = await reader.spans(self._topic)
                begins = {each: begin for each, (begin, _) in found.items()}
            spans = {each: (begins[each], end) for each, end in ends.items()}
            async with aclosing(reader.runs(self._topic, spans, _quietly)) as runs:
                async for partition, records in runs:
                    for record in records:
                        yield Logged(partition, record.offset, record.key, record.value)


def _quietly(_: int) -> None:
    """Nobody looks on."""
