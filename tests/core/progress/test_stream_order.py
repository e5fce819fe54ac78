"""Where order is kept per stream, a stream waits for itself alone."""

from collections.abc import Callable

from hypothesis import given
from hypothesis import strategies as st

from penstock.core.progress.order import Release, StreamOrder
from penstock.core.rows.blocks import Ticket
from penstock.core.rows.rejections import Rejection
from tests.core.builders import answered, block, space, ticket

PLENTY = 1_000_000


def marks(number: int) -> Callable[[], int]:
    return lambda: number


def offsets(releases: list[Release]) -> list[int]:
    return [release.ticket.record.offset for release in releases]


def made(streams: str, rows: int = 1) -> tuple[StreamOrder, list[Ticket]]:
    """One ticket per letter, each with its rows read and none answered."""
    order = StreamOrder()
    tickets = [ticket(stream, offset) for offset, stream in enumerate(streams)]
    for one in tickets:
        order.add(one)
        block(one, rows)
        one.close()
    return order, tickets


def answer(one: Ticket) -> None:
    at = one.head
    while at is not None:
        answered(at)
        at = at.next


def test_a_stuck_object_holds_back_its_own_stream_alone() -> None:
    order, tickets = made("abcab")
    for one in tickets[1:]:
        answer(one)
    assert sorted(offsets(order.release(space(PLENTY), marks(9)))) == [1, 2, 4]
    answer(tickets[0])
    assert offsets(order.release(space(PLENTY), marks(9))) == [0, 3]
    assert len(order) == 0


def test_beyond_the_first_ticket_as_many_leave_as_there_are_marks() -> None:
    order, tickets = made("abcdb")
    for one in tickets[1:]:
        answer(one)
    assert order.release(space(PLENTY), marks(0)) == []
    assert len(order.release(space(PLENTY), marks(2))) == 2
    answer(tickets[0])
    assert offsets(order.release(space(PLENTY), marks(0))) == [0]
    assert len(order.release(space(PLENTY), marks(0))) == 1


def test_the_stream_that_used_up_the_room_is_the_last_in_the_next_turn() -> None:
    order, (huge, small) = made("ab")
    huge.closed = False
    for _ in range(3):
        block(huge, 100)
    answer(huge)
    answer(small)
    assert offsets(order.release(space(50), marks(9))) == [0]
    assert offsets(order.release(space(1), marks(9))) == [1]


def test_only_heads_of_streams_have_nothing_before_them() -> None:
    order, tickets = made("aab")
    assert [order.is_head(one) for one in tickets] == [True, False, True]
    assert not order.is_head(ticket("c"))


def test_tickets_that_no_fetcher_has_begun_are_abandoned_with_all_behind_them() -> None:
    order = StreamOrder()
    tickets = [ticket(stream, offset) for offset, stream in enumerate("aaabbc")]
    for one in tickets:
        order.add(one)
    tickets[0].started = tickets[3].started = True
    tickets[2].close(Rejection("bad_reference", "junk", "consume"))
    order.abandon_unstarted()
    assert list(order) == [tickets[0], tickets[3]]


@given(st.text("abc", min_size=1, max_size=12), st.integers(1, 3), st.integers(0, 3), st.data())
def test_it_agrees_with_one_queue_per_stream(
    streams: str, room: int, spare: int, data: st.DataObject
) -> None:
    """Whatever the order of the answers, all leave in the end, each stream in its own order; and
    one that stays stays for want of an answer, of room, or of a mark.
    """
    order, tickets = made(streams)
    left: list[int] = []
    for one in data.draw(st.permutations(tickets)):
        answer(one)
        left += offsets(order.release(space(room), marks(spare)))
    while released := offsets(order.release(space(room), marks(spare))):
        assert len(released) <= min(room, spare + 1)
        left += released
    assert sorted(left) == list(range(len(streams)))
    for stream in set(streams):
        of_stream = [offset for offset in left if streams[offset] == stream]
        assert of_stream == sorted(of_stream)
