"""When a broker is asked for records, and for how long it may keep the question.

Rule: what is asked, and what an answer means, is aiokafka's. Ours is the loop around it: it waits
for one future, which whatever happens sets; aiokafka's puts a callback on every task and future
each time and takes it off again. A broker may keep a question long while it names every partition
that we read, as any record of them ends it; not while it leaves one out (its records wait to be
taken, or it is paused), as that one is asked for only when the broker has answered for the others.
aiokafka has one figure for both, and the short one would cost an idle worker fifty questions a
second. It reaches into aiokafka 0.14's fetcher for this, as there is no public way. Owner: the
source, after its start.
"""

import asyncio
from collections.abc import Callable, Coroutine
from contextlib import suppress
from typing import Any

from aiokafka import AIOKafkaConsumer
from aiokafka import errors as kafka_errors

from consumers.adapters.kafka_producers import seen
from consumers.errors import Fatal

# aiokafka's own figure (`fetch_max_wait_ms`), and librdkafka's.
WHOLE_MS = 500
# What a partition that was left out waits at most.
PART_MS = 20
# Without a pause a broker that refuses would be asked 1,500 times a second.
REFUSED_S = 0.02
# Where no leader is known: an election takes about as long.
STALE_S = 0.05


def ask_patiently(fetcher: Any) -> None:
    """aiokafka decides what to ask for in one function, and reads the figure there."""
    decide = fetcher._get_actions_per_node

    def actions(assignment: Any) -> Any:
        leaves_out = fetcher._records or any(
            assignment.state_value(where).paused for where in assignment.tps
        )
        fetcher._fetch_max_wait_ms = PART_MS if leaves_out else WHOLE_MS
        return decide(assignment)

    fetcher._get_actions_per_node = actions


async def ask_by_ours(consumer: AIOKafkaConsumer, failed: Callable[[Fatal], None]) -> None:
    """Ours takes the place of aiokafka's loop, which has nothing to read yet; `stop` of the
    consumer ends it. `failed` hears why it ended by itself: nothing is read any more.
    """
    fetcher = consumer._fetcher
    fetcher._fetch_task.cancel()
    await asyncio.wait([fetcher._fetch_task])
    asking = Asking(fetcher, failed)
    fetcher._fetch_task = asyncio.get_running_loop().create_task(asking.forever())


class Asking:
    def __init__(self, fetcher: Any, failed: Callable[[Fatal], None]) -> None:
        self._fetcher = fetcher
        self._failed = failed
        self._loop = asyncio.get_running_loop()
        self._timer: asyncio.TimerHandle | None = None
        self._resumes: set[asyncio.Future[None]] = set()

    async def forever(self) -> None:
        try:
            while True:
                assignment = await self._assigned()
                assignment.unassign_future.add_done_callback(self._wake)
                while assignment.active:
                    await self._ask(assignment)
                await self._forget()
        except Exception as error:
            failure = Fatal(f"Kafka's client failed while it read the input topic: {error!r}")
            failure.__cause__ = error
            self._failed(failure)
        finally:
            if self._timer is not None:
                self._timer.cancel()

    async def _assigned(self) -> Any:
        subscriptions = self._fetcher._subscriptions
        while True:
            assignment = subscriptions.subscription and subscriptions.subscription.assignment
            if assignment is not None and assignment.active:
                return assignment
            # What the coordinator met with is told to the reader.
            with suppress(kafka_errors.KafkaError):
                await subscriptions.wait_for_assignment()

    async def _ask(self, assignment: Any) -> None:
        """One look at what is to be asked; returns when there may be more."""
        fetcher = self._fetcher
        changed = fetcher._wait_consume_future = self._loop.create_future()
        asked, unknown, rest_s, is_stale, resumes = fetcher._get_actions_per_node(assignment)
        for node, request in asked:
            self._start(node, self._fetch(assignment, node, request))
        for node, places in unknown.items():
            self._start(node, fetcher._update_fetch_positions(assignment, node, places))
        for resume in resumes:
            if resume not in self._resumes:
                self._resumes.add(resume)
                resume.add_done_callback(self._resumed)
        if is_stale:
            fetcher._client.force_metadata_update().add_done_callback(seen)
            rest_s = min(rest_s, STALE_S)
        self._look_within(rest_s)
        await changed
        self._tell()

    async def _fetch(self, assignment: Any, node: int, request: Any) -> bool:
        """Did it bring records? A broker that has none keeps the question; one that answers sooner
        refused it, and would again. aiokafka waits for what it has cancelled, so that ends well.
        """
        began_s, brought = self._loop.time(), False
        with suppress(asyncio.CancelledError):
            brought = await self._fetcher._proc_fetch_request(assignment, node, request)
            is_early = self._loop.time() - began_s < request._max_wait_ms / 2000
            if is_early and not brought and assignment.active:
                await asyncio.sleep(REFUSED_S)
        return brought

    def _start(self, node: int, work: Coroutine[Any, Any, bool]) -> None:
        self._fetcher._in_flight.add(node)
        task = self._loop.create_task(work)
        self._fetcher._pending_tasks.add(task)

        def done(_: object) -> None:
            self._fetcher._in_flight.discard(node)
            self._wake()

        task.add_done_callback(done)

    def _tell(self) -> None:
        """The readers, if there are records for them."""
        fetcher = self._fetcher
        done = [task for task in fetcher._pending_tasks if task.done()]
        fetcher._pending_tasks.difference_update(done)
        brought = [task.result() for task in done]
        if any(brought):
            for waiter in fetcher._fetch_waiters:
                fetcher._notify(waiter)

    async def _forget(self) -> None:
        """What was asked for an assignment that is over."""
        tasks = self._fetcher._pending_tasks
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)
        tasks.clear()
        self._fetcher._records.clear()
        self._resumes.clear()

    def _look_within(self, rest_s: float) -> None:
        """One timer, set again when it rang, unless something is due before."""
        due_s = self._loop.time() + rest_s
        if self._timer is not None:
            if self._timer.when() <= due_s:
                return
            self._timer.cancel()
        self._timer = self._loop.call_at(due_s, self._ring)

    def _ring(self) -> None:
        self._timer = None
        self._wake()

    def _resumed(self, resume: asyncio.Future[None]) -> None:
        self._resumes.discard(resume)
        self._wake()

    def _wake(self, _: object = None) -> None:
        self._fetcher._notify(self._fetcher._wait_consume_future)
