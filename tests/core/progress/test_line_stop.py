"""How many dead letters are too many."""

import tracemalloc
from collections import deque

from hypothesis import given
from hypothesis import strategies as st

from penstock.core.progress.line_stop import (
    MAX_STREAMS,
    NO_LIMITS,
    LetterAccount,
    LineLimits,
    LineStop,
)


def passed(line: LetterAccount, objects: str, stream: str = "s") -> int:
    """How many of these objects (`x` failed, `.` did not) may leave."""
    for offset, mark in enumerate(objects):
        if line.refuses(stream, offset, failed=mark == "x", finished=True):
            return offset
    return len(objects)


def test_a_stream_stops_at_the_letter_that_is_one_too_many_in_a_row() -> None:
    assert passed(LetterAccount(LineLimits(0.0, 3)), "..xx.xxxx") == 8


def test_a_share_is_not_judged_before_there_are_a_hundred_objects() -> None:
    assert passed(LetterAccount(LineLimits(0.5, 0)), "x" * 200) == 99


def test_a_share_is_of_the_last_hundred_objects_only() -> None:
    assert (
        passed(LetterAccount(LineLimits(0.5, 0)), "x" * 50 + "." * 1_000 + "x" * 60) == 1_050 + 50
    )


def test_at_the_share_itself_the_line_goes_on() -> None:
    assert passed(LetterAccount(LineLimits(0.5, 0)), "x." * 500) == 1_000


def test_the_limit_that_would_be_broken_is_told_with_its_key() -> None:
    line = LetterAccount(LineLimits(0.5, 2))
    assert passed(line, "xx") == 2
    limit = line.refuses("s", 2, failed=True, finished=True)
    assert limit == "3 of its objects failed in a row, limits.dlq_consecutive is 2"
    share = LetterAccount(LineLimits(0.1, 0))
    passed(share, "." * 100 + "x" * 10)
    limit = share.refuses("s", 2, failed=True, finished=True)
    assert limit == "11 of its last 100 objects failed, limits.dlq_ratio is 0.1"


def test_no_single_record_stops_a_line_however_many_of_its_objects_fail() -> None:
    line = LetterAccount(LineLimits(0.5, 3))
    for _ in range(1_000):
        assert line.refuses("s", 7, failed=True, finished=True) is None
    assert passed(line, "xxx") == 2


def test_objects_of_a_record_that_do_not_fail_all_count() -> None:
    line = LetterAccount(LineLimits(0.0, 2))
    assert line.refuses("s", 1, failed=True, finished=True) is None
    assert line.refuses("s", 1, failed=False, finished=True) is None
    assert line.refuses("s", 2, failed=True, finished=True) is None
    assert line.refuses("s", 3, failed=True, finished=True) is None
    assert line.refuses("s", 4, failed=True, finished=True)


def test_good_answers_pass_however_many_failed_before() -> None:
    line = LetterAccount(LineLimits(0.5, 5))
    assert passed(line, "xxxxx") == 5
    assert line.refuses("s", 5, failed=True, finished=True)
    assert line.refuses("s", 5, failed=False, finished=True) is None


def test_streams_have_accounts_of_their_own() -> None:
    line = LetterAccount(LineLimits(0.0, 2))
    assert passed(line, "xx", "a") == 2
    assert passed(line, "xxx", "b") == 2
    assert passed(line, ".", "c") == 1


def test_an_object_counts_once_however_many_parts_it_leaves_in() -> None:
    line = LetterAccount(LineLimits(0.0, 1))
    for _ in range(5):
        assert line.refuses("s", 0, failed=True, finished=False) is None
    assert line.refuses("s", 0, failed=False, finished=True) is None
    assert line.refuses("s", 1, failed=False, finished=False) is None
    assert line.refuses("s", 1, failed=True, finished=True)


def test_without_limits_nothing_stops() -> None:
    assert passed(LetterAccount(NO_LIMITS), "x" * 1_000) == 1_000
    assert passed(LetterAccount(NO_LIMITS, stopped_at={0}), "x" * 1_000) == 1_000


def test_where_a_former_assignment_stopped_the_first_letter_stops_again() -> None:
    assert passed(LetterAccount(LineLimits(0.5, 100), stopped_at={0}), "x") == 0
    assert passed(LetterAccount(LineLimits(0.5, 100), stopped_at={0}), "." + "x" * 98) == 99


def test_a_stop_is_told_in_one_line_whatever_the_message_contains() -> None:
    stop = LineStop("refs", 0, "a\nb", 7, 0, 3, "model_rejected", "x\nfake line", "too many", 0, 0)
    assert str(stop) == (
        "stream 'a\\nb' at refs/0, offset 7, object 0, row 3: too many; "
        "now model_rejected: 'x\\nfake line'"
    )


def test_the_stream_that_was_silent_longest_is_forgotten_first() -> None:
    line = LetterAccount(LineLimits(0.0, 1))
    passed(line, "x", "old")
    passed(line, "x", "busy")
    for number in range(MAX_STREAMS - 1):
        passed(line, ".", f"{number}")
        passed(line, "", "busy")
        line.refuses("busy", 0, failed=False, finished=False)
    assert line.refuses("busy", 1, failed=True, finished=True)
    assert line.refuses("old", 1, failed=True, finished=True) is None


def test_long_names_cost_no_more_than_short_ones_and_are_not_mixed_up() -> None:
    line = LetterAccount(LineLimits(0.0, 1))
    tracemalloc.start()
    try:
        for number in range(2_000):
            assert passed(line, "x.", f"{'s' * 4_000}{number}") == 2
        # Each has its own account, in which one failure in a row is allowed.
        assert line.refuses(f"{'s' * 4_000}1", 5, failed=True, finished=True) is None
        assert line.refuses(f"{'s' * 4_000}1", 6, failed=True, finished=True)
        assert line.refuses(f"{'s' * 4_000}2", 6, failed=True, finished=True) is None
        assert tracemalloc.get_traced_memory()[0] < 2_000 * 500
    finally:
        tracemalloc.stop()


@given(
    st.lists(st.tuples(st.sampled_from("ab"), st.booleans()), max_size=400),
    st.sampled_from([0.0, 0.05, 0.5, 1.0]),
    st.sampled_from([0, 1, 3, 50]),
)
def test_it_judges_like_the_plain_count(
    objects: list[tuple[str, bool]], ratio: float, consecutive: int
) -> None:
    line = LetterAccount(LineLimits(ratio, consecutive))
    last: dict[str, deque[bool]] = {stream: deque(maxlen=100) for stream in "ab"}
    in_a_row = dict.fromkeys("ab", 0)
    for offset, (stream, failed) in enumerate(objects):
        with_this = [*last[stream], failed][-100:]
        expected = failed and (
            (0 < consecutive <= in_a_row[stream])
            or (len(with_this) == 100 and 0 < ratio * 100 < sum(with_this))
        )
        assert bool(line.refuses(stream, offset, failed=failed, finished=True)) == expected
        if expected:
            return
        last[stream].append(failed)
        in_a_row[stream] = in_a_row[stream] + 1 if failed else 0
