"""What aiokafka asks a broker for, when, and for how long the broker may keep the question."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from types import SimpleNamespace
from typing import Any

from aiokafka import TopicPartition
from aiokafka.consumer.fetcher import Fetcher
from aiokafka.consumer.subscription_state import SubscriptionState
from aiokafka.producer.message_accumulator import BatchBuilder
from aiokafka.protocol.fetch import FetchResponse_v11

from penstock.adapters.kafka.inside.consumers import (
    GATHERED_BYTES,
    PART_MS,
    REFUSED_S,
    STALE_S,
    WHOLE_MS,
    ask_patiently,
    ask_with_pauses,
)
from penstock.core.window.gathering import Gather
from penstock.errors import Fatal
from penstock.tools.simulation.virtual_time import virtual_time
from tests.support.waiting import DEADLINE_S

FIRST, SECOND = (TopicPartition("refs", number) for number in range(2))


class OneBroker:
    """Leads every partition."""

    _loop: asyncio.AbstractEventLoop | None = None
    _metadata_max_age_ms = 0
    cluster = SimpleNamespace(leader_for_partition=lambda where: 0, broker_metadata=lambda node: 0)


class Asked:
    """What a consumer of two partitions would ask its broker for now."""

    def __init__(self) -> None:
        state = SubscriptionState()
        state.subscribe({"refs"})
        state.assign_from_subscribed([FIRST, SECOND])
        self.assignment = state.subscription.assignment
        for where in FIRST, SECOND:
            self.assignment.state_value(where).reset_to(0)
        self.fetcher = Fetcher(OneBroker(), state)
        self.gather = Gather(lambda now_s: 0.0)
        ask_patiently(SimpleNamespace(_fetcher=self.fetcher), self.gather)

    def now(self) -> tuple[int, int]:
        """Partitions in the question, and the time that the broker gets."""
        [(_, request)], *_ = self.fetcher._get_actions_per_node(self.assignment)
        return sum(len(parts) for _, parts in request.topics), request._max_wait_ms


@contextlib.asynccontextmanager
async def asking() -> AsyncIterator[Asked]:
    """Its own task has had no turn yet."""
    asked = Asked()
    try:
        yield asked
    finally:
        await asked.fetcher.close()


async def test_a_question_for_all_partitions_may_be_kept_for_long() -> None:
    async with asking() as asked:
        assert asked.now() == (2, WHOLE_MS)


async def test_a_question_without_a_partition_whose_records_wait_is_a_short_one() -> None:
    async with asking() as asked:
        asked.fetcher._records[FIRST] = SimpleNamespace(calculate_backoff=lambda: 0)
        assert asked.now() == (1, PART_MS)


async def test_a_question_without_a_paused_partition_is_a_short_one() -> None:
    async with asking() as asked:
        asked.assignment.state_value(FIRST).pause()
        assert asked.now() == (1, PART_MS)
        asked.assignment.state_value(FIRST).resume()
        assert asked.now() == (2, WHOLE_MS)


async def test_a_broker_that_gathers_is_not_stopped_by_the_first_record() -> None:
    async with asking() as asked:
        asked.gather.wait_ms = 7
        assert asked.now() == (2, 7)
        assert asked.fetcher._fetch_min_bytes == GATHERED_BYTES
        asked.gather.wait_ms = 0
        assert asked.now() == (2, WHOLE_MS)
        assert asked.fetcher._fetch_min_bytes == 1


async def test_where_several_brokers_lead_none_of_them_gathers() -> None:
    async with asking() as asked:
        asked.gather.wait_ms = 7
        leader = {FIRST: 0, SECOND: 1}
        asked.fetcher._client.cluster = SimpleNamespace(
            leader_for_partition=leader.get, broker_metadata=lambda node: 0
        )
        asked.fetcher._get_actions_per_node(asked.assignment)
        requests, *_ = asked.fetcher._get_actions_per_node(asked.assignment)
        assert [request._max_wait_ms for _, request in requests] == [WHOLE_MS] * 2
        assert asked.fetcher._fetch_min_bytes == 1
        assert asked.gather.pause_s == 0.007


async def test_where_one_broker_leads_it_alone_gathers() -> None:
    async with asking() as asked:
        asked.gather.wait_ms = 7
        assert asked.now() == asked.now() == (2, 7)
        assert asked.gather.pause_s == 0.0


class Broker(OneBroker):
    """Keeps every question until the test answers it."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self.cluster = SimpleNamespace(
            leader_for_partition=lambda where: 0, broker_metadata=lambda node: 0
        )
        self.updates = 0
        self.asked: asyncio.Queue[tuple[dict[int, int], asyncio.Future[Any]]] = asyncio.Queue()

    def force_metadata_update(self) -> asyncio.Future[bool]:
        """It knows nothing new, at once."""
        self.updates += 1
        updated = asyncio.get_running_loop().create_future()
        updated.set_result(True)
        return updated

    async def send(self, node: int, request: Any) -> Any:
        offsets = {number: offset for _, parts in request.topics for number, offset, _ in parts}
        answer = asyncio.get_running_loop().create_future()
        self.asked.put_nowait((offsets, answer))
        return await answer


