"""`Handle` holds librdkafka's consumer and its membership; `CallThread` is the thread on which all
calls to the consumer are made.

Rule: confluent-kafka lets one thread at a time use a consumer; the event loop never blocks on it.
If the group refuses the consumer, `join` makes a new one.
"""

import asyncio
import threading
from collections import deque
from collections.abc import Callable, Coroutine
from contextlib import suppress
from queue import SimpleQueue
from typing import Any, NamedTuple, TypeVar

from confluent_kafka import Consumer, KafkaException

from penstock import config
from penstock.adapters.confluent.errors import translated
from penstock.adapters.confluent.member_options import (
    ClientLogin,
    Subscription,
    described,
    member_options,
)
from penstock.adapters.kafka.group.membership import GroupMember

T = TypeVar("T")

# A function that librdkafka calls within a read, with the consumer and the partitions that are
# assigned or revoked.
Callback = Callable[[Any, list[Any]], None]
WHAT = "the start of the consumer"


class Handle:
    """Holds the consumer, and makes calls to it. The consumer exists from the first `join` on.
    `is_incremental`: True if the group gives and takes single partitions while this member goes on
    reading its other partitions.
    """

    consumer: Any

    def __init__(
        self, settings: config.Kafka, poll_ms: int, on_error: Callable[[Any], None]
    ) -> None:
        self.is_incremental = settings.group_protocol == "consumer"
        self._settings = settings
        self._options = (poll_ms, on_error)
        self._subscription = Subscription(settings)
        self.login = ClientLogin(settings)
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
            self.consumer = Consumer(
                member_options(self._settings, self.login.options(), *self._options)
            )
            self._thread = self._thread or CallThread("kafka")
            if self.topics:
                self.consumer.subscribe(self.topics, **self._callbacks)

    def member(self) -> GroupMember:
        """The membership that was noted last. With the protocol `consumer` the member's epoch may
        grow at any time. So each call of `member` also makes the thread note the membership anew. A
        caller whose epoch was too old for the broker gets the new epoch when it calls `member`
        again.
        """
        if self.is_incremental:
            self.call(self.note_member)
        if self._membership is None:
            return GroupMember(self._settings.group, -1, "", None)
        return described(self._membership)

    def note_member(self) -> None:
        """Note the present membership. Call this on the thread, because it blocks until
        librdkafka's own thread answers.
        """
        with suppress(RuntimeError, KafkaException):  # the consumer is closed
            self._membership = self.consumer.consumer_group_metadata()

    def follow_changes(self) -> None:
        """If other topics match the pattern now than before, subscribe anew; and hand over a
        password that was written anew. Call this on the thread, between two reads.
        """
        self.login.follow(self.consumer)
        if self._subscription.changed(self.consumer):
            self.consumer.subscribe(self.topics, **self._callbacks)

    def call(self, work: Callable[[], T], *, apart: bool = False) -> "asyncio.Future[T]":
        """Make a call on the thread, after the calls that wait already. `apart`: True if the call
        would disturb a rebalance, and so must not be made within one. That is so for reads, for
        seeks, and for the end of the consumer.
        """
        assert self._thread is not None, "after `join`"
        return self._thread.call(work, apart=apart)

    def in_loop(self, work: Coroutine[Any, Any, T], loop: asyncio.AbstractEventLoop) -> T:
        """Let the event loop do this work, and return its result. Use this only on the thread,
        within a call.
        """
        assert self._thread is not None, "after `join`"
        return self._thread.in_loop(work, loop)

    async def leave(self) -> None:
        """Close the consumer. If it has no instance id, it thereby leaves the group."""
        if self._thread is not None:
            await self.call(self.consumer.close, apart=True)

    def end(self) -> None:
        if self._thread is not None:
            self._thread.end()


class _ThreadCall(NamedTuple):
    work: Callable[[], Any]
    answer: asyncio.Future[Any]
    loop: asyncio.AbstractEventLoop
    is_apart: bool


class CallThread:
    """A thread that makes blocking calls one after the other. It starts at once and runs until
    `end`.

    A call is skipped if its caller was cancelled before the call began. Within a call the library
    may call us back, and the callback may need work in the event loop. That work may need further
    calls, so the thread makes them while it waits for the work. The library forbids some calls
    within a callback: those wait until the outer call has ended. The thread is a daemon, so that
    the process can end even while a call hangs.
    """

    def __init__(self, name: str) -> None:
        self._calls: SimpleQueue[_ThreadCall | None] = SimpleQueue()
        self._later: deque[_ThreadCall] = deque()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    def call(self, work: Callable[[], T], *, apart: bool = False) -> "asyncio.Future[T]":
        """Queue `work`; the future gets its result or its exception. `apart`: True if the call must
        never be made within another call.
        """
        loop = asyncio.get_running_loop()
        answer: asyncio.Future[T] = loop.create_future()
        self._calls.put(_ThreadCall(work, answer, loop, apart))
        return answer

    def end(self) -> None:
        """End the thread after the calls that are already queued."""
        self._calls.put(None)

    def in_loop(self, work: Coroutine[Any, Any, T], loop: asyncio.AbstractEventLoop) -> T:
        """Run `work` in the event loop and return its result. Call this only on the thread itself,
        within a call. Until the work is done, the thread makes the calls that are queued, except
        those that are `apart`.
        """
        done = asyncio.run_coroutine_threadsafe(work, loop)
        done.add_done_callback(lambda _: self._calls.put(None))
        self._run(is_within=True)
        return done.result()

    def _run(self, *, is_within: bool = False) -> None:
        """Make calls until the next None in the queue."""
        while (call := self._next(is_within)) is not None:
            if call.answer.cancelled():
                continue
            result, failure = None, None
            try:
                result = call.work()
            except BaseException as error:  # the caller's future raises it again
                failure = error
            try:
                call.loop.call_soon_threadsafe(_answer, call.answer, result, failure)
            except RuntimeError:
                return  # the event loop is closed: no caller is left
            # Free the result now: it may be large, and the next call may come much later.
            del call, result, failure

    def _next(self, is_within: bool) -> _ThreadCall | None:
        if self._later and not is_within:
            return self._later.popleft()
        while (call := self._calls.get()) is not None and is_within and call.is_apart:
            self._later.append(call)
        return call


def _answer(answer: asyncio.Future[Any], result: object, failure: BaseException | None) -> None:
    if answer.done():
        return
    if failure is not None:
        answer.set_exception(failure)
    else:
        answer.set_result(result)
