from penstock.core.progress.order import (
    FetchQueue,
    FetchQueueByStream,
    FetchQueueInOrder,
    StreamShare,
)
from penstock.core.routing.store_choice import DEFAULT
from penstock.core.rows.blocks import Ticket
from tests.core.builders import ticket


def taken(queue: FetchQueue) -> list[Ticket]:
    return [queue.take(DEFAULT) for _ in range(len(queue))]


def filled(queue: FetchQueue, streams: str) -> list[Ticket]:
    tickets = [ticket(stream, offset) for offset, stream in enumerate(streams)]
    for one in tickets:
        queue.add(one)
    return tickets


def test_without_shares_all_may_be_fetched_in_input_order() -> None:
    queue = FetchQueueInOrder()
    tickets = filled(queue, "aabac")
    assert taken(queue) == tickets
    queue.delivered(tickets[0])
    assert queue.in_work == 4


def test_a_stream_has_its_share_of_the_fetchers() -> None:
    queue = FetchQueueByStream(StreamShare(lambda store: 8, 36))
    tickets = filled(queue, "aaaab")
    assert taken(queue) == [tickets[0], tickets[1], tickets[4]]
    queue.fetched(tickets[1])
    assert taken(queue) == [tickets[2]]


def test_a_stream_that_is_held_back_has_its_share_of_the_work() -> None:
    queue = FetchQueueByStream(StreamShare(lambda store: 36, 8))
    tickets = filled(queue, "aaaab")
    assert taken(queue) == [tickets[0], tickets[1], tickets[4]]
    assert queue.in_work == 3
    for one in tickets[:2]:
        queue.fetched(one)
    assert not len(queue)
    queue.delivered(tickets[0])
    assert taken(queue) == [tickets[2]]
    assert queue.in_work == 3


def test_a_ticket_that_waits_for_a_fetcher_is_in_work() -> None:
    queue = FetchQueueByStream(StreamShare(lambda store: 4, 12))
    filled(queue, "aaaaa")
    assert (len(queue), queue.in_work) == (1, 3)


def test_all_are_fetched_in_the_end_and_nothing_is_kept_of_them() -> None:
    queue = FetchQueueByStream(StreamShare(lambda store: 8, 12))
    tickets = filled(queue, "abac" * 10)
    order: list[Ticket] = []
    while taken_out := taken(queue):
        order += taken_out
        for one in taken_out:
            queue.fetched(one)
            queue.delivered(one)
    assert sorted(order, key=lambda one: one.record.offset) == tickets
    for stream in "abc":
        offsets = [one.record.offset for one in order if one.stream == stream]
        assert offsets == sorted(offsets)
    assert queue.in_work == 0


def test_after_a_clear_nothing_waits() -> None:
    queue = FetchQueueByStream(StreamShare(lambda store: 4, 8))
    first, *_ = filled(queue, "aaaa")
    queue.take(DEFAULT)
    queue.clear()
    queue.fetched(first)
    queue.delivered(first)
    assert not len(queue)
