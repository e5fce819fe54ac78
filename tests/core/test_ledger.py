from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from consumers.core.ledger import Ledger


def test_a_new_ledger_stands_where_the_group_had_committed() -> None:
    assert Ledger(42).next_offset == 42


def test_nothing_may_be_committed_before_it_is_delivered() -> None:
    ledger = Ledger(0)
    ledger.open(0, 1)
    assert ledger.next_offset == 0
    ledger.deliver(0)
    assert ledger.next_offset == 1


def test_a_later_delivery_waits_for_the_earlier_one() -> None:
    ledger = Ledger(0)
    ledger.open(0, 1)
    ledger.open(1, 1)
    ledger.deliver(1)
    assert ledger.next_offset == 0
    ledger.deliver(0)
    assert ledger.next_offset == 2


def test_a_record_is_delivered_when_all_its_objects_are() -> None:
    ledger = Ledger(0)
    ledger.open(0, 3)
    ledger.deliver(0)
    ledger.deliver(0)
    assert (ledger.next_offset, ledger.owed) == (0, 1)
    ledger.deliver(0)
    assert (ledger.next_offset, ledger.owed) == (1, 0)


def test_a_record_without_objects_is_delivered_at_once() -> None:
    ledger = Ledger(5)
    ledger.open(5, 0)
    assert ledger.next_offset == 6


def test_a_record_without_objects_waits_for_those_before_it() -> None:
    ledger = Ledger(0)
    ledger.open(0, 1)
    ledger.open(1, 0)
    assert ledger.next_offset == 0
    ledger.deliver(0)
    assert ledger.next_offset == 2


def test_gaps_between_offsets_mean_nothing() -> None:
    ledger = Ledger(10)
    ledger.open(13, 1)
    ledger.open(90, 1)
    assert ledger.next_offset == 13
    ledger.deliver(13)
    assert ledger.next_offset == 90
    ledger.deliver(90)
    assert ledger.next_offset == 91


def test_a_record_that_comes_again_is_refused() -> None:
    ledger = Ledger(0)
    ledger.open(0, 1)
    with pytest.raises(ValueError, match="offset 0 arrived after"):
        ledger.open(0, 1)


def test_more_deliveries_than_objects_are_refused() -> None:
    ledger = Ledger(0)
    ledger.open(0, 1)
    ledger.open(1, 1)
    ledger.deliver(1)
    with pytest.raises(ValueError, match="more often"):
        ledger.deliver(1)


@given(
    gaps=st.lists(st.integers(0, 5), min_size=1, max_size=30),
    objects=st.lists(st.integers(0, 3), min_size=30, max_size=30),
    data=st.data(),
)
def test_it_agrees_with_a_ledger_that_looks_at_everything(
    gaps: Sequence[int], objects: Sequence[int], data: st.DataObject
) -> None:
    ledger = Ledger(0)
    owed: dict[int, int] = {}
    offset = -1
    for gap, count in zip(gaps, objects, strict=False):
        offset += gap + 1
        ledger.open(offset, count)
        owed[offset] = count
    duties = [number for number, count in owed.items() for _ in range(count)]
    for number in data.draw(st.permutations(duties)):
        ledger.deliver(number)
        owed[number] -= 1
        open_offsets = [one for one, count in owed.items() if count]
        assert ledger.next_offset == min(open_offsets, default=offset + 1)
