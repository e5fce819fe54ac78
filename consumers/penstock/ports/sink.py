"""The output topics, by a producer or in transactions.

Rule: what is accepted is delivered in order, and its delivery is an awaitable. Owner: the
publish stage.
"""

from collections.abc import Awaitable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from penstock.ports.source import Commit, Where

Headers = list[tuple[str, bytes]]


@dataclass(slots=True)
class Outgoing:
    """Records for one output partition, in order. `headers`: of each record; None: none has any.
    `times_ms`: of each record; None: now.
    """

    topic: str
    partition: int
    keys: list[bytes | None]
    values: list[bytes]
    headers: list[Headers] | None = None
    times_ms: list[int] | None = None

    def add(self, key: bytes | None, values: Sequence[bytes], headers: Headers | None) -> None:
        """Append records with this key, all with these headers."""
        if headers is not None and self.headers is None:
            self.headers = [[] for _ in self.values]
        if self.headers is not None:
            self.headers += [headers or []] * len(values)
        self.keys += [key] * len(values)
        self.values += values


class Sink(Protocol):
    """The output topics. One task per output partition, so that order is the order of the calls."""

    async def start(self) -> None: ...

    async def partitions(self, topic: str) -> int:
        """How many partitions; 0 when there is no such topic. From then on no batch is larger than
        the topic takes. Raises `Unreachable`.
        """
        ...

    async def send(self, outgoing: Outgoing) -> Awaitable[None]:
        """Hand over; returns when accepted, with an awaitable that is done when the broker has it
        all.

        Blocks while earlier records of that partition are still being handed over: that
        is the brake.
        """
        ...

    def fits(self, topic: str, key: bytes | None, value_bytes: int) -> bool:
        """Would the topic take a record with a value of this many bytes?"""
        ...

    async def forget(self) -> None:
        """Nothing of what was accepted and is not delivered is sent from now on, except what is on
        the wire already. Nobody waits for its deliveries any more.
        """
        ...

    async def stop(self) -> None:
        """Deliver what was accepted, within the adapter's deadline; then close."""
        ...


class Passage(Protocol):
    """The way from input topics to other topics, exactly once: one transaction after the other. One
    task at a time.
    """

    async def publish(
        self, outgoing: Sequence[Outgoing], positions: Mapping[Where, Commit]
    ) -> None:
        """The records and the new positions become visible together, or neither. After a failure
        or a cancellation the passage is spent. Raises `Fenced`, `Transient`, `Fatal`.
        """
        ...

    async def close(self) -> None:
        """Take back what is not committed, within the adapter's deadline. Safe to call twice."""
        ...


class Producers(Protocol):
    """The transactional producers of a worker, known by number. What they publish carries the
    worker's membership: the group refuses it, as `Fenced`, once it has gone on without this member.
    """

    async def open(self, number: int) -> Passage:
        """On return, the last transaction of an earlier producer with this number is committed or
        aborted. Raises `Transient` or `Fatal`.
        """
        ...

    async def take_back_left(self) -> None:
        """Transactions that dead workers left open are ended within seconds, so that readers of
        committed records do not wait for them. Raises nothing.
        """
        ...

    def group(self, where: Where) -> str:
        """Positions of one group only may go into one transaction."""
        ...