def said(**records: bytes) -> FetchResponse_v11:
    """One batch for each partition that is named."""
    parts: list[tuple[Any, ...]] = []
    for name, value in records.items():
        batch = BatchBuilder(1_000, 0)
        batch.append(timestamp=1, key=None, value=value)
        parts.append((int(name[1:]), 0, 1, 1, 0, None, -1, bytes(batch._build())))
    return FetchResponse_v11(0, 0, 0, [("refs", parts)])


@contextlib.asynccontextmanager
async def reading() -> AsyncIterator[tuple[Broker, Any, SubscriptionState, asyncio.Queue[Fatal]]]:
    """A fetcher of two partitions, after its consumer's start."""
    broker, state, failures = Broker(), SubscriptionState(), asyncio.Queue[Fatal]()
    fetcher = Fetcher(broker, state)
    await ask_with_pauses(SimpleNamespace(_fetcher=fetcher), failures.put_nowait)
    state.subscribe({"refs"})
    state.assign_from_subscribed([FIRST, SECOND])
    for where in FIRST, SECOND:
        state.subscription.assignment.state_value(where).reset_to(0)
    try:
        yield broker, fetcher, state, failures
    finally:
        await fetcher.close()


async def test_what_was_taken_is_not_asked_for_again() -> None:
    async with reading() as (broker, fetcher, _, _):
        offsets, answer = await broker.asked.get()
        assert offsets == {0: 0, 1: 0}
        answer.set_result(said(p0=b"one", p1=b"two"))
        found = await fetcher.fetched_records([], DEADLINE_S, 10)
        values = {where: [record.value for record in records] for where, records in found.items()}
        assert values == {FIRST: [b"one"], SECOND: [b"two"]}
        offsets, _ = await broker.asked.get()
        assert offsets == {0: 1, 1: 1}


async def test_records_of_an_assignment_that_is_over_are_dropped() -> None:
    async with reading() as (broker, fetcher, state, _):
        _, answer = await broker.asked.get()
        state.assign_from_subscribed([SECOND])
        state.subscription.assignment.state_value(SECOND).reset_to(5)
        offsets, _ = await broker.asked.get()
        assert offsets == {1: 5}
        assert answer.cancelled()
        assert not await fetcher.fetched_records([], 0, 10)


async def test_a_partition_that_is_read_again_is_asked_for_at_once() -> None:
    async with reading() as (broker, _, state, _):
        states = [state.subscription.assignment.state_value(where) for where in (FIRST, SECOND)]
        for each in states:
            each.pause()
        await turns()
        assert broker.asked.empty()
        states[1].resume()
        await turns()
        assert broker.asked.get_nowait()[0] == {1: 0}


async def turns() -> None:
    """More of the event loop than anything takes that waits for no time to pass."""
    for _ in range(20):
        await asyncio.sleep(0)


async def test_what_ends_the_reading_is_told() -> None:
    async with reading() as (broker, _, _, failures):
        _, answer = await broker.asked.get()
        answer.set_exception(ZeroDivisionError("odd"))
        assert "ZeroDivisionError('odd')" in str(await failures.get())


@virtual_time
async def test_a_broker_that_refuses_is_asked_again_after_a_pause() -> None:
    async with reading() as (broker, _, _, _):
        now_s = asyncio.get_running_loop().time
        began_s, asked = now_s(), 0
        while now_s() - began_s < 2.0:
            _, answer = await broker.asked.get()
            answer.set_result(
                FetchResponse_v11(0, 0, 0, [("refs", [(0, 6, -1, -1, -1, None, -1, b"")])])
            )
            asked += 1
        assert asked <= 2.0 / REFUSED_S + 2


@virtual_time
async def test_a_leader_that_is_not_known_is_asked_for_after_a_pause() -> None:
    async with reading() as (broker, _, _, _):
        broker.cluster.leader_for_partition = lambda where: None
        await asyncio.sleep(2.0)
        assert 2 <= broker.updates <= 2.0 / STALE_S + 1
        broker.cluster.leader_for_partition = lambda where: 0
        async with asyncio.timeout(2 * STALE_S):
            await broker.asked.get()
