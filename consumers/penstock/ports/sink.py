"""The output topics: written by a plain producer, or in transactions.

Rule: accepted records are delivered in order, and their delivery can be awaited.
"""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, Protocol

from penstock.core.progress.cursor import Commit
from penstock.core.rows.origin import Where

Headers = list[tuple[str, bytes]]
# `Sink.fits` is asked before a record has its headers, so it leaves this room for them: enough for
# `traceparent`, which takes 70 bytes. Who gives records another header raises this number; the sink
# in memory refuses records whose headers take more.
HEADERS_BYTES: Final = 80


def header_bytes(headers: Headers) -> int:
    """What the headers of one record take in a batch, their two lengths included."""
    return sum(len(name) + len(value) + 4 for name, value in headers)


@dataclass(slots=True)
class Outgoing:
    """Records for one output partition, in order. `headers`: one list of headers for each record;
    None if no record has headers. `times_ms`: one time for each record; None if all records get the
    time of sending. `instead`: if the topic refuses a record because of its content, this function
    gets the record's index and value and the broker's words. It returns the values that are sent in
    its place, each of which may be refused in turn; None: the refusal is an error. `then`: records
    that such a refusal has brought up; they are sent when these records are delivered, and belong
    to the same delivery.
    """

    topic: str
    partition: int
    keys: list[bytes | None]
    values: list[bytes]
    headers: list[Headers] | None = None
    times_ms: list[int] | None = None
    instead: Callable[[int, bytes, str], Sequence[bytes] | None] | None = None
    then: list["Outgoing"] = field(default_factory=list)

    def add(self, key: bytes | None, values: Sequence[bytes], headers: Headers | None) -> None:
        """Append records that all have this key and these headers."""
        if headers is not None and self.headers is None:
            self.headers = [[] for _ in self.values]
        if self.headers is not None:
            self.headers += [headers or []] * len(values)
        self.keys += [key] * len(values)
        self.values += values


class Sink(Protocol):
    """The output topics. Only one task sends to an output partition, so the partition's records are
    in the order of that task's calls.
    """

    async def start(self) -> None: ...

    async def partitions(self, topic: str) -> int:
        """How many partitions the topic has; 0 if there is no such topic. After this call the sink
        knows the topic's limit, and makes no batch that is larger. Raises `Unreachable`.
        """
        ...

    async def send(self, outgoing: Outgoing) -> Awaitable[None]:
        """Hand over records. Returns when the records are accepted. The returned awaitable is done
        when the broker has all of them.

        This waits while earlier records of the partition are still being handed over, so that the
        caller slows down.
        """
        ...

    def fits(self, topic: str, key: bytes | None, value_bytes: int) -> bool:
        """Would the topic take a record with this key, a value of this many bytes, and headers of
        `HEADERS_BYTES`?
        """
        ...

    async def forget(self) -> None:
        """Drop all records that were accepted and are not delivered, except those that are on the
        wire already. The caller must no longer wait for the delivery of any of these records.
        """
        ...

    async def stop(self) -> None:
        """Deliver the accepted records, within the adapter's deadline; then close."""
        ...


class Passage(Protocol):
    """Publishes with exactly-once delivery, in one transaction after the other. Only one task at a
    time may use it.
    """

    async def publish(
        self, outgoing: Sequence[Outgoing], positions: Mapping[Where, Commit]
    ) -> None:
        """Publish the records and the new positions. Both become visible together, or neither does.
        After a failure or a cancellation the passage cannot be used again. Raises `Fenced`,
        `Expired`, `Transient` or `Fatal`.
        """
        ...

    async def close(self) -> None:
        """Abort the open transaction, within the adapter's deadline. May be called twice."""
        ...


class Producers(Protocol):
    """The transactional producers of a worker, each with a number. Their transactions carry the
    worker's membership of its group. Once the group has gone on without this member, the group
    refuses these transactions, and `Fenced` is raised.
    """

    async def open(self, number: int) -> Passage:
        """Open a producer. When this returns, the last transaction of an earlier producer with this
        number is committed or aborted. Raises `Transient` or `Fatal`.
        """
        ...

    async def take_back_left(self) -> None:
        """End the transactions that dead workers left open, within seconds, because readers of
        committed records wait for the end of open transactions. Raises nothing.
        """
        ...

    def group(self, where: Where) -> str:
        """The group of this partition. One transaction may carry positions of one group only."""
        ...
