"""What librdkafka handed over and nobody asked for yet: bounded, in order, given out once."""

from penstock.adapters.confluent.reads import CROWD_BYTES, CROWD_RECORDS, Inbox
from penstock.ports import Commit, Record
from tests.support.partitions import P0, P1, P2, where


def record(partition: int, offset: int, value: bytes = b"v") -> Record:
    return Record(where(partition), offset, None, value, 0)


def offsets(records: list[Record]) -> list[tuple[int, int]]:
    return [(one.where.partition, one.offset) for one in records]


def inbox(**starts: int) -> Inbox:
    made = Inbox()
    made.begin({where(int(name[1:])): Commit(start) for name, start in starts.items()})
    return made


def test_only_what_is_asked_for_is_given_out_and_the_rest_waits_in_order() -> None:
    box = inbox(p0=0, p1=0)
    for offset in range(3):
        box.put(record(0, offset))
        box.put(record(1, offset))
    assert offsets(box.take([P1], 500)) == [(1, 0), (1, 1), (1, 2)]
    assert offsets(box.take([P0, P1], 2)) == [(0, 0), (0, 1)]
    assert offsets(box.take([P0, P1], 2)) == [(0, 2)]


def test_a_record_that_came_before_is_dropped_and_so_is_one_of_a_partition_that_left() -> None:
    box = inbox(p0=5)
    for offset in (4, 5, 5, 7, 6):
        box.put(record(0, offset))
    box.put(record(9, 0))
    assert offsets(box.take([P0, where(9)], 500)) == [(0, 5), (0, 7)]


def test_after_a_seek_back_what_waited_is_gone_and_comes_again() -> None:
    box = inbox(p0=0)
    for offset in range(4):
        box.put(record(0, offset))
    box.begin({P0: Commit(2)})
    assert box.take([P0], 500) == []
    box.put(record(0, 2))
    assert offsets(box.take([P0], 500)) == [(0, 2)]


def test_reading_is_said_to_have_reached_what_was_given_out_not_what_waits() -> None:
    box = inbox(p0=0)
    box.put(record(0, 0))
    box.put(record(0, 1))
    box.ends(P0, 4)
    assert box.given_up_to() == {P0: 0}
    box.take([P0], 1)
    assert box.given_up_to() == {P0: 1}
    box.take([P0], 1)
    assert box.given_up_to() == {P0: 4}, "offsets 2 and 3 are no records"
    assert box.read_up_to() == {P0: 2}


def test_a_partition_that_nobody_wants_is_crowded_by_records_or_by_bytes() -> None:
    box = inbox(p0=0, p1=0, p2=0)
    for offset in range(CROWD_RECORDS):
        box.put(record(0, offset))
        box.put(record(1, offset))
    assert box.crowded([P1]) == {P0}
    box.put(record(2, 0, b"." * CROWD_BYTES))
    assert box.crowded([P1]) == {P0, P2}
    box.take([P0], CROWD_RECORDS)
    box.take([P2], 1)
    assert box.crowded([P1]) == set()
