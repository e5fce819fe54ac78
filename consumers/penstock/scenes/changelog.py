"""The changelog: the states of sites, and which worker may write them; the interfaces by which the
ledger reaches Kafka, of our own engine or of Faust.

Rule: a worker that takes over a partition first writes a claim record, whose offset is the claim's
number; each state carries its worker's claim. While only one worker writes, the offsets of its
records are consecutive: a claim in a gap means that the partition belongs to another now. A state
whose claim is older than the last one is void. A site's end is an "ended" state with the claim,
then a tombstone; a tombstone without it is void, too.
"""

import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Mapping, Sequence
from contextlib import aclosing
from typing import NamedTuple, Protocol

from penstock import config
from penstock.adapters.kafka.reader import open_reader
from penstock.errors import Fatal


class Out(NamedTuple):
    """A record to be published. If `value` is None, the record is a tombstone. If `partition` is
    None, the key decides the partition. `at_ms`: the record's time stamp; None: now. `instead`: if
    the topic refuses the record by its content, this function gets the broker's words, and returns
    the letters to write elsewhere; None: the process ends. Faust's producer does not know it.
    """

    topic: str
    key: bytes
    value: bytes | None
    partition: int | None = None
    at_ms: int | None = None
    instead: Callable[[str], Sequence["Out"]] | None = None


# A function that says whether the topic accepts a record with this key and a value of this many
# bytes.
Fits = Callable[[str, bytes, int], bool]


class Send(Protocol):
    """Hands records to Kafka. Records of the same partition stay in order. Returns an awaitable,
    which ends when all records are delivered. Its result is the offset of each record, negative if
    Kafka did not tell the offset. The awaitable raises if a record was not delivered.
    """

    async def __call__(self, records: Sequence[Out], /) -> Awaitable[Sequence[int]]: ...


class Logged(NamedTuple):
    partition: int
    offset: int
    key: bytes
    value: bytes | None


class Changelog(Protocol):
    """Reads the topic that holds the states of sites."""

    def read(
        self, ends: Mapping[int, int], begins: Mapping[int, int] | None = None
    ) -> AsyncIterator[Logged]:
        """The records of each partition, in order. They begin at the partition's offset in
        `begins`, or at its first record if it is not in `begins`. They end before the partition's
        offset in `ends`.
        """
        ...


log = logging.getLogger(__name__)

# The key of a claim. No site has an empty name.
CLAIM_KEY = b""
CLAIM_BYTES = 8
# This is written instead of a state when a site has ended.
ENDED = b""


class Written(NamedTuple):
    """A site's last state that is not void, and the claim with which it was written."""

    claim: int
    state: bytes


class PartitionClaim:
    """Our claim to one partition, and the offset that our next record there must get."""

    def __init__(self, number: int) -> None:
        self.number = number
        self._next = number + 1

    def seal(self, state: bytes) -> bytes:
        return self.number.to_bytes(CLAIM_BYTES) + state

    def written(self, offset: int) -> range:
        """Note that our new record got this offset. Returns the offsets between our former record
        and the new one. The range is empty unless other workers have written in between.
        """
        others = range(self._next, offset)
        self._next = offset + 1
        return others


class PartitionStates:
    """Collects the states of one partition. Call `add` with each record, in order; then read
    `states`.
    """

    def __init__(self) -> None:
        self._claim = -1
        self.states: dict[str, Written] = {}
        # Sites whose last record is void. Compaction keeps only the last record of a site, so the
        # valid states of these sites must be written again.
        self.shadowed: set[str] = set()

    def add(self, record: Logged) -> None:
        if record.key == CLAIM_KEY:
            self._claim = record.offset
            return
        site, value = record.key.decode(), record.value
        # A tombstone has no claim. A tombstone of a site whose state is not "ended" was written by
        # a worker that had lost the partition.
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
    """A record of the changelog: the packed state of a site, or a tombstone (the value None)."""

    partition: int
    site: str
    packed: bytes | None


class ClaimedPartitions:
    """The partitions of the changelog that this worker has claimed, so that it may write to
    them.
    """

    def __init__(self, send: Send, changelog: Changelog, topic: str) -> None:
        self._send = send
        self._changelog = changelog
        self._topic = topic
        self._claims: dict[int, PartitionClaim] = {}

    @property
    def partitions(self) -> Collection[int]:
        return self._claims.keys()

    def close(self) -> None:
        self._claims.clear()

    async def claim(self, partitions: Collection[int]) -> dict[int, PartitionStates]:
        """Claim the partitions. States that other workers write after the claim are void. Returns,
        for each partition, the states that were written before the claim.
        """
        ours = list(partitions)
        claims = [Out(self._topic, CLAIM_KEY, b"claim", number) for number in ours]
        offsets = await (await self._send(claims))
        self._claims = {
            number: PartitionClaim(_known(at)) for number, at in zip(ours, offsets, strict=True)
        }
        states = {number: PartitionStates() for number in ours}
        ends = {number: claim.number for number, claim in self._claims.items()}
        async for record in self._changelog.read(ends):
            states[record.partition].add(record)
        return states

    async def append(self, states: Sequence[State]) -> dict[str, int]:
        """Write the states. Another worker that has lost a partition to us may still have written
        states to that partition. Returns the sites of such states, each with its partition. Raises
        `Fatal` if this worker has lost a partition itself.
        """
        outs = [
            Out(self._topic, each.site.encode(), self._sealed(each), each.partition)
            for each in states
        ]
        foreign: dict[str, int] = {}
        for state, offset in zip(states, await (await self._send(outs)), strict=True):
            sites = await self._foreign(state.partition, offset)
            foreign |= dict.fromkeys(sites, state.partition)
        return foreign

    def _sealed(self, state: State) -> bytes | None:
        return None if state.packed is None else self._claims[state.partition].seal(state.packed)

    async def _foreign(self, partition: int, offset: int) -> set[str]:
        """The sites of the states that another worker has written since our last record. Raises
        `Fatal` if that worker has claimed the partition.
        """
        others = self._claims[partition].written(_known(offset))
        if not others:
            return set()
        records = self._changelog.read({partition: others.stop}, {partition: others.start})
        keys = {record.key async for record in records}
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
                by_partition = await reader.spans(self._topic)
                begins = {each: begin for each, (begin, _) in by_partition.items()}
            spans = {each: (begins[each], end) for each, end in ends.items()}
            async with aclosing(reader.records(self._topic, spans)) as records:
                async for record in records:
                    yield Logged(record.partition, record.offset, record.key, record.value)
