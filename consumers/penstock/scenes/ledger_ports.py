"""The interfaces by which the ledger reaches Kafka.

Rule: `adapters/kafka/writer` and `changelog` implement them for our engine, and `faust/app` sends
by Faust. Owner: the ledger.
"""

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from typing import NamedTuple, Protocol


class Out(NamedTuple):
    """A record to be published. `value` None: a tombstone. `partition` None: the key decides which.
    `at_ms`: its time stamp; None: now.
    """

    topic: str
    key: bytes
    value: bytes | None
    partition: int | None = None
    at_ms: int | None = None


# Does the topic accept a record with this key and a value of this many bytes?
Fits = Callable[[str, bytes, int], bool]


class Send(Protocol):
    """Hands records to Kafka, those of one partition in order. Returns an awaitable, which ends
    when all are delivered, with the offset of each: negative if Kafka did not tell it. It raises if
    a record was not delivered.
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
        """Records before `ends`, from the first one or from `begins`, each partition in order."""
        ...
