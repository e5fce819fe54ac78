from penstock.core.rows.blocks import FirstAnswer, Ticket
from penstock.lane.dedupe import Announced
from penstock.messages.reference import Reference, RowRange
from penstock.ports import Record
from tests.core.builders import StubLane
from tests.support.partitions import P0


def opened(
    offset: int,
    key: str = "a",
    etag: str | None = "1",
    rows: tuple[RowRange, ...] | None = None,
    count: int = 9,
) -> Ticket:
    reference = Reference(bucket="b", key=key, rows=rows)
    ticket = Ticket(StubLane(), Record(P0, offset, None, None, 0), 0, "s", reference)
    ticket.pin = (None, etag)
    ticket.next_row = count
    ticket.close()
    return ticket


def test_the_first_answer_is_found_again() -> None:
    announced = Announced()
    assert announced.first(opened(7)) is None
    announced.read(opened(7))
    assert announced.first(opened(8)) == FirstAnswer(7, 0, 0)


def test_another_key_version_or_selection_is_another_announcement() -> None:
    announced = Announced()
    announced.read(opened(7))
    for other in (opened(8, key="b"), opened(8, etag="2"), opened(8, rows=((0, 5),))):
        assert announced.first(other) is None


def test_without_a_version_nothing_is_a_duplicate() -> None:
    announced = Announced()
    announced.read(opened(7, etag=None))
    assert announced.first(opened(8, etag=None)) is None


def test_a_selection_points_to_its_first_row_and_an_empty_object_to_its_marker() -> None:
    announced = Announced()
    announced.read(opened(1, rows=((4, None),)))
    announced.read(opened(2, key="empty", count=0))
    announced.read(opened(3, key="short", rows=((9, 12),)))
    assert announced.first(opened(8, rows=((4, None),))) == FirstAnswer(1, 0, 4)
    assert announced.first(opened(8, key="empty")) == FirstAnswer(2, 0, None)
    assert announced.first(opened(8, key="short", rows=((9, 12),))) == FirstAnswer(3, 0, None)


def test_the_longest_not_asked_for_is_forgotten_first() -> None:
    announced = Announced(max_versions=2)
    announced.read(opened(1, "a"))
    announced.read(opened(2, "b"))
    assert announced.first(opened(3, "a"))
    announced.read(opened(4, "c"))
    assert announced.first(opened(5, "b")) is None
    assert announced.first(opened(6, "a")) == FirstAnswer(1, 0, 0)
