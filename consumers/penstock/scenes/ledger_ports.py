"""The interfaces by which the ledger reaches Kafka.

Rule: our own engine sends by `KeyedWriter`, the Faust engine by Faust's producer. Both read the
changelog by `KafkaChangelog`. Owner: the ledger.
"""

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from typing import NamedTuple, Protocol


class Out(NamedTuple):
    """A record to be published. If `value` is None, the record is a tombstone. If `partition` is
    None, the key decides the partition. `at_ms`: the record's time stamp; None: now.
    """

    topic: str
    key: bytes
    value: bytes | None
    partition: int | None = None
    at_ms: int | None = None


# A function that says whether the topic accepts a record with this key and a value of this many
# bytes.
Fits = Callable[[str, bytes, int], bool]


class Send(Protocol):
    """Hands records to Kafka, those of one partition in order. Returns an awaitable, which ends
    when all records are delivered. Its result is the offset of each record, negative if Kafka did
    not tell the offset. The awaitable raises if a record was not delivered.
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
        """The records of each partition in order, from its offset in `begins` (or from the first
        record) to before its offset in `ends`.
        """
        ...
