"""Reads on the thread: what ends one, and what a rebalance in the middle of it finds."""

import asyncio
from collections.abc import Callable
from typing import Any, TypeVar

from confluent_kafka import KafkaError

from penstock import config
from penstock.adapters.confluent.consumer_thread import Handle
from penstock.adapters.confluent.reads import ENOUGH_RECORDS, Reads
from penstock.ports import Commit
from tests.adapters.confluent import doubles
from tests.adapters.confluent.doubles import Message
from tests.support.partitions import P0, P1, by_number

T = TypeVar("T")


def end(offset: int) -> Message:
    return Message(offset, KafkaError._PARTITION_EOF)


class Consumer:
    """Hands over these portions, one after the other: what is there at once, what a wait brings,
    what is behind it, and so on. `within`: called in the last of them.
    """

    def __init__(self, *portions: list[Message], within: Callable[[], None] | None = None) -> None:
        self.portions = list(portions)
        self.within = within

    def consume(self, most: int, wait_s: float) -> list[Message]:
        portion = self.portions.pop(0) if self.portions else []
        if not self.portions and self.within is not None:
            self.within()
        return portion

    def poll(self, wait_s: float) -> Message | None:
        return self.portions.pop(0)[0] if self.portions else None


class Handled(Handle):
    """Calls are made at once."""

    def __init__(self, consumer: Any) -> None:
        super().__init__(config.Kafka(), 25_000, print)
        self.consumer = consumer
        self.before_a_call: Callable[[], None] = lambda: None

    def call(self, work: Callable[[], T], *, apart: bool = False) -> "asyncio.Future[T]":
        self.before_a_call()
        answer: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        answer.set_result(work())
        return answer


def reads_of(consumer: Any) -> Reads:
    reads = Reads(Handled(consumer))
    reads.begin({P0: Commit(0)})
    return reads


def offsets(reads: Reads) -> list[int]:
    return [record.offset for record in reads.inbox.take([P0], 500)]


async def test_what_is_there_is_one_portion() -> None:
    reads = reads_of(Consumer([Message(0), end(1), Message(1)], [Message(2)]))
    await reads.some({P0}, 1_000)
    assert offsets(reads) == [0, 1]


async def test_what_comes_faster_than_it_is_read_is_gathered() -> None:
    """Each portion is a turn of all stages."""
    some = [Message(0), end(1), Message(1), Message(2)]
    reads = reads_of(Consumer(some, [Message(3), Message(4)], [Message(5)]))
    await reads.some({P0}, 1_000)
    assert offsets(reads) == [0, 1, 2, 3, 4]


async def test_what_is_enough_for_a_portion_waits_for_no_more() -> None:
    enough = [Message(number) for number in range(ENOUGH_RECORDS)]
    reads = reads_of(Consumer(enough, [Message(ENOUGH_RECORDS)]))
    await reads.some({P0}, 1_000)
    assert offsets(reads) == list(range(ENOUGH_RECORDS))


async def test_the_end_of_a_partition_alone_ends_no_read() -> None:
    reads = reads_of(Consumer([end(0)], [end(0)], [end(0)], [Message(0)], [Message(1), end(2)]))
    await reads.some({P0}, 60_000)
    assert offsets(reads) == [0, 1]
    assert reads.inbox.given_up_to() == {P0: 2}


async def test_a_rebalance_in_a_read_finds_what_was_read_before_it() -> None:
    """Records 0 to 2 wait to be given out; 3 is early. All are read again from 0 on."""
    consumer = Consumer([], [Message(3)], [])
    reads = reads_of(consumer)
    reads._keep([Message(0), Message(1), Message(2)])

    def rebalance() -> None:
        consumer.within = None
        reads.keep_early()
        reads.forget([P0])
        reads.begin({P0: Commit(0)})

    consumer.within = rebalance
    await reads.some({P0}, 10)
    reads._keep([Message(number) for number in range(5)])
    assert offsets(reads) == [0, 1, 2, 3, 4]


async def test_a_seek_from_before_an_assignment_does_not_reach_it() -> None:
    """The thread came to it only after the partition had left and come back."""
    consumer = doubles.Consumer()
    consumer.held = {0: 50}
    reads = reads_of(consumer)
    assert isinstance(reads._handle, Handled)

    def come_back() -> None:
        reads.begin({P0: Commit(50)})

    reads._handle.before_a_call = come_back
    await reads.seek({P0: Commit(5)})
    assert consumer.held == by_number(reads.inbox.read_up_to()) == {0: 50}


async def test_what_is_assigned_anew_begins_where_the_thread_has_sought_it() -> None:
    """The event loop has not heard of the first of two seeks as the second is made."""
    consumer = doubles.Consumer()
    consumer.held, consumer.may_seek = {0: 9, 1: 9}, False
    reads = reads_of(consumer)
    reads.begin({P0: Commit(9), P1: Commit(9)})
    for starts in ({P0: Commit(3)}, {P1: Commit(4)}):
        reads._seek(starts, reads.ours.held(starts))
    assert consumer.held == {0: 3, 1: 4}
