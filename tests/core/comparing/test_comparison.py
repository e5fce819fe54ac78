import random

import pytest

from penstock.core.comparing.comparison import (
    OTHERS,
    Agreement,
    AgreementShare,
    ComparedTimes,
    Comparison,
    Tally,
)


@pytest.mark.parametrize(
    ("a", "b", "is_same"),
    [
        (b"1", b"1", True),
        (b'{"a":1,"b":2}', b'{ "b": 2, "a": 1 }', True),
        (b"0.5", b"0.5009", True),
        (b"0.5", b"0.502", False),
        (b"2000.0", b"2001.5", True),  # relative, for numbers with a fraction
        (b"2000", b"2001", False),  # whole numbers are labels, too
        (b"2", b"2.0005", True),
        (b"[0.1,0.2]", b"[0.1001,0.2]", True),
        (b"[0.1,0.2]", b"[0.1,0.3]", False),
        (b"1" * 400, b"1.5", False),  # no float is as large
        (b"[0.1,0.2]", b"[0.1]", False),
        (b"[0.1,1]", b"[0.1,1.0]", True),
        (b'{"label":1,"score":0.5}', b'{"label":1,"score":0.5001}', True),
        (b'{"label":1,"score":0.5}', b'{"label":2,"score":0.5}', False),
        (b'{"a":1}', b'{"a":1,"b":2}', False),
        (b'"cat"', b'"dog"', False),
        (b"1", b"true", False),
        (b"0", b"null", False),
        (b"{}", b"[]", False),
        (b"nonsense", b"1", False),
        (b"nonsense", b"nonsense", True),
        (b"[" * 5_000, b"1", False),
    ],
)
def test_numbers_agree_within_the_tolerance_and_all_else_exactly(
    a: bytes, b: bytes, is_same: bool
) -> None:
    agreement = Agreement(1e-3)
    assert agreement.same(a, b) is is_same
    assert agreement.same(b, a) is is_same


def test_whole_numbers_are_apart_by_the_tolerance_too() -> None:
    assert Agreement(5).same(b"2000", b"2005")
    assert not Agreement(5).same(b"2000", b"2006")


def test_without_a_tolerance_only_equal_numbers_agree() -> None:
    assert Agreement().same(b"[1.0]", b"[1]")
    assert not Agreement().same(b"[1.0]", b"[1.0000001]")


def test_with_pointers_only_the_values_at_them_are_compared() -> None:
    agreement = Agreement(0.01, ["/label", "/scores/0"])
    a = b'{"label":1,"scores":[0.5,0.1],"took":3}'
    assert agreement.same(a, b'{"label":1,"scores":[0.505,0.9],"took":9}')
    assert not agreement.same(a, b'{"label":2,"scores":[0.5,0.1],"took":3}')
    assert not agreement.same(a, b'{"label":1,"scores":[0.6,0.1],"took":3}')


def test_a_pointer_that_finds_no_value_shows_as_disagreement() -> None:
    agreement = Agreement(0.01, ["/lable"])
    assert not agreement.same(b'{"label":1}', b'{"label":2}')
    assert not agreement.same(b"7", b"8")


def test_rows_that_differ_are_found_in_a_batch() -> None:
    mine = [b"1", b"2", b"0.3", b"null"]
    assert Agreement(0.1).differing(mine, list(mine)) == []
    assert Agreement(0.1).differing(mine, [b"1", b"3", b"0.31", b"4"]) == [1, 3]


def test_the_interval_of_few_rows_is_wide_and_stays_within_0_and_1() -> None:
    assert AgreementShare(0, 0).interval() == (0.0, 1.0)
    low, high = AgreementShare(10, 10).interval()
    assert 0.69 < low < 0.73  # by tables: 0.722
    assert high == 1.0
    assert AgreementShare(10, 0).interval()[0] == 0.0
    assert AgreementShare(1000, 990).interval() == pytest.approx((0.98169, 0.99456), abs=1e-4)


def test_the_interval_has_the_true_share_as_often_as_it_says() -> None:
    dice = random.Random(7)
    hits = 0
    for _ in range(400):
        agreed = sum(dice.random() < 0.99 for _ in range(500))
        low, high = AgreementShare(500, agreed).interval()
        hits += low <= 0.99 <= high
    assert hits >= 0.92 * 400


def test_streams_beyond_the_most_are_counted_together() -> None:
    tally = Tally(most=2)
    for stream in ("a", "b", "c", "a", "d"):
        tally.add(stream, 10, 9)
    assert tally.total == (50, 45)
    assert tally.streams == {"a": (20, 18), "b": (10, 9), OTHERS: (20, 18)}


def test_the_worst_stream_is_the_one_that_is_surely_bad() -> None:
    tally = Tally()
    tally.add("one row, wrong", 1, 0)
    tally.add("surely bad", 1000, 500)
    tally.add("nearly good", 1000, 999)
    tally.add("good", 1000, 1000)
    assert [name for name, _ in tally.worst(9)] == ["surely bad", "one row, wrong", "nearly good"]
    assert len(tally.worst(1)) == 1


def test_a_quantile_is_at_most_twelve_percent_too_high_even_in_a_sum() -> None:
    one, other = ComparedTimes(), ComparedTimes()
    for number in range(1, 1001):
        (one if number % 2 else other).add(number / 1000)
    one.merge(other.counts)
    for share in (0.5, 0.99):
        assert share <= (one.quantile_s(share) or 0) <= share * 1.13
    assert one.counts.total() == 1000


def test_a_time_of_zero_counts_in_the_first_class_and_no_times_have_no_quantile() -> None:
    took = ComparedTimes()
    assert took.quantile_s(0.5) is None
    took.add(0.0)
    assert took.quantile_s(0.5) == pytest.approx(1e-4)


def test_a_comparison_with_only_dropped_rows_is_not_empty() -> None:
    found = Comparison()
    assert found.is_empty
    found.dropped += 1
    assert not found.is_empty
