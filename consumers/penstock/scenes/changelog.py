"""The changelog: the states of sites, and which worker may write them.

Rule: a worker that takes over a partition first writes a claim record; the offset of that record is
the number of the claim. Every state is written with its worker's claim. Between two of our records
nobody else should write, so our offsets are consecutive. If there is a gap, another worker wrote:
if a claim is among its records, the partition is no longer ours. A state with an older claim than
the last one is void. When a site ends, first an "ended" state is written, with the claim, and then
a tombstone removes it. The tombstone has no value and so no claim: alone it proves nothing. Owner:
the ledger.
"""

import logging
from collections.abc import AsyncIterator, Collection, Mapping, Sequence
from contextlib import aclosing
from typing import NamedTuple

from penstock import config
from penstock.adapters.kafka.reader import open_reader
from penstock.errors import Fatal
from penstock.scenes.ledger_ports import Changelog, Logged, Out, Send

log = logging.getLogger(__name__)

# Cannot be taken for a site: no site has an empty name.
CLAIM_KEY = b""
CLAIM_BYTES = 8
# Written instead of a state when a site has ended.
ENDED = b""


class Written(NamedTuple):
    """A site's last state that counts, and the claim that it was written under."""

    claim: int
    state: bytes


class Turn:
    """For one partition: the offset that our next record must get."""

    def __init__(self, claim: int) -> None:
        self.claim = claim
        self._next = claim + 1

    def seal(self, state: bytes) -> bytes:
        return self.claim.to_bytes(CLAIM_BYTES) + state

    def written(self, offset: int) -> range:
        """The offsets between our last record and this one, written by others; usually none."""
        others = range(self._next, offset)
        self._next = offset + 1
        return others


class Replay:
    """For one partition: `add` the records in order, then take the `states`."""

    def __init__(self) -> None:
        self._claim = -1
        self.states: dict[str, Written] = {}
        # Sites whose last record is void: compaction may soon remove every other record of theirs.
        self.shadowed: set[str] = set()

    def add(self, record: Logged) -> None:
        if record.key == CLAIM_KEY:
            self._claim = record.offset
            return
        site, value = record.key.decode(), record.value
        # Has no claim. If the site has not ended, a worker that lost the partition wrote it.
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
    """A record of the changelog: the packed state of a site, or None for its tombstone."""

    partition: int
    site: str
    packed: bytes | None


class Book:
    """The partitions of the changelog that this worker has claimed and may write."""

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
        """Write the states. Returns the sites that another worker wrote meanwhile although it had
        lost the partition, with their partitions. Raises `Fatal` if we have lost it ourselves.
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
    """Reads the changelog without joining a group."""

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
            async with aclosing(reader.records(self._topic, spans)) as records:
                async for one in records:
                    yield Logged(one.partition, one.offset, one.key, one.value)
