"""When a broker is asked for records, and how long it may wait before it answers that it has none.

Rule: aiokafka builds the requests and reads the answers; only the loop around them is ours. It
waits for one future that every event sets; aiokafka's loop adds and removes a callback on every
task and future in every turn.

A broker gets one request at a time. If it names every partition that we read, the broker may wait
long (`WHOLE_MS`): a record of any of them ends the wait. If it leaves one out (that one is paused,
or its records have not been taken yet), the broker may only wait shortly (`PART_MS`), because the
partition left out cannot be asked for before the answer. aiokafka has one figure for both cases,
and the short one would cost an idle worker fifty requests a second.

It uses private parts of aiokafka 0.14's fetcher, as there is no public way. Owner: the source,
after its start.
"""

import asyncio
from collections.abc import Callable, Coroutine
from contextlib import suppress
from typing import Any

from aiokafka import AIOKafkaConsumer
from aiokafka import errors as kafka_errors

from penstock.adapters.kafka.inside.giving_up import seen
from penstock.errors import Fatal

# aiokafka's own figure (`fetch_max_wait_ms`), and librdkafka's.
WHOLE_MS = 500
# The longest time that a partition left out of a request waits for the next one.
PART_MS = 20
# The pause after an answer that came early and empty. Without it, a broker that refuses the request
# would be asked 1,500 times a second.
REFUSED_S = 0.02
# The pause before the next look when a partition has no leader: about the time of an election.
STALE_S = 0.05


def ask_patiently(consumer: AIOKafkaConsumer) -> None:
    """Set the broker's wait before each request. aiokafka builds its requests in one function and
    reads the figure there, so wrapping that function is enough.
    """
    fetcher = consumer._fetcher
    decide = fetcher._get_actions_per_node

    def actions(assignment: Any) -> Any:
        leaves_out = fetcher._records or any(
            assignment.state_value(where).paused for where in assignment.tps
        )
        fetcher._fetch_max_wait_ms = PART_MS if leaves_out else WHOLE_MS
        return decide(assignment)

    fetcher._get_actions_per_node = actions


async def ask_by_ours(consumer: AIOKafkaConsumer, failed: Callable[[Fatal], None]) -> None:
    """Replace aiokafka's loop by ours, before there is anything to read; the consumer's `stop` ends
    it. If our loop fails, nothing is read any more, and it calls `failed` with the reason.
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
            # Errors of the coordinator are raised to the reader by `getmany`, not here.
            with suppress(kafka_errors.KafkaError):
                await subscriptions.wait_for_assignment()

    async def _ask(self, assignment: Any) -> None:
        """Send the requests that are due now; returns when something has changed since."""
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
        """Send one request; True if records came. A broker without records waits before it answers,
        so an early answer without records is a refusal, and it would refuse again at once: pause
        first. A cancelled request returns normally, because aiokafka awaits the tasks it cancels.
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
        """Wake the readers if records have come."""
        fetcher = self._fetcher
        done = [task for task in fetcher._pending_tasks if task.done()]
        fetcher._pending_tasks.difference_update(done)
        brought = [task.result() for task in done]
        if any(brought):
            for waiter in fetcher._fetch_waiters:
                fetcher._notify(waiter)

    async def _forget(self) -> None:
        """Cancel the requests and drop the records of an assignment that has ended."""
        tasks = self._fetcher._pending_tasks
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)
        tasks.clear()
        self._fetcher._records.clear()
        self._resumes.clear()

    def _look_within(self, rest_s: float) -> None:
        """Look again within `rest_s`. There is one timer; it is replaced only by an earlier one."""
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
