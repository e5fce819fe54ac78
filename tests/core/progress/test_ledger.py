import re
from collections.abc import Sequence
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.core.progress.cursor import MAX_CHARS, PartitionProgress, decode, encode
from penstock.core.progress.ledger import Ledger
from penstock.core.rows.origin import Cursor, Ranges
from tests.support.examples import examples

ROWS = Cursor(7, "0123456789abcdef")


def test_a_new_ledger_stands_where_the_group_had_committed() -> None:
    assert Ledger(PartitionProgress(42)).next_offset == 42


def test_nothing_may_be_committed_before_it_is_delivered() -> None:
    ledger = Ledger(PartitionProgress(0))
    ledger.open(0, 1)
    assert ledger.next_offset == 0
    ledger.deliver(0, 0)
    assert ledger.next_offset == 1


def test_a_later_delivery_waits_for_the_earlier_one() -> None:
    ledger = Ledger(PartitionProgress(0))
    ledger.open(0, 1)
    ledger.open(1, 1)
    ledger.deliver(1, 0)
    assert ledger.next_offset == 0
    ledger.deliver(0, 0)
    assert ledger.next_offset == 2


def test_a_record_is_delivered_when_all_its_objects_are() -> None:
    ledger = Ledger(PartitionProgress(0))
    ledger.open(0, 3)
    ledger.deliver(0, 0)
    ledger.deliver(0, 2)
    assert (ledger.next_offset, ledger.owed) == (0, 1)
    ledger.deliver(0, 1)
    assert (ledger.next_offset, ledger.owed) == (1, 0)


def test_a_record_without_objects_is_delivered_at_once() -> None:
    ledger = Ledger(PartitionProgress(5))
    ledger.open(5, 0)
    assert ledger.next_offset == 6


def test_a_record_without_objects_waits_for_those_before_it() -> None:
    ledger = Ledger(PartitionProgress(0))
    ledger.open(0, 1)
    ledger.open(1, 0)
    assert ledger.next_offset == 0
    ledger.deliver(0, 0)
    assert ledger.next_offset == 2


def test_gaps_between_offsets_mean_nothing() -> None:
    ledger = Ledger(PartitionProgress(10))
    ledger.open(13, 1)
    ledger.open(90, 1)
    assert ledger.next_offset == 13
    ledger.deliver(13, 0)
    assert ledger.next_offset == 90
    ledger.deliver(90, 0)
    assert ledger.next_offset == 91


def test_a_record_that_comes_again_is_refused() -> None:
    ledger = Ledger(PartitionProgress(0))
    ledger.open(0, 1)
    with pytest.raises(ValueError, match="offset 0 arrived after"):
        ledger.open(0, 1)


def test_more_deliveries_than_objects_are_refused() -> None:
    ledger = Ledger(PartitionProgress(0))
    ledger.open(0, 1)
    ledger.open(1, 1)
    ledger.deliver(1, 0)
    with pytest.raises(ValueError, match="more than once"):
        ledger.deliver(1, 0)


@given(
    gaps=st.lists(st.integers(0, 5), min_size=1, max_size=30),
    objects=st.lists(st.integers(0, 3), min_size=30, max_size=30),
    data=st.data(),
)
def test_it_agrees_with_a_ledger_that_looks_at_everything(
    gaps: Sequence[int], objects: Sequence[int], data: st.DataObject
) -> None:
    ledger = Ledger(PartitionProgress(0))
    owed: dict[int, set[int]] = {}
    offset = -1
    for gap, count in zip(gaps, objects, strict=False):
        offset += gap + 1
        ledger.open(offset, count)
        owed[offset] = set(range(count))
    duties = [(number, index) for number in owed for index in owed[number]]
    for number, index in data.draw(st.permutations(duties)):
        ledger.deliver(number, index)
        owed[number].remove(index)
        progress = ledger.progress
        left = [one for one in owed if owed[one]]
        assert progress.next_offset == min(left, default=offset + 1)
        for one, indices in owed.items():
            asked = set(range(objects[list(owed).index(one)]))
            if one >= progress.next_offset and asked:
                assert (one in progress.completed) == (not indices)
            if one >= progress.next_offset and indices:
                marked = {
                    i for start, stop in progress.objects.get(one, ()) for i in range(start, stop)
                }
                assert marked == asked - indices
        assert len(progress.completed.starts) <= len(left)


def test_what_was_delivered_of_a_record_outlives_a_takeover() -> None:
    ledger = Ledger(PartitionProgress(0))
    for offset in range(5):
        ledger.open(offset, 2)
    for offset in (1, 2, 4):
        ledger.deliver(offset, 0)
        ledger.deliver(offset, 1)
    ledger.deliver(3, 1)
    ledger.reach(3, 0, ROWS)
    heir = Ledger(decode(encode(ledger.progress), 0)[0])
    assert [heir.is_completed(offset) for offset in range(6)] == [0, 1, 1, 0, 1, 0]
    assert [heir.is_begun(offset) for offset in range(6)] == [0, 0, 0, 1, 0, 0]
    assert (heir.is_delivered(3, 0), heir.is_delivered(3, 1)) == (False, True)
    assert heir.cursor(3, 0) == ROWS


