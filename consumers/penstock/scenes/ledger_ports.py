"""The interfaces by which the ledger reaches Kafka, of our own engine or of Faust."""

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from typing import NamedTuple, Protocol


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
