import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.core.window.pace import LEAST_WAIT_S, BatchPlan, CallFit, Pace

FIXED = BatchPlan(max_rows=512, max_wait_s=0.010)


def pace(target_ms: float = 50.0) -> Pace:
    return Pace(FIXED, target_ms / 1000)


def feed(
    of: Pace, calls: int, *, base_s: float, per_row_s: float, busy: float = 1.0, now_s: float = 0.0
) -> float:
    """Calls of many sizes, one after the other; the time of the last."""
    for number in range(calls):
        rows = 8 + 40 * (number % 8)
        took_s = base_s + per_row_s * rows
        now_s += took_s / busy
        of.answered(rows, took_s, now_s)
    return now_s


def test_without_data_the_fixed_values_hold() -> None:
    young = pace()
    assert young.plan() == FIXED
    feed(young, 19, base_s=0.001, per_row_s=0.0)
    assert young.plan() == FIXED


@given(st.floats(0.0, 0.05), st.floats(0.0, 0.001))
def test_the_fit_finds_the_line_that_the_calls_follow(base_s: float, per_row_s: float) -> None:
    fit = CallFit()
    for number in range(200):
        rows = 1 + 37 * number % 512
        fit.add(rows, base_s + per_row_s * rows)
    found_base_s, found_per_row_s = fit.line()
    for rows in (1, 100, 512):
        expected = base_s + per_row_s * rows
        assert found_base_s + found_per_row_s * rows == pytest.approx(expected, rel=0.01, abs=1e-6)


def test_calls_of_one_size_are_all_base() -> None:
    fit = CallFit()
    for _ in range(50):
        fit.add(64, 0.004)
    assert fit.line() == pytest.approx((0.004, 0.0))


def test_the_largest_batch_is_the_one_whose_call_still_fits() -> None:
    slow = pace(target_ms=50)
    feed(slow, 100, base_s=0.005, per_row_s=0.0001)
    # Half of 50 ms, less the base of 5 ms, at 0.1 ms a row.
    assert slow.plan().max_rows == pytest.approx(200, abs=2)


def test_a_fast_server_is_asked_sooner_than_a_slow_one() -> None:
    fast, slow = pace(), pace()
    feed(fast, 1_500, base_s=0.001, per_row_s=0.0)
    feed(slow, 1_500, base_s=0.008, per_row_s=0.0)
    assert fast.plan().max_wait_s == pytest.approx(0.001, rel=0.05)
    assert slow.plan().max_wait_s == pytest.approx(0.008, rel=0.05)


def test_an_idle_server_is_asked_almost_at_once() -> None:
    idle, busy = pace(), pace()
    feed(idle, 1_000, base_s=0.002, per_row_s=0.0, busy=0.05)
    feed(busy, 1_000, base_s=0.002, per_row_s=0.0, busy=0.9)
    assert idle.plan().max_wait_s == LEAST_WAIT_S
    assert busy.plan().max_wait_s == pytest.approx(0.002, rel=0.05)


def test_rows_wait_for_the_whole_fixed_window_on_a_full_machine_only() -> None:
    idle, full = pace(), pace()
    for one, late_s in ((idle, 0.0005), (full, 0.004)):
        feed(one, 1_000, base_s=0.002, per_row_s=0.0)
        for _ in range(100):
            one.rang(late_s)
    assert idle.plan().max_wait_s == pytest.approx(0.002, rel=0.05)
    assert full.plan().max_wait_s == pytest.approx(FIXED.max_wait_s)
    for _ in range(100):
        full.rang(0.0005)
    assert full.plan().max_wait_s == pytest.approx(0.002, rel=0.05)


def test_no_row_waits_longer_than_the_fixed_window_however_long_a_call_takes() -> None:
    slow = pace(target_ms=200)
    feed(slow, 1_000, base_s=0.040, per_row_s=0.0)
    assert slow.plan().max_wait_s == FIXED.max_wait_s


def test_a_model_slower_than_the_target_keeps_the_fixed_values() -> None:
    heavy = pace(target_ms=50)
    feed(heavy, 1_000, base_s=0.060, per_row_s=0.001)
    assert heavy.plan() == FIXED


def test_no_batch_is_cut_so_small_that_its_rows_cost_much_more() -> None:
    launched = pace(target_ms=50)
    # 25 ms leave 10 rows beside the base; at 400 the base is a quarter of what the rows take.
    feed(launched, 1_000, base_s=0.024, per_row_s=0.00024)
    assert launched.plan().max_rows == pytest.approx(400, abs=4)


def test_a_full_machine_is_asked_less_often_however_little_the_target_leaves() -> None:
    full = pace(target_ms=12)
    now_s = feed(full, 1_000, base_s=0.007, per_row_s=0.0)
    # The target leaves no time to wait; on a machine with room it is asked at once.
    assert full.plan().max_wait_s == LEAST_WAIT_S
    for _ in range(100):
        full.rang(0.004)
    feed(full, 1, base_s=0.007, per_row_s=0.0, now_s=now_s)
    assert full.plan().max_wait_s == pytest.approx(FIXED.max_wait_s)


def test_time_lost_elsewhere_shortens_what_a_batch_may_take() -> None:
    near, far = pace(), pace()
    for one, elsewhere_s in ((near, 0.001), (far, 0.030)):
        feed(one, 100, base_s=0.002, per_row_s=0.0001)
        for _ in range(500):
            one.elsewhere(elsewhere_s)
    assert far.plan().max_rows < near.plan().max_rows


def test_a_backlog_is_worked_off_with_the_fixed_values() -> None:
    late = pace()
    feed(late, 100, base_s=0.002, per_row_s=0.0001)
    for _ in range(500):
        late.elsewhere(10.0)
    assert late.plan() == FIXED
    for _ in range(5_000):
        late.elsewhere(0.001)
    assert late.plan() != FIXED


def test_a_call_of_more_rows_is_larger_as_far_as_rows_take_time() -> None:
    assert pace().size(500) == 1.0
    of_rows, of_base = pace(), pace()
    for one, base_s, per_row_s in ((of_rows, 0.0, 0.001), (of_base, 0.050, 0.0)):
        for rows in (50, 150) * 30:
            one.answered(rows, base_s + rows * per_row_s, 0.0)
    assert of_rows.size(200) == pytest.approx(2.0, rel=0.02)
    assert of_base.size(200) == pytest.approx(1.0, rel=0.02)


@given(
    st.lists(st.tuples(st.integers(1, 512), st.floats(0.0, 5.0)), max_size=200),
    st.lists(st.floats(0.0, 100.0), max_size=50),
)
def test_the_setting_stays_within_its_bounds_whatever_happens(
    calls: list[tuple[int, float]], elsewhere: list[float]
) -> None:
    any_pace = pace()
    now_s = 0.0
    for rows, took_s in calls:
        now_s += took_s / 3
        any_pace.answered(rows, took_s, now_s)
    for spent_s in elsewhere:
        any_pace.elsewhere(spent_s)
    setting = any_pace.plan()
    assert 1 <= setting.max_rows <= 512
    assert 0.0 <= setting.max_wait_s <= 0.050
    assert any_pace.size(1) > 0


def test_after_many_slow_calls_of_one_row_a_batch_has_at_most_two() -> None:
    slow = pace()
    for number in range(60):
        slow.answered(1, 5.0, 5.0 * (number + 1))
        assert slow.plan().max_rows <= 2
