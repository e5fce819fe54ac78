from penstock.core.progress.order import PartitionOrder, Release
from penstock.core.rows.blocks import Block
from penstock.core.rows.rejections import ReasonsBuilder, Rejection
from tests.core.builders import answered, block, space, ticket

PLENTY = 1_000_000


def no_marks() -> int:
    return 0


def rows_of(releases: list[Release]) -> list[tuple[int, int, int]]:
    """(offset, first row, rows) of every block, in order."""
    return [
        (release.ticket.record.offset, one.first_row, one.rows)
        for release in releases
        for one in release.blocks
    ]


def test_an_answer_waits_for_the_rows_before_it() -> None:
    order, one = PartitionOrder(), ticket()
    order.add(one)
    first, second = block(one, 2), block(one, 3)
    one.close()
    answered(second)
    assert order.release(space(PLENTY), no_marks) == []
    answered(first)
    assert rows_of(order.release(space(PLENTY), no_marks)) == [(0, 0, 2), (0, 2, 3)]


def test_an_object_waits_for_the_object_before_it() -> None:
    order = PartitionOrder()
    early, late = ticket(offset=1), ticket(offset=2)
    for one in (early, late):
        order.add(one)
        block(one, 1)
        one.close()
    assert late.head is not None
    answered(late.head)
    assert order.release(space(PLENTY), no_marks) == []
    assert early.head is not None
    answered(early.head)
    assert rows_of(order.release(space(PLENTY), no_marks)) == [(1, 0, 1), (2, 0, 1)]


def test_the_last_block_stays_until_it_is_known_to_be_the_last() -> None:
    order, one = PartitionOrder(), ticket()
    order.add(one)
    answered(block(one, 2))
    assert order.release(space(PLENTY), no_marks) == []
    answered(block(one, 2))
    assert rows_of(order.release(space(PLENTY), no_marks)) == [(0, 0, 2)]
    one.close()
    (release,) = order.release(space(PLENTY), no_marks)
    assert (rows_of([release]), release.finished) == ([(0, 2, 2)], True)


def test_an_object_without_rows_is_released_when_it_is_closed() -> None:
    order, one = PartitionOrder(), ticket()
    order.add(one)
    assert order.release(space(PLENTY), no_marks) == []
    one.close()
    (release,) = order.release(space(PLENTY), no_marks)
    assert (release.blocks, release.finished) == ([], True)
    assert len(order) == 0


def test_a_failed_object_is_released_with_the_rows_it_had() -> None:
    order, one = PartitionOrder(), ticket()
    order.add(one)
    answered(block(one, 2))
    one.close(Rejection("bad_archive", "cut off", "expand"))
    (release,) = order.release(space(PLENTY), no_marks)
    assert (release.rows, release.finished) == (2, True)


def test_a_release_stops_after_the_block_that_reaches_the_limit() -> None:
    order, one = PartitionOrder(), ticket()
    order.add(one)
    for _ in range(4):
        answered(block(one, 10))
    one.close()
    assert rows_of(order.release(space(15), no_marks)) == [(0, 0, 10), (0, 10, 10)]
    assert rows_of(order.release(space(15), no_marks)) == [(0, 20, 10), (0, 30, 10)]


def test_a_rejected_block_keeps_its_place() -> None:
    order, one = PartitionOrder(), ticket()
    order.add(one)
    answered(block(one, 1))
    block(one, 1).reject(Rejection("bad_row", "no number", "expand"))
    answered(block(one, 1))
    one.close()
    (release,) = order.release(space(PLENTY), no_marks)
    assert [one.rejection is not None for one in release.blocks] == [False, True, False]


def test_only_tickets_that_no_fetcher_has_begun_are_abandoned() -> None:
    order = PartitionOrder()
    tickets = [ticket(offset=number) for number in range(4)]
    for one in tickets:
        order.add(one)
    tickets[0].started = tickets[1].started = True
    order.abandon_unstarted()
    assert list(order) == tickets[:2]


def test_a_block_cut_in_two_keeps_its_rows_in_order() -> None:
    order, one = PartitionOrder(), ticket()
    order.add(one)
    first = block(one, 5)
    rest = first.split(2)
    last = block(one, 1)
    one.close()
    for part in (last, rest, first):
        answered(part)
    assert rows_of(order.release(space(PLENTY), no_marks)) == [(0, 0, 2), (0, 2, 3), (0, 5, 1)]


def test_a_release_is_cut_at_its_bytes_in_the_middle_of_a_block() -> None:
    order, one = PartitionOrder(), ticket()
    order.add(one)
    answered(block(one, 10))
    one.close()
    found = [order.release(space(PLENTY, 350, frame_bytes=100), no_marks) for _ in range(4)]
    assert [rows_of(releases) for releases in found] == [
        [(0, 0, 3)], [(0, 3, 3)], [(0, 6, 3)], [(0, 9, 1)],
    ]  # fmt: skip
    assert [releases[0].finished for releases in found] == [False, False, False, True]
    assert [answer for releases in found for answer in releases[0].blocks[0].answers or ()] == [
        b"%d" % row for row in range(10)
    ]


def test_a_row_above_the_bytes_of_a_release_leaves_alone() -> None:
    order, one = PartitionOrder(), ticket()
    order.add(one)
    answered(block(one, 2))
    one.close()
    assert rows_of(order.release(space(PLENTY, 10, frame_bytes=1_000), no_marks)) == [(0, 0, 1)]


def test_errors_stay_with_their_rows_when_a_block_is_cut() -> None:
    order, one = PartitionOrder(), ticket()
    order.add(one)
    bad = Rejection("model_rejected", "no", "predict")
    block(one, 4).answer([b"1", b"null", b"3", b"null"], {1: bad, 3: bad}, 10)
    one.close()
    first = order.release(space(PLENTY, 6_000, frame_bytes=1_000), no_marks)[0].blocks[0]
    assert (first.rows, dict(first.errors)) == (2, {1: bad})
    rest = order.release(space(PLENTY), no_marks)[0].blocks[0]
    assert (rest.first_row, rest.rows, dict(rest.errors)) == (2, 2, {1: bad})


def test_bad_rows_use_up_room_by_their_dead_letters() -> None:
    """Each in its own way is a letter each; all for one reason are one."""
    order, one = PartitionOrder(), ticket()
    order.add(one)
    for texts in (["same"] * 100, [f"reason {number}" for number in range(100)]):
        builder = ReasonsBuilder()
        for text in texts:
            builder.add(1, text)
        bad = Rejection("bad_row", "", "expand")
        one.add(Block(one, one.next_row, 100, None, None, bad, builder.build()))
        one.next_row += 100
    one.close()
    room_bytes = 150_000
    first, second = (order.release(space(PLENTY, room_bytes), no_marks)[0] for _ in range(2))
    assert 100 < first.rows < 140
    assert second.rows < 65
