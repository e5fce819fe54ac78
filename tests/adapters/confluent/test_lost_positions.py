"""Positions that the broker no longer has: librdkafka says so once, and reads no more there."""

import pytest
from confluent_kafka import KafkaError

from penstock.ports import Commit
from tests.adapters.confluent.doubles import Message
from tests.adapters.confluent.member import member
from tests.support.partitions import P0, P1


def lost(offset: int | None) -> Message:
    return Message(offset, KafkaError._AUTO_OFFSET_RESET)


@pytest.mark.parametrize("may_seek", [True, False])
@pytest.mark.parametrize("again", [False, True], ids=["assigned", "assigned without a revocation"])
async def test_deleted_records_are_passed_over(
    monkeypatch: pytest.MonkeyPatch, may_seek: bool, again: bool
) -> None:
    async with member(monkeypatch) as one:
        one.group.at |= {P0: Commit(5), P1: Commit(8)}
        one.consumer.spans = (50, 100)
        one.consumer.may_seek = may_seek
        await one.is_assigned(0, 1)
        if again:
            one.consumer.hands_over(lost(5))  # of what is no longer assigned
            one.consumer.calls_back("on_assign", 0)
            await one.polls(lambda: 1 not in one.consumer.held)
        one.consumer.hands_over(lost(5))
        await one.polls(lambda: one.consumer.held[0] == 50, P0)
        assert one.consumer.held == one.reached == ({0: 50} if again else {0: 50, 1: 8})
        one.consumer.hands_over(Message(50))
        (record,) = await one.polls(lambda: one.reached[0] == 51, P0)
        assert record.offset == 50


async def test_what_waits_is_read_before_the_position_is_moved(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with member(monkeypatch) as one:
        await one.is_assigned(0)
        one.consumer.spans = (50, 100)
        one.consumer.hands_over(Message(0), lost(1))
        await one.polls(lambda: one.source._reads.inbox.has_any(P0))
        assert "seek 0 to 50" not in one.consumer.said
        read = await one.polls(lambda: one.consumer.held[0] == 50, P0)
        assert [record.offset for record in read] == [0]


async def test_a_log_that_ends_before_the_position_is_read_from_its_beginning(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with member(monkeypatch) as one:
        one.group.at[P0] = Commit(5)
        one.consumer.spans = (0, 3)
        await one.is_assigned(0)
        one.consumer.hands_over(lost(5))
        await one.polls(lambda: one.consumer.held[0] == 0, P0)
        assert one.lanes.said[1:] == [("revoked", {0}), ("assigned", {0})]
        assert "commit [(0, 0)]" in one.consumer.said


@pytest.mark.parametrize("end", [3, 100], ids=["is shorter", "has other records by now"])
async def test_a_log_that_was_cut_is_read_from_its_beginning(
    monkeypatch: pytest.MonkeyPatch, end: int
) -> None:
    """By an unclean election; librdkafka tells no offset then."""
    async with member(monkeypatch) as one:
        one.group.at[P0] = Commit(5)
        one.consumer.spans = (0, end)
        await one.is_assigned(0)
        one.consumer.hands_over(lost(None))
        await one.polls(lambda: one.consumer.held[0] == 0, P0)
        assert one.lanes.said[1:] == [("revoked", {0}), ("assigned", {0})]
        assert "commit [(0, 0)]" in one.consumer.said


async def test_a_position_that_is_there_after_all_is_sought_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with member(monkeypatch) as one:
        one.group.at[P0] = Commit(5)
        await one.is_assigned(0)
        one.consumer.hands_over(lost(5))
        await one.polls(lambda: "seek 0 to 5" in one.consumer.said, P0)
        assert one.consumer.held == {0: 5}


async def test_a_position_lost_before_a_partition_came_back_moves_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with member(monkeypatch) as one:
        one.consumer.spans = (0, 100)
        await one.is_assigned(0)
        one.consumer.hands_over(Message(0), lost(60))
        await one.polls(lambda: one.source._reads.inbox.has_any(P0))
        one.group.at[P0] = Commit(50)
        one.consumer.calls_back("on_revoke", 0)
        one.consumer.calls_back("on_assign", 0)
        await one.polls(lambda: one.consumer.held == {0: 50})
        await one.polls(lambda: not one.source._reads.lost, P0)
        assert one.consumer.held == one.reached == {0: 50}


async def test_a_topic_that_was_made_again_is_read_from_its_beginning_though_its_log_is_longer(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with member(monkeypatch) as one:
        one.group.at[P0] = Commit(5)
        one.group.ids["refs"] = b"1"
        await one.is_assigned(0)
        one.consumer.spans = (0, 100)
        one.group.ids["refs"] = b"2"
        assert one.consumer.held == {0: 5}
        await one.source.end_offsets()
        await one.polls(lambda: one.consumer.held[0] == 0, P0)
        assert one.lanes.said[1:] == [("revoked", {0}), ("assigned", {0})]
        assert "commit [(0, 0)]" in one.consumer.said


async def test_a_topic_that_was_made_again_before_a_rebalance_is_read_from_its_beginning(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with member(monkeypatch) as one:
        one.group.at[P0] = Commit(5)
        one.group.ids["refs"] = b"1"
        await one.is_assigned(0)
        one.consumer.spans = (0, 100)
        one.group.ids["refs"] = b"2"
        one.consumer.calls_back("on_revoke", 0)
        one.consumer.calls_back("on_assign", 0)
        await one.polls(lambda: one.consumer.held == {0: 0}, P0)
        said = [("suspended", {0}), ("revoked", {0}), ("assigned", {0})]
        assert one.lanes.said[1:] == said, "nothing of the former topic goes on"
