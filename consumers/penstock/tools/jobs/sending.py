"""Sends references in bulk, and marks in each partition how much of the listing it has.

Rule: the batches of a partition leave in order, and Kafka keeps a batch whole or not at all. The
last record of each batch has a mark. So a partition's last mark says exactly which of its
references are on the topic, even if the sender died and its other batches were lost. Memory is
bounded: by `WAITING_BYTES` for references that wait to be sent, and by `UNACKNOWLEDGED_BYTES` for
those that were sent and are not acknowledged yet. A reference that the topic refuses is left out,
and costs no other. Owner: `penstock produce`.
"""

from collections import deque
from collections.abc import Awaitable, Sequence
from inspect import iscoroutine
from typing import NamedTuple

from penstock.messages.prediction import printable
from penstock.ports import Outgoing, Sink
from penstock.tools.jobs.globs_and_manifests import At
from penstock.tools.jobs.listing_position import MARK, Position

# A batch is sent when it has this size, a quarter of the largest that Kafka takes. Larger batches
# would not be faster.
SENT_BYTES = 256 << 10
WAITING_BYTES = 16 << 20
UNACKNOWLEDGED_BYTES = 16 << 20
# Kafka adds at most this many bytes to the key and value of a record.
_RECORD_BYTES = 24
# So many refused references are kept, to be told.
MOST_TOLD = 10
# A reference is told with so many characters, and the broker's words as well.
_TOLD_CHARS = 300


class _Waiting:
    """The references of one partition that wait to be sent. `last`: the place of the last
    reference.
    """

    def __init__(self, topic: str, partition: int) -> None:
        self.out = Outgoing(topic, partition, [], [])
        self.nbytes = 0
        self.last: At = (0, 0)


class _Sent(NamedTuple):
    acknowledged: Awaitable[None]
    nbytes: int
    records: int


class Sending:
    """`position`: makes the marks, and checks before each batch that this process still owns the
    listing's position. None: batches have no marks. `refused`: how many references the topic has
    refused. `told`: what it refused first, and why.
    """

    def __init__(self, sink: Sink, topic: str, partitions: int, position: Position | None) -> None:
        self.acknowledged = 0
        self.refused = 0
        self.told: list[str] = []
        self._sink = sink
        self._topic = topic
        self._position = position
        self._full_bytes = min(SENT_BYTES, WAITING_BYTES // partitions)
        self._waiting: dict[int, _Waiting] = {}
        self._sent: deque[_Sent] = deque()
        self._sent_bytes = 0

    def add(self, partition: int, key: bytes, value: bytes, at: At) -> bool:
        """Let a reference wait with the others of its partition. Returns True if so many wait now
        that the caller must `send` them.
        """
        waiting = self._waiting.get(partition)
        if waiting is None:
            waiting = self._waiting[partition] = _Waiting(self._topic, partition)
        waiting.out.keys.append(key)
        waiting.out.values.append(value)
        waiting.last = at
        waiting.nbytes += len(key) + len(value) + _RECORD_BYTES
        return waiting.nbytes >= self._full_bytes

    async def send(self, partition: int) -> None:
        """Send the references that wait for a partition, as one batch. Waits while too many bytes
        are not acknowledged.
        """
        waiting = self._waiting.pop(partition)
        out, count = waiting.out, len(waiting.out.values)
        out.instead = self._leave_out
        if self._position is not None:
            out.headers = [[] for _ in range(count - 1)]
            out.headers.append([(MARK, self._position.mark(waiting.last, count))])
        while self._sent and self._sent_bytes + waiting.nbytes > UNACKNOWLEDGED_BYTES:
            await self._next_acknowledged()
        if self._position is not None:
            await self._position.be_sure()
        self._sent.append(_Sent(await self._sink.send(out), waiting.nbytes, count))
        self._sent_bytes += waiting.nbytes

    async def settle(self) -> None:
        """Send all references that still wait, and return when all that were sent are
        acknowledged.
        """
        for partition in list(self._waiting):
            await self.send(partition)
        while self._sent:
            await self._next_acknowledged()

    def drop(self) -> None:
        """Call this if the command has failed. After this call, nobody awaits acknowledgements any
        more.
        """
        for sent in self._sent:
            if iscoroutine(sent.acknowledged):
                sent.acknowledged.close()
        self._sent.clear()

    def _leave_out(self, index: int, value: bytes, said: str) -> Sequence[bytes]:
        self.refused += 1
        self.acknowledged -= 1  # its batch counts it when the others are acknowledged
        if len(self.told) < MOST_TOLD:
            reference = printable(value[:_TOLD_CHARS].decode(errors="replace"))
            self.told.append(f"{reference}: {said[:_TOLD_CHARS]}")
        return []

    async def _next_acknowledged(self) -> None:
        sent = self._sent.popleft()
        await sent.acknowledged
        self._sent_bytes -= sent.nbytes
        self.acknowledged += sent.records
