"""The interfaces that the ledger uses.

Rule: `adapters/kafka/writer` and `changelog` implement them. Owner: the ledger.
"""

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from typing import NamedTuple, Protocol


class Out(NamedTuple):
    """A record on its way out. `value` None: a tombstone. `partition` None: its key says; `at_ms`
    None: now.
    """

    topic: str
    key: bytes
    value: bytes | None
    partition: int | None = None
    at_ms: int | None = None


# Does the topic take a record of this key with a value of so many bytes?
Fits = Callable[[str, bytes, int], bool]


class Send(Protocol):
    """Hands records over, those of one partition in order. The result, when all are delivered, is
    the offset of each; it raises if one fails. A negative offset: Kafka did not tell it.
    """

    async def __call__(self, records: Sequence[Out], /) -> Awaitable[Sequence[int]]: ...


class Logged(NamedTuple):
    partition: int
    offset: int
    key: bytes
    value: bytes | None


class Changelog(Protocol):
    """The topic with the states of sites, for reading."""

    def read(
        self, ends: Mapping[int, int], begins: Mapping[int, int] | None = None
    ) -> AsyncIterator[Logged]:
        """Records before `ends`, from the first one or from `begins`, each partition in order."""
        ...
