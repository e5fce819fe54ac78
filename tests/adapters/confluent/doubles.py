"""A consumer of librdkafka that does what a test says, in the place of `confluent_kafka.Consumer`.

Rule: like the real one it calls back within a read only, and waits there. Owner: the tests.
"""

import time
from collections.abc import Callable, Collection, Sequence
from contextlib import suppress
from queue import Empty, SimpleQueue
from types import SimpleNamespace
from typing import Any

from confluent_kafka import KafkaError, KafkaException, TopicPartition

TOPIC = "refs"
MEMBERSHIP = b"CGMDv2:" + (1).to_bytes(4, "little") + b"group\0member\0" + b"\1"


class Message:
    """A record of partition 0, or with a `code` word of its state."""

    def __init__(self, offset: int | None, code: int | None = None) -> None:
        self._offset, self._code = offset, code

    def error(self) -> KafkaError | None:
        return None if self._code is None else KafkaError(self._code)

    def topic(self) -> str:
        return TOPIC

    def partition(self) -> int:
        return 0

    def offset(self) -> int | None:
        return self._offset

    def key(self) -> None: ...

    def headers(self) -> None: ...

    def value(self) -> bytes:
        return b"{}"

    def timestamp(self) -> tuple[int, int]:
        return 1, 1_000


def places(*numbers: int) -> list[Any]:
    return [TopicPartition(TOPIC, number) for number in numbers]


class Consumer:
    """`plan`: what the next read does, as a list of messages or a step. `held`: the offset at which
    each assigned partition is read. `spans`: first and next offset of every partition. `said`: the
    calls that change something.
    """

    def __init__(self) -> None:
        self.held: dict[int, int] = {}
        self.paused: set[int] = set()
        self.spans = (0, 100)
        self.topics: dict[str, Any] = {}
        self.said: list[str] = []
        self.may_seek = True
        self._steps: SimpleQueue[Callable[[], Sequence[Message]]] = SimpleQueue()
        self._callbacks: dict[str, Callable[[Any, list[Any]], None]] = {}
        self._is_within = False
        self._behind: list[Message] = []

    # What a test says.

    def hands_over(self, *messages: Message) -> None:
        self._steps.put(lambda: messages)

    def calls_back(self, name: str, *numbers: int) -> None:
        """Call `on_assign` or `on_revoke` with these partitions within the next read."""

        def step() -> Sequence[Message]:
            self._is_within = True
            self._callbacks[name](self, places(*numbers))
            self._is_within = False
            return ()

        self._steps.put(step)

    # What the source calls.

    def subscribe(self, topics: list[str], **callbacks: Callable[[Any, list[Any]], None]) -> None:
        self.said.append(f"subscribe {topics}")
        self._callbacks = callbacks

    def consume(self, most: int, wait_s: float) -> list[Message]:
        self._check_apart()
        found, self._behind = self._behind, []
        with suppress(Empty):
            found += self._steps.get_nowait()()
        return found

    def poll(self, wait_s: float) -> Message | None:
        time.sleep(min(wait_s, 0.002))
        self._behind = self.consume(1, 0)
        return self._behind.pop(0) if self._behind else None

    def assign(self, wanted: Collection[Any]) -> None:
        self.held = {one.partition: one.offset for one in wanted}

    def unassign(self) -> None:
        self.held = {}

    def incremental_assign(self, wanted: Collection[Any]) -> None:
        self.held |= {one.partition: one.offset for one in wanted}

    def incremental_unassign(self, wanted: Collection[Any]) -> None:
        for one in wanted:
            del self.held[one.partition]

    def assignment(self) -> list[Any]:
        return places(*self.held)

    def seek(self, place: Any) -> None:
        self._check_apart()
        if not self.may_seek:
            raise KafkaException(KafkaError(KafkaError._STATE))
        self.held[place.partition] = place.offset
        self.said.append(f"seek {place.partition} to {place.offset}")

    def pause(self, wanted: Collection[Any]) -> None:
        self.paused |= {one.partition for one in wanted}

    def resume(self, wanted: Collection[Any]) -> None:
        self.paused -= {one.partition for one in wanted}

    def offsets_for_times(self, wanted: list[Any], timeout: float) -> list[Any]:
        begin, end = self.spans
        return [
            TopicPartition(one.topic, one.partition, begin if one.offset == -2 else end)
            for one in wanted
        ]

    def commit(self, offsets: list[Any], asynchronous: bool) -> list[Any]:
        self.said.append(f"commit {[(offset.partition, offset.offset) for offset in offsets]}")
        return offsets

    def consumer_group_metadata(self) -> bytes:
        return MEMBERSHIP

    def list_topics(self, timeout: float) -> Any:
        return SimpleNamespace(topics=self.topics)

    def set_sasl_credentials(self, username: str, password: str) -> None:
        self.said.append(f"log in as {username} by {password}")

    def close(self) -> None:
        self._check_apart()
        self.said.append("close")

    def _check_apart(self) -> None:
        assert not self._is_within, "the real one ends the process"
