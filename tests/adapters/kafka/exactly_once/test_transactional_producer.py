"""Transactions against a model of the brokers, which lose, repeat and refuse requests.

What is right is what the reader of committed records sees: each record once, in order, as far as
the group's position says.
"""

from typing import Final

import pytest
from aiokafka import TopicPartition
from hypothesis import example, given
from hypothesis import strategies as st

from penstock.adapters.kafka.exactly_once.transactional_producer import TransactionalProducer
from penstock.adapters.kafka.exactly_once.transactions import KafkaTransactions
from penstock.adapters.kafka.positions import positions
from penstock.errors import Fenced, Transient, Unreachable
from penstock.ports import UNDECIDED, Commit, Outgoing, Where
from penstock.tools.simulation.virtual_time import VirtualClock, run, virtual_time
from tests.support.transaction_brokers import LAST_EPOCH, Act, Brokers, Client

SOURCE: Final = Where("refs", 0)
# Both have a leader of their own.
OUT: Final = [TopicPartition("predictions", 0), TopicPartition("predictions", 1)]
# What coordinators and leaders say when the same request may succeed later.
PASSING: Final = st.sampled_from([14, 15, 16, 51, 7])
# What ends the transaction: a state, an epoch or an id that does not fit, or an abort.
LASTING: Final = st.sampled_from([45, 47, 48, 49, 59, 90, 120])
CHANCE: Final = st.one_of(
    st.just(Act()),
    st.sampled_from([Act("lose"), Act("cut"), Act("twice")]),
    st.builds(Act, st.just("refuse"), PASSING | LASTING),
)
LATE: Final = st.builds(Act, st.just("late"), st.just(0), st.integers(0, 12))
ROUNDS: Final = 4


async def opened(brokers: Brokers) -> KafkaTransactions:
    producer = TransactionalProducer(Client(brokers), "worker/0", 30_000)
    transactions = KafkaTransactions(producer, "group", VirtualClock(), {})
    await transactions.start()
    return transactions


def records(number: int) -> list[Outgoing]:
    values = [b"%d" % number, b"%d'" % number]
    return [Outgoing(where.topic, where.partition, [None, None], list(values)) for where in OUT]


async def work(brokers: Brokers, acts: list[Act]) -> None:
    """As a worker does it: after a failure it goes on from the position that the group has, with a
    new producer of the same id. While an open transaction may still move the position, it waits;
    the start of the new producer ends that transaction.
    """
    transactions: KafkaTransactions | None = None
    brokers.acts.extend(acts)
    tries = 0
    while (at := await position(brokers)) != Commit(ROUNDS):
        assert (tries := tries + 1) < 100
        try:
            transactions = transactions or await opened(brokers)
            if at != UNDECIDED:
                number = 0 if at is None else at.next_offset
                await transactions.publish(records(number), {SOURCE: Commit(number + 1)})
        except (Transient, Fenced, Unreachable):
            if transactions is not None:
                await transactions.close()
            transactions = None


async def position(brokers: Brokers) -> Commit | None:
    return (await positions(Client(brokers), "group", [SOURCE], decided=True))[SOURCE]


def assert_each_once(brokers: Brokers) -> None:
    expected = [value for number in range(ROUNDS) for value in records(number)[0].values]
    assert [brokers.committed[where] for where in OUT] == [expected, expected]


# The end of a transaction hangs, its repetition is refused, and the hanging one commits after the
# worker has asked for its position and before its new producer has started.
@example([Act()] * 5 + [Act("late", 0, 1), Act("refuse", 45)], -1)
@given(st.lists(CHANCE | LATE, max_size=30), st.sampled_from([-1, LAST_EPOCH - 2]))
def test_each_record_is_committed_once_whatever_becomes_of_the_requests(
    acts: list[Act], epoch: int
) -> None:
    brokers = Brokers(is_second=True, epoch=epoch)
    run(work(brokers, acts))
    assert_each_once(brokers)


@given(st.lists(CHANCE, max_size=30))
def test_older_brokers_commit_each_record_once_too(acts: list[Act]) -> None:
    """Nothing arrives late here: a connection without an answer is reset, because these brokers
    could not tell a late end of one transaction from the end of the next one.
    """
    brokers = Brokers(is_second=False)
    run(work(brokers, acts))
    assert_each_once(brokers)


@virtual_time
async def test_the_second_version_needs_three_questions_a_transaction() -> None:
    brokers = Brokers(is_second=True)
    transactions = await opened(brokers)
    for number in range(2):
        brokers.seen.clear()
        out = records(number)[:1]
        await transactions.publish(out, {SOURCE: Commit(number + 1)})
        assert brokers.seen == ["AddingProduce", "AddingOffsets", "EndAndBump"]


@virtual_time
async def test_older_brokers_are_told_first_what_a_transaction_writes_to() -> None:
    brokers = Brokers(is_second=False)
    transactions = await opened(brokers)
    for number in range(2):
        brokers.seen.clear()
        await transactions.publish(records(number)[:1], {SOURCE: Commit(number + 1)})
        assert brokers.seen == [
            "AddPartitionsToTxnRequest",
            "Produce",
            "AddOffsetsToTxnRequest",
            "MembersOffsets",
            "EndTxnRequest",
        ]


@virtual_time
async def test_a_late_end_of_a_transaction_does_not_commit_a_part_of_the_next_one() -> None:
    brokers = Brokers(is_second=True)
    transactions = await opened(brokers)
    # Two writes and the position pass; the end hangs, and arrives in the middle of the next
    # transaction, behind its writes.
    brokers.acts.extend([Act(), Act(), Act(), Act("late", requests=4)])
    await transactions.publish(records(0), {SOURCE: Commit(1)})
    brokers.acts.extend([Act()] * 3 + [Act("refuse", 120)])
    with pytest.raises(Transient):
        await transactions.publish(records(1), {SOURCE: Commit(2)})
    await transactions.close()
    assert brokers.positions == {TopicPartition(*SOURCE): 1}
    assert [brokers.committed[where] for where in OUT] == [records(0)[0].values] * 2


@pytest.mark.parametrize("is_second", [True, False])
@virtual_time
async def test_the_second_of_two_producers_of_one_id_fences_the_first(*, is_second: bool) -> None:
    brokers = Brokers(is_second=is_second)
    first = await opened(brokers)
    await first.publish(records(0), {SOURCE: Commit(1)})
    second = await opened(brokers)
    with pytest.raises(Fenced):
        await first.publish(records(1), {SOURCE: Commit(2)})
    await first.close()
    await second.publish(records(1), {SOURCE: Commit(2)})
    assert brokers.positions == {TopicPartition(*SOURCE): 2}
    assert brokers.committed[OUT[0]] == [*records(0)[0].values, *records(1)[0].values]


@virtual_time
async def test_what_is_not_committed_is_taken_back_at_the_end() -> None:
    brokers = Brokers(is_second=True)
    transactions = await opened(brokers)
    brokers.acts.extend([Act(), Act(), Act("refuse", 120)])
    with pytest.raises(Transient):
        await transactions.publish(records(0), {SOURCE: Commit(1)})
    await transactions.close()
    assert brokers.seen[-1] == "EndAndBump"
    assert not brokers.committed
