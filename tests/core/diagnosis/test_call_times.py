"""How long calls take by their size, and how sure that is."""

import numpy as np
import pytest

from penstock.core.diagnosis.call_times import LEAST_CALLS, call_times


def calls(
    sizes: tuple[int, int], count: int = 200, *, noise: float = 0.0, row_s: float = 2e-5
) -> list[tuple[int, float]]:
    random = np.random.default_rng(11)
    rows = random.integers(sizes[0], sizes[1] + 1, count)
    took_s = (0.004 + row_s * rows) * (1 + noise * random.standard_normal(count))
    return [(int(row), float(took)) for row, took in zip(rows, took_s, strict=True)]


def test_base_and_time_a_row_are_found_and_their_errors_hold_them() -> None:
    exact = call_times(calls((20, 400)))
    assert exact is not None
    assert exact.row_s is not None
    assert (exact.base_s, exact.row_s) == pytest.approx((0.004, 2e-5))
    assert exact.p99_times == pytest.approx(1.0)
    noisy = call_times(calls((20, 400), noise=0.3))
    assert noisy is not None
    assert noisy.row_s is not None
    assert noisy.row_error_s is not None
    assert abs(noisy.row_s - 2e-5) < 3 * noisy.row_error_s
    for rows in (1, 200, 1_000):
        assert abs(noisy.at(rows) - (0.004 + 2e-5 * rows)) < 3 * noisy.error_at(rows)
    assert 1.4 < noisy.p99_times < 2.2
    assert noisy.error_at(1_000) > noisy.error_at(200) > exact.error_at(200)


@pytest.mark.parametrize(
    ("sizes", "noise", "why"),
    [
        ((64, 64), 0.3, "one size"),
        ((60, 68), 0.1, "hardly any spread"),
        ((40, 80), 1.5, "noise that hides it"),
    ],
)
def test_sizes_that_do_not_tell_leave_the_time_a_row_unknown(
    sizes: tuple[int, int], noise: float, why: str
) -> None:
    times = call_times(calls(sizes, noise=noise))
    assert times is not None
    assert (times.row_s, times.row_error_s) == (None, None), why
    assert times.at(1) == times.at(1_000) == times.mean_s


def test_a_time_that_does_not_grow_is_known_not_to() -> None:
    times = call_times(calls((1, 1_000), noise=0.02, row_s=0.0))
    assert times is not None
    assert times.row_s is not None
    assert times.at(1_000) == pytest.approx(0.004, rel=0.1)


def test_few_calls_tell_nothing() -> None:
    assert call_times(calls((1, 90), LEAST_CALLS - 1)) is None
    assert call_times([]) is None
