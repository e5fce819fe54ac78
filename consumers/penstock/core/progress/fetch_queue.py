"""Which object of a lane is fetched next?

Rule: first in, first out. So the oldest object of a lane always has a fetcher, or is the next that
gets one; and only the oldest object may exceed a spent byte budget (lane/budget.py). If any other
object were preferred, the fetchers could all hold younger objects, which wait for the budget, while
the budget waits for the oldest one, which waits for a fetcher: nothing would ever move again.

Where order is kept per stream, this holds within each stream, and each stream has a share of the
fetchers and of the objects in work, so that a stream that cannot go on leaves room for the other
streams. Objects of one store never wait for objects of another store.
"""

from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import NamedTuple

from penstock.core.rows.blocks import Ticket


class FetchQueue(ABC):
    """The tickets of a lane that wait for a fetcher. `add` tickets and `take` the next; call
    `fetched` when a ticket's object was read, and `delivered` when the ticket's answers are out.
    `in_work`: the number of tickets that were added and are not delivered yet. It leaves out
    tickets that wait because their stream has used up its share.
    """

    def __init__(self) -> None:
        self.in_work = 0
        # For each store: a queue of the tickets that may be taken now.
        self._ready: dict[str, deque[Ticket]] = {}

    def __len__(self) -> int:
        """How many tickets may be taken now."""
        return sum(map(len, self._ready.values()))

    @property
    def stores(self) -> Iterable[str]:
        """All stores that had a ticket to take before. Some may have none now."""
        return self._ready

    def waiting(self, store: str) -> int:
        """How many tickets of this store may be taken now."""
        ready = self._ready.get(store)
        return len(ready) if ready else 0

    def take(self, store: str) -> Ticket:
        return self._ready[store].popleft()

    @abstractmethod
    def add(self, ticket: Ticket) -> None: ...

    @abstractmethod
    def fetched(self, ticket: Ticket) -> None: ...

    @abstractmethod
    def delivered(self, ticket: Ticket) -> None: ...

    def clear(self) -> None:
        self._ready.clear()

    def drop(self, queue: str) -> None:
        """Forget the waiting tickets of a stream."""
        for store, ready in self._ready.items():
            self._ready[store] = deque(ticket for ticket in ready if ticket.queue != queue)

    def _put(self, ticket: Ticket) -> None:
        ready = self._ready.get(ticket.store)
        if ready is None:
            ready = self._ready[ticket.store] = deque()
        ready.append(ticket)


class FetchQueueInOrder(FetchQueue):
    """All tickets in the order in which they were added."""

    def add(self, ticket: Ticket) -> None:
        self.in_work += 1
        self._put(ticket)

    def fetched(self, ticket: Ticket) -> None:
        """Nothing changes: any number of objects may be fetched at a time."""

    def delivered(self, ticket: Ticket) -> None:
        self.in_work -= 1


class StreamShare(NamedTuple):
    """How many objects one stream may have at most: a quarter, so that three stuck streams leave
    room for all others. `fetchers`: how many objects of a store may be fetched at a time now;
    `objects`: how many objects may be in work, including those that were fetched and are not
    delivered yet.
    """

    fetchers: Callable[[str], int]
    objects: int

    def fetching(self, store: str) -> int:
        return max(1, self.fetchers(store) // 4)

    @property
    def in_work(self) -> int:
        return max(1, self.objects // 4)


@dataclass(slots=True)
class _FetchedStream:
    """The tickets of one stream. `fetching`: how many of its tickets were given to the fetchers and
    are not read yet. `admitted`: tickets in work that wait until fewer objects of the stream are
    being fetched. `waiting`: tickets that wait until an object of the stream is delivered.
    """

    fetching: int = 0
    in_work: int = 0
    admitted: deque[Ticket] = field(default_factory=deque)
    waiting: deque[Ticket] = field(default_factory=deque)


class FetchQueueByStream(FetchQueue):
    """Takes the tickets in the order in which they were added, but leaves out streams that have
    used up their share. `in_work` grows only in `add`, so the lane, which calls `add`, decides how
    many tickets may be in work.
    """

    def __init__(self, share: StreamShare) -> None:
        super().__init__()
        self._share = share
        self._streams: dict[str, _FetchedStream] = {}

    def add(self, ticket: Ticket) -> None:
        stream = self._streams.setdefault(ticket.queue, _FetchedStream())
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
        # When a ticket is delivered, the stream's next ticket comes into work, so `in_work` stays
        # as it is.
        if stream.waiting:
            stream.admitted.append(stream.waiting.popleft())
            self._let_in(stream)
            return
        stream.in_work -= 1
        self.in_work -= 1
        if not stream.in_work:
            del self._streams[ticket.queue]

    def clear(self) -> None:
        super().clear()
        for stream in self._streams.values():
            stream.admitted.clear()
            stream.waiting.clear()

    def drop(self, queue: str) -> None:
        super().drop(queue)
        if stream := self._streams.pop(queue, None):
            self.in_work -= stream.in_work

    def _let_in(self, stream: _FetchedStream) -> None:
        share = self._share
        while stream.admitted and stream.fetching < share.fetching(stream.admitted[0].store):
            stream.fetching += 1
            self._put(stream.admitted.popleft())
