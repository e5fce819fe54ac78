"""What librdkafka calls in a rebalance: what is suspended and revoked then, and what waits."""

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

import pytest
from confluent_kafka import KafkaError

from penstock.adapters.kafka.group import membership as refusals
from penstock.errors import Undecided
from penstock.ports import UNDECIDED, Commit
from tests.adapters.confluent.doubles import Message
from tests.adapters.confluent.member import Member, member
from tests.support.partitions import P0, P1
from tests.support.waiting import DEADLINE_S

T = TypeVar("T")


async def test_what_does_not_come_back_is_revoked_and_what_does_goes_on(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with member(monkeypatch) as one:
        await one.is_assigned(0, 1)
        one.lanes.kept[P1] = 7
        one.consumer.calls_back("on_revoke", 0, 1)
        one.consumer.calls_back("on_assign", 1, 2)
        await one.polls(lambda: 2 in one.consumer.held)
        assert one.lanes.said[1:] == [
            ("suspended", {0, 1}),
            ("revoked", {0}),
            ("assigned", {1, 2}),
        ]
        assert one.consumer.held == {1: 7, 2: 0}


async def test_an_assignment_without_a_revocation_takes_all_that_was_held(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """librdkafka makes it if its topics change while an assignment is made."""
    async with member(monkeypatch) as one:
        await one.is_assigned(0, 1)
        one.consumer.calls_back("on_assign", 1)
        await one.polls(lambda: 0 not in one.consumer.held)
        assert one.lanes.said[1:] == [("suspended", {0, 1}), ("revoked", {0}), ("assigned", {1})]


async def test_by_the_protocol_consumer_only_what_moves_is_taken(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with member(monkeypatch, client="confluent", group_protocol="consumer") as one:
        await one.is_assigned(0, 1)
        one.consumer.calls_back("on_revoke", 1)
        one.consumer.calls_back("on_assign", 2)
        one.consumer.hands_over(Message(0))
        (record,) = await one.polls(lambda: one.reached.get(0), P0)
        assert record.offset == 0
        assert one.lanes.said[1:] == [("suspended", {1}), ("revoked", {1}), ("assigned", {2})]


async def test_where_nothing_is_decided_is_not_read_until_it_is(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The other partitions do not wait for it."""
    async with member(monkeypatch) as one:
        one.group.at |= {P0: UNDECIDED, P1: Commit(3)}
        await one.is_assigned(0, 1)
        # At an absolute place: librdkafka would ask the broker for "the end", and obey it late.
        assert (one.consumer.held, one.consumer.paused) == ({0: 0, 1: 3}, {0})
        assert 0 not in one.reached
        with pytest.raises(Undecided):
            await one.source.rewind([P0])
        assert one.group.looks == 1
        one.group.at[P0] = Commit(9)
        assert await one.source.rewind([P0]) == {P0: Commit(9)}
        await one.polls(lambda: not one.consumer.paused, P0, P1)
        assert one.consumer.held == {0: 9, 1: 3}


async def until_it_lasts(one: Member) -> None:
    """A rebalance has begun, and does not end."""
    await one.is_assigned(0)
    one.lanes.may_suspend.clear()
    one.consumer.calls_back("on_revoke", 0)
    await one.polls(lambda: ("suspended", {0}) in one.lanes.said)


async def test_a_seek_in_a_rebalance_waits_and_does_not_reach_the_next_assignment(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with member(monkeypatch) as one:
        await until_it_lasts(one)
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(one.source.seek({P0: Commit(5)}))
            await one.polls(lambda: True)
            one.group.at[P0] = Commit(50)  # another member got further
            one.consumer.calls_back("on_assign", 0)
            one.lanes.may_suspend.set()
            await one.polls(lambda: one.consumer.held == {0: 50})
        assert one.consumer.held == one.reached == {0: 50}


async def test_a_commit_in_a_rebalance_is_made_within_it(monkeypatch: pytest.MonkeyPatch) -> None:
    async with member(monkeypatch) as one:
        await until_it_lasts(one)
        await one.source.commit({P0: Commit(5)})
        assert one.consumer.said[-1] == "commit [(0, 5)]"


async def test_a_stop_in_a_rebalance_ends_it_first(monkeypatch: pytest.MonkeyPatch) -> None:
    async with member(monkeypatch) as one:
        await until_it_lasts(one)
        await one.source.stop()
        assert one.consumer.said[-1] == "close"


async def test_after_a_stop_nothing_is_handed_on_though_the_thread_called_before(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with member(monkeypatch) as one:
        await one.is_assigned(0)
        handle = one.source._handle
        in_loop = handle.in_loop

        def stop_first(work: Coroutine[Any, Any, T], loop: asyncio.AbstractEventLoop) -> T:
            one.source._rebalances._is_over = True
            return in_loop(work, loop)

        monkeypatch.setattr(handle, "in_loop", stop_first)
        one.consumer.calls_back("on_revoke", 0)
        await one.polls(lambda: not one.consumer.held)
        assert one.lanes.said[1:] == []


async def test_a_lost_position_is_looked_for_after_a_rebalance_not_in_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The seek would wait for the end of the rebalance, and the poll with it."""
    async with member(monkeypatch) as one:
        await one.is_assigned(0)
        one.consumer.spans = (50, 100)
        one.lanes.may_suspend.clear()
        one.consumer.hands_over(Message(0, KafkaError._PARTITION_EOF))
        one.consumer.hands_over(Message(0, KafkaError._AUTO_OFFSET_RESET))
        one.consumer.calls_back("on_revoke", 0)
        async with asyncio.timeout(DEADLINE_S):
            while ("suspended", {0}) not in one.lanes.said:
                await one.source.poll([P0], 1_000)


async def test_a_member_that_was_refused_ends_a_rebalance_before_it_joins_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(refusals, "AGAIN_S", 0.0)
    async with member(monkeypatch, instance_id="pod-7") as one:
        await until_it_lasts(one)
        one.source._is_refused = True
        await one.polls(lambda: True)
        assert "close" not in one.consumer.said
        one.lanes.may_suspend.set()
        await one.polls(lambda: one.consumer.said[-2:] == ["close", "subscribe ['refs']"])
