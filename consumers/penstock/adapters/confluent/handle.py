"""Holds librdkafka's consumer, the thread of its calls, and its membership of the group.

Rule: confluent-kafka lets one thread at a time use a consumer, so every call is made on one thread.
After a refusal by the group, `join` replaces the consumer by a new one. Owner: the source.
"""

import asyncio
from collections.abc import Callable, Coroutine
from contextlib import suppress
from typing import Any, TypeVar

from confluent_kafka import Consumer, KafkaException

from penstock import config
from penstock.adapters.confluent.call_thread import CallThread
from penstock.adapters.confluent.errors import translated
from penstock.adapters.confluent.member_options import described, member_options
from penstock.adapters.confluent.subscription import Subscription
from penstock.adapters.kafka.group.membership import GroupMember

T = TypeVar("T")

# librdkafka calls such a function within a read, with the partitions that come or go.
Callback = Callable[[Any, list[Any]], None]
WHAT = "the start of the consumer"


class Handle:
    """`consumer` exists from the first `join` on. `is_incremental`: True if the group gives and
    takes single partitions while this member goes on reading its other partitions.
    """

    consumer: Any

    def __init__(
        self, settings: config.Kafka, poll_ms: int, on_error: Callable[[Any], None]
    ) -> None:
        self.is_incremental = settings.group_protocol == "consumer"
        self._settings = settings
        self._options = (poll_ms, on_error)
        self._subscription = Subscription(settings)
        self._thread: CallThread | None = None
        self._callbacks: dict[str, Callback] = {}
        self._membership: bytes | None = None

    @property
    def topics(self) -> list[str]:
        """The topics that are read. Empty: no topic matches the pattern yet."""
        return self._subscription.topics

    def join(self, on_assign: Callback, on_revoke: Callback) -> None:
        self._callbacks = {"on_assign": on_assign, "on_revoke": on_revoke}
        self._membership = None
        with translated(WHAT):
            self.consumer = Consumer(member_options(self._settings, *self._options))
            self._thread = self._thread or CallThread("kafka")
            if self.topics:
                self.consumer.subscribe(self.topics, **self._callbacks)

    def member(self) -> GroupMember:
        """The membership that was noted last. With the protocol `consumer` the member's epoch grows
        between two assignments of partitions. So each call of `member` also lets the thread note
        the membership anew: a caller that was refused with an old epoch gets the new epoch when it
        calls again.
        """
        if self.is_incremental:
            self.call(self.note_member)
        if self._membership is None:
            return GroupMember(self._settings.group, -1, "", None)
        return described(self._membership)

    def note_member(self) -> None:
        """Call this on the thread, because it blocks until librdkafka's own thread answers."""
        with suppress(RuntimeError, KafkaException):  # the consumer is closed
            self._membership = self.consumer.consumer_group_metadata()

    def follow_topics(self) -> None:
        """If other topics match the pattern now, subscribe to those. Call this on the thread,
        between two reads.
        """
        if self._subscription.changed(self.consumer):
            self.consumer.subscribe(self.topics, **self._callbacks)

    def call(self, work: Callable[[], T], *, apart: bool = False) -> "asyncio.Future[T]":
        """Make a call on the thread, in its turn. `apart`: True if the call must not be made within
        a rebalance. Reads, seeks and the end of the consumer need this, because they would disturb
        the rebalance.
        """
        assert self._thread is not None, "after `join`"
        return self._thread.call(work, apart=apart)

    def in_loop(self, work: Coroutine[Any, Any, T], loop: asyncio.AbstractEventLoop) -> T:
        """Let the event loop do this work. Call this on the thread, within a call."""
        assert self._thread is not None, "after `join`"
        return self._thread.in_loop(work, loop)

    async def leave(self) -> None:
        """Close the consumer. By this the consumer leaves the group, unless it has an instance
        id.
        """
        if self._thread is not None:
            await self.call(self.consumer.close, apart=True)

    def end(self) -> None:
        if self._thread is not None:
            self._thread.end()
