"""Records of several partitions in the order of time, in cases and in random worlds."""

from collections import Counter
from random import Random

import pytest

from penstock.core.progress.time_order import MOST_BYTES, MOST_WAITING, Merge
from penstock.core.rows.origin import Record
from tests.support.partitions import P0, P1, P2, where

PATIENCE_S = 1.0


def record(partition: int, offset: int, timestamp_ms: int, value: bytes = b"") -> Record:
    return Record(where(partition), offset, None, value, timestamp_ms)


def times(records: list[Record]) -> list[int]:
    return [record.timestamp_ms for record in records]


def test_a_backlog_is_passed_on_in_the_order_of_time() -> None:
    merge = Merge(PATIENCE_S)
    merge.add([record(0, n, 10 * n) for n in range(4)])
    assert merge.take({P0: 4, P1: 0}, {P0: 4, P1: 9}, 0.0) == [], "the other one has older ones yet"
    merge.add([record(1, n, 5 + 10 * n) for n in range(2)])
    taken = merge.take({P0: 4, P1: 2}, {P0: 4, P1: 9}, 0.1)
    assert times(taken) == [0, 5, 10, 15], "and those after them wait for its next ones"
    merge.add([record(1, 2, 100)])
    assert times(merge.take({P0: 4, P1: 9}, {P0: 4, P1: 9}, 0.2)) == [20, 30, 100]


def test_what_was_read_after_the_ends_were_told_waits_for_the_next_ends() -> None:
    merge = Merge(PATIENCE_S)
    merge.add([record(0, 0, 10), record(0, 1, 30)])
    assert times(merge.take({P0: 2, P1: 0}, {P0: 1, P1: 0}, 0.0)) == [10]
    merge.add([record(1, 0, 20)])
    assert times(merge.take({P0: 2, P1: 1}, {P0: 2, P1: 1}, 0.0)) == [20, 30]


def test_a_partition_that_does_not_come_is_not_waited_for_for_ever() -> None:
    merge = Merge(PATIENCE_S)
    merge.add([record(0, 0, 0)])
    assert merge.take({P0: 1, P1: 0}, {P0: 1, P1: 9}, 0.0) == []
    assert len(merge.take({P0: 1, P1: 0}, {P0: 1, P1: 9}, PATIENCE_S)) == 1
    merge.add([record(0, 1, 1)])
    assert len(merge.take({P0: 2, P1: 0}, {P0: 2, P1: 9}, PATIENCE_S)) == 1, "nor once more"


def test_each_partition_that_falls_silent_is_waited_for_anew() -> None:
    merge = Merge(PATIENCE_S)
    ends = {P0: 9, P1: 9, P2: 9}
    merge.add([record(0, 0, 0)])
    assert merge.take({P0: 1, P1: 0, P2: 9}, ends, 0.0) == []
    merge.add([record(1, 0, 1)])
    assert merge.take({P0: 1, P1: 1, P2: 0}, ends, 0.9) == [], "another one is silent only now"
    assert times(merge.take({P0: 1, P1: 1, P2: 0}, ends, 2.0)) == [0]


def test_without_a_backlog_no_record_waits_and_a_partition_that_is_ahead_is_not_read() -> None:
    merge = Merge(PATIENCE_S)
    merge.add([record(1, 0, 50), record(0, 0, 40)])
    assert [each.where.partition for each in merge.take({P0: 1, P1: 1}, {P0: 1, P1: 1}, 0.0)] == [
        0,
        1,
    ]
    merge.add([record(0, n, n) for n in range(MOST_WAITING)])
    assert merge.room([P0, P1]) == [P1]
    merge.clear()
    merge.add([record(1, 0, 0, bytes(MOST_BYTES))])
    assert merge.room([P0, P1]) == [P0], "large records are not gathered by the thousand"
    merge.take({P0: 0, P1: 1}, {P0: 0, P1: 1}, 0.0)
    assert merge.room([P0, P1]) == [P0, P1]


@pytest.mark.parametrize("seed", range(200))
def test_all_records_leave_once_and_by_time_in_any_order_of_reads(seed: int) -> None:
    """A writer appends records of growing times to any partition; a reader sees some of what is
    there, and the true ends after each read. No partition is silent for longer than the patience.
    """
    random = Random(seed)
    partitions = random.randint(1, 6)
    logs: list[list[Record]] = [[] for _ in range(partitions)]
    reached = dict.fromkeys(map(where, range(partitions)), 0)
    merge = Merge(PATIENCE_S)
    left: list[Record] = []
    written, now_s = 0, 0.0
    while written < 300 or len(left) < written:
        for _ in range(random.choice([0, 0, 1, 5, 40]) if written < 300 else 0):
            number = random.randrange(partitions)
            logs[number].append(record(number, len(logs[number]), written))
            written += 1
        seen = random.sample(range(partitions), random.randint(1, partitions))
        for number in seen if written < 300 else range(partitions):
            upto = reached[where(number)] + random.randint(0, 20)
            fresh = logs[number][reached[where(number)] : upto]
            merge.add(fresh)
            reached[where(number)] += len(fresh)
        ends = {where(number): len(log) for number, log in enumerate(logs)}
        left += merge.take(reached, ends, now_s)
        now_s += PATIENCE_S / 1_000_000
    assert times(left) == sorted(times(left)), "one partition overtook another"
    assert Counter(left) == Counter(record for log in logs for record in log)