def test_a_takeover_forgets_nothing_that_was_not_read_again_yet() -> None:
    inherited = PartitionProgress(0, Ranges([(2, 900)]), {950: Ranges([(1, 2)])}, {(950, 0): ROWS})
    ledger = Ledger(inherited)
    assert encode(ledger.progress) == "p1:0;0.0.;2.382;3b6.1.1;3b6.0.7.0123456789abcdef"
    ledger.open(0, 1)
    ledger.open(1, 1)
    ledger.deliver(0, 0)
    assert encode(ledger.progress) == "p1:1;0.0.;1.382;3b5.1.1;3b5.0.7.0123456789abcdef"
    ledger.open(2, 0)
    ledger.deliver(1, 0)
    assert ledger.next_offset == 3
    assert 899 in ledger.progress.completed


def test_records_completed_beyond_count_before_they_are_read_again() -> None:
    """A drain may come in between; what is committed then must be readable, and say all of it."""
    ledger = Ledger(decode("p1:2;0.0.;1.3;;", 2)[0])
    ledger.open(2, 1)
    ledger.deliver(2, 0)
    progress = ledger.progress
    assert (progress.next_offset, encode(progress)) == (6, "")
    for offset in (3, 4, 5):
        assert ledger.is_completed(offset)
        ledger.open(offset, 0)
    ledger.open(6, 1)
    assert ledger.progress.next_offset == 6


def test_gaps_between_completed_records_are_one_run_with_them() -> None:
    ledger = Ledger(PartitionProgress(10))
    for offset, objects in ((10, 1), (20, 1), (21, 0), (30, 1), (33, 1)):
        ledger.open(offset, objects)
    ledger.deliver(30, 0)
    ledger.deliver(20, 0)
    assert list(ledger.progress.completed) == [(11, 31)]
    ledger.deliver(10, 0)
    assert (ledger.next_offset, list(ledger.progress.completed)) == (33, [])


@examples(0.3)
@given(
    stuck_every=st.integers(2, 9),
    gap=st.integers(1, 40),
    partly_every=st.integers(1, 30),
)
def test_metadata_never_outgrows_its_limit_and_a_full_one_recovers(
    stuck_every: int, gap: int, partly_every: int
) -> None:
    ledger = Ledger(PartitionProgress(0))
    stuck: list[int] = []
    offset = 0
    while ledger.has_room_for(offset):
        ledger.open(offset, 1)
        if len(stuck) * stuck_every <= offset // gap:
            stuck.append(offset)
            if len(stuck) % partly_every == 0 and ledger.spare_marks():
                ledger.reach(offset, 0, ROWS)
            assert len(encode(ledger.progress)) <= MAX_CHARS
        elif ledger.spare_marks():
            ledger.deliver(offset, 0)
        offset += gap
        if offset > 1_000 * gap * stuck_every:
            break
    assert len(stuck) > 50
    for one in stuck[:20]:
        ledger.deliver(one, 0)
    assert ledger.has_room_for(offset)


def test_of_one_message_as_many_objects_are_written_as_there_is_room_for() -> None:
    ledger = Ledger(PartitionProgress(0))
    ledger.open(0, 2_000)
    marked = 0
    while ledger.spare_marks() and marked < 999:
        marked += 1
        ledger.deliver(0, 2 * marked)
    assert 100 < marked < 999
    assert len(encode(ledger.progress)) <= MAX_CHARS


def test_no_more_records_are_opened_than_fit_if_every_second_completes() -> None:
    ledger = Ledger(PartitionProgress(0))
    offset = 0
    while ledger.has_room_for(offset) and offset < 50_000:
        ledger.open(offset, 1)
        offset += 1
    assert 20_000 < offset < 50_000
    for completed in range(1, offset, 2):
        ledger.deliver(completed, 0)
    assert len(encode(ledger.progress)) <= MAX_CHARS


def test_the_page_tells_how_many_messages_fit_behind_one_that_waits() -> None:
    """One object a message: each second of those behind the first is owed until the end, which
    takes the most marks. Two objects: one of each message waits.
    """
    counts = {}
    for objects in (1, 2):
        ledger, offset = Ledger(PartitionProgress(0)), 0
        while ledger.has_room_for(None) and (objects == 1 or not offset or ledger.spare_marks()):
            ledger.open(offset, objects)
            if objects == 2:
                ledger.deliver(offset, 1)
            elif offset % 2:
                ledger.deliver(offset, 0)
            offset += 1
        counts[objects] = offset
    page = (Path(__file__).parents[3] / "docs" / "guarantees.md").read_text()
    one, two = re.findall(
        r"some ([0-9,]+) messages behind the first\s+incomplete|some (\d+) of them", page
    )
    assert counts[1] == pytest.approx(int(one[0].replace(",", "")), rel=0.05)
    assert counts[2] == pytest.approx(int(two[1]), rel=0.05)
