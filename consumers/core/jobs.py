"""Which object of a lane is fetched next?

Rule: in input order. Where order is kept per stream, a stream has its share of the fetchers and of
the objects in work and no more, so that one that is held back leaves the rest to the others.
Objects of one store never wait for those of another.
Owner: the lane.
"""

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

from consumers.core.blocks import Ticket


class Jobs(Protocol):
    """`add` tickets, `take` the next; say `fetched` of one that was read, `delivered` of one that
    was answered. `in_work`: those that were added and neither delivered nor held back.
    """

    in_work: int

    def __len__(self) -> int:
        """How many may be taken now."""
        ...

    @property
    def stores(self) -> Iterable[str]:
        """Those of which some may be taken now, perhaps others."""
        ...

    def waiting(self, store: str) -> int:
        """How many of this store's may be taken now."""
        ...

    def add(self, ticket: Ticket) -> None: ...

    def take(self, store: str) -> Ticket: ...

    def fetched(self, ticket: Ticket) -> None: ...

    def delivered(self, ticket: Ticket) -> None: ...

    def clear(self) -> None: ...

    def drop(self, queue: str) -> None:
        """Forget a stream."""
        ...


class _Ready:
    """What may be taken now, a queue for each store."""

    def __init__(self) -> None:
        self._ready: dict[str, deque[Ticket]] = {}

    def __len__(self) -> int:
        return sum(map(len, self._ready.values()))

    @property
    def stores(self) -> Iterable[str]:
        return self._ready

    def waiting(self, store: str) -> int:
        ready = self._ready.get(store)
        return len(ready) if ready else 0

    def take(self, store: str) -> Ticket:
        return self._ready[store].popleft()

    def drop(self, queue: str) -> None:
        for store, ready in self._ready.items():
            self._ready[store] = deque(ticket for ticket in ready if ticket.queue != queue)

    def _put(self, ticket: Ticket) -> None:
        ready = self._ready.get(ticket.store)
        if ready is None:
            ready = self._ready[ticket.store] = deque()
        ready.append(ticket)


class JobsInOrder(_Ready):
    """First come, first served."""

    def __init__(self) -> None:
        super().__init__()
        self.in_work = 0

    def add(self, ticket: Ticket) -> None:
        self.in_work += 1
        self._put(ticket)

    def fetched(self, ticket: Ticket) -> None:
        """Any number may be fetched at a time."""

    def delivered(self, ticket: Ticket) -> None:
        self.in_work -= 1

    def clear(self) -> None:
        self._ready.clear()


class Share(NamedTuple):
    """What one stream may have: objects being fetched, and objects in work, fetched ones that are
    not delivered included.
    """

    fetching: int
    in_work: int


@dataclass(slots=True)
class _Stream:
    """`admitted` wait for a fetcher only, `waiting` for one of their own stream to be delivered."""

    fetching: int = 0
    in_work: int = 0
    admitted: deque[Ticket] = field(default_factory=deque)
    waiting: deque[Ticket] = field(default_factory=deque)


class JobsByStream(_Ready):
    """First come, first served among the streams that have not used up their share. `in_work` only
    grows by `add`: the lane, which adds, decides how many may be in work.
    """

    def __init__(self, share: Share) -> None:
        super().__init__()
        self.in_work = 0
        self._share = share
        self._streams: dict[str, _Stream] = {}

    def add(self, ticket: Ticket) -> None:
        stream = self._streams.setdefault(ticket.queue, _Stream())
        if stream.in_work >= self._share.in_work:
            stream.waiting.append(ticket)
            return
        stream.in_work += 1
        self.in_work += 1
        stream.admitted.append(ticket)
        self._let_in(stream)

    def fetched(self, ticket: Ticket) -> None:
        stream = self._streams[ticket.queue]
        stream.fetching -= 1
        self._let_in(stream)

    def delivered(self, ticket: Ticket) -> None:
        stream = self._streams[ticket.queue]
        if stream.waiting:
            stream.admitted.append(stream.waiting.popleft())
            self._let_in(stream)
            return
        stream.in_work -= 1
        self.in_work -= 1
        if not stream.in_work:
            del self._streams[ticket.queue]

    def clear(self) -> None:
        self._ready.clear()
        for stream in self._streams.values():
            stream.admitted.clear()
            stream.waiting.clear()

    def drop(self, queue: str) -> None:
        super().drop(queue)
        if stream := self._streams.pop(queue, None):
            self.in_work -= stream.in_work

    def _let_in(self, stream: _Stream) -> None:
        while stream.admitted and stream.fetching < self._share.fetching:
            stream.fetching += 1
            self._put(stream.admitted.popleft())
