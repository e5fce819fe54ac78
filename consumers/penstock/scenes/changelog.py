"""The changelog: the states of sites, and which worker may write them.

Rule: a worker that takes a partition over claims it with a record of its own; the offset of that
record is the claim. Every state carries the claim that it was written under. Nobody else writes
between two of ours, so our offsets follow each other: where they do not, another worker wrote, and
a claim among its records means that the partition is no longer ours. What was written under an
older claim than the last one is void. A site that ends is written as ended, under a claim like any
state, and then removed by a tombstone, which can carry none and says nothing by itself. Owner: the
ledger.
"""

import logging
from collections.abc import AsyncIterator, Collection, Mapping, Sequence
from contextlib import aclosing
from typing import NamedTuple

from penstock import config
from penstock.adapters.kafka.reader import open_reader
from penstock.errors import Fatal
from penstock.scenes.boundary import Changelog, Logged, Out, Send

log = logging.getLogger(__name__)

# No site has an empty name.
CLAIM_KEY = b""
CLAIM_BYTES = 8
# In the place of a state.
ENDED = b""


class Written(NamedTuple):
    """A site's last state that counts, and the claim that it was written under."""

    claim: int
    state: bytes


class Turn:
    """Of one partition: the offset that our next record must get."""

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
        self.states: dict[str, Written] = {}
        # Sites whose last record is void: in a compacted topic it may soon be their only one.
        self.shadowed: set[str] = set()

    def add(self, record: Logged) -> None:
        if record.key == CLAIM_KEY:
            self._claim = record.offset
            return
        site, value = record.key.decode(), record.value
        # Where a site is not ended, its tombstone is of a worker that has lost the partition.
        claim = -1 if value is None else int.from_bytes(value[:CLAIM_BYTES])
        if value is None or claim < self._claim:
            self.shadowed.add(site)
            return
        self.shadowed.discard(site)
        state = value[CLAIM_BYTES:]
        if state == ENDED:
            self.states.pop(site, None)
        else:
            self.states[site] = Written(claim, state)


class State(NamedTuple):
    """A record of the changelog: a site's state, packed; None is its tombstone."""

    partition: int
    site: str
    packed: bytes | None


class Book:
    """The changelog's partitions of one owner, which it alone may write."""

    def __init__(self, send: Send, changelog: Changelog, topic: str) -> None:
        self._send = send
        self._changelog = changelog
        self._topic = topic
        self._turns: dict[int, Turn] = {}

    @property
    def partitions(self) -> Collection[int]:
        return self._turns.keys()

    def close(self) -> None:
        self._turns.clear()

    async def claim(self, partitions: Collection[int]) -> dict[int, Replay]:
        """Claim the partitions: from now on no other worker's decisions count. Returns the states
        that counted until then.
        """
        ours = list(partitions)
        claims = [Out(self._topic, CLAIM_KEY, b"claim", number) for number in ours]
        offsets = await (await self._send(claims))
        self._turns = {number: Turn(_known(at)) for number, at in zip(ours, offsets, strict=True)}
        replays = {number: Replay() for number in ours}
        ends = {number: turn.claim for number, turn in self._turns.items()}
        async for record in self._changelog.read(ends):
            replays[record.partition].add(record)
        return replays

    async def append(self, states: Sequence[State]) -> dict[str, int]:
        """The sites that another worker, which had lost the partition, wrote meanwhile, with their
        partitions. Raises `Fatal` if it is we who have lost it.
        """
        outs = [
            Out(self._topic, each.site.encode(), self._sealed(each), each.partition)
            for each in states
        ]
        foreign: dict[str, int] = {}
        for state, offset in zip(states, await (await self._send(outs)), strict=True):
            found = await self._foreign(state.partition, offset)
            foreign |= dict.fromkeys(found, state.partition)
        return foreign

    def _sealed(self, state: State) -> bytes | None:
        return None if state.packed is None else self._turns[state.partition].seal(state.packed)

    async def _foreign(self, partition: int, offset: int) -> set[str]:
        """The sites that another worker wrote since our last record. Raises `Fatal` if it has
        claimed the partition.
        """
        others = self._turns[partition].written(_known(offset))
        if not others:
            return set()
        found = self._changelog.read({partition: others.stop}, {partition: others.start})
        keys = {record.key async for record in found}
        if CLAIM_KEY in keys:
            raise Fatal(
                f"another worker has taken over partition {partition}: this one was silent for "
                "too long. Nothing that it decided since was published; start it again."
            )
        log.warning("partition %d: a worker that had lost it wrote once more", partition)
        return {key.decode() for key in keys}


def _known(offset: int) -> int:
    if offset < 0:
        raise Fatal("Kafka did not say where a record of the changelog stands; start again")
    return offset


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
    """Report progress to nobody."""
