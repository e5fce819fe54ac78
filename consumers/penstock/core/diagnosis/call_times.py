"""How long a model's calls take by their number of rows, with how sure that is.

Rule: the last calls are fitted as `base + rows * per row`, each with the error that its spread
allows. If all calls had about the same number of rows, the two cannot be told apart: the fit says
so, and knows only the time at that size. Pure.
"""

from collections.abc import Sequence
from typing import Any, Final, NamedTuple

import numpy as np

# Fewer calls tell nothing.
LEAST_CALLS: Final = 20
# Sizes count as spread if their deviation is at least this share of their mean, and the error of
# the time a row is less than half of it.
LEAST_SPREAD: Final = 0.1
MOST_ERROR: Final = 0.5


class CallTimes(NamedTuple):
    """`calls`: of so many calls. `rows_...`: of their sizes. `base_s`, `row_s`: of the fit, neither
    below zero; `row_s` is None if the sizes do not tell. `mean_s`: of the mean size. `p99_times`:
    how many times the expected time one call in a hundred takes. `error_s`: the standard error of
    the time at the mean size, and `row_error_s` of the time a row.
    """

    calls: int
    rows_least: int
    rows_mean: float
    rows_most: int
    mean_s: float
    base_s: float
    row_s: float | None
    error_s: float
    row_error_s: float | None
    p99_times: float

    def at(self, rows: float) -> float:
        """The time of a call with so many rows. If the sizes did not tell, it is the mean."""
        return self.mean_s if self.row_s is None else self.base_s + self.row_s * rows

    def rounded(self) -> dict[str, Any]:
        """For the status: three digits more than a microsecond are noise."""
        return {
            name: round(value, 9) if isinstance(value, float) else value
            for name, value in self._asdict().items()
        }

    def error_at(self, rows: float) -> float:
        if self.row_error_s is None:
            return self.error_s
        return float(np.hypot(self.error_s, self.row_error_s * (rows - self.rows_mean)))


def call_times(calls: Sequence[tuple[int, float]]) -> CallTimes | None:
    """`calls`: pairs of rows and seconds. None: there are too few."""
    if len(calls) < LEAST_CALLS:
        return None
    rows, took_s = np.array(calls, np.float64).T
    mean_rows, mean_s = float(rows.mean()), float(took_s.mean())
    apart = rows - mean_rows
    squares = float(apart @ apart)
    # Two numbers are fitted, so two calls fewer tell of the error.
    free = len(calls) - 2
    row_s = row_error_s = None
    left_s = took_s - mean_s
    if squares > 0 and float(rows.std()) >= LEAST_SPREAD * mean_rows:
        slope = float(apart @ took_s) / squares
        fitted_s = left_s - slope * apart
        error_s = float(np.sqrt(fitted_s @ fitted_s / free / squares))
        if error_s <= MOST_ERROR * abs(slope) or _is_flat(slope, error_s, rows, mean_s):
            row_s, row_error_s = min(max(slope, 0.0), mean_s / mean_rows), error_s
            left_s = took_s - (mean_s + row_s * apart)
    expected_s = np.maximum(took_s - left_s, 1e-9)
    return CallTimes(
        len(calls),
        int(rows.min()),
        mean_rows,
        int(rows.max()),
        mean_s,
        mean_s if row_s is None else mean_s - row_s * mean_rows,
        row_s,
        float(np.sqrt(left_s @ left_s / free / len(calls))),
        row_error_s,
        max(1.0, float(np.quantile(took_s / expected_s, 0.99))),
    )


def _is_flat(slope: float, error_s: float, rows: Any, mean_s: float) -> bool:
    """Do the sizes show that the time hardly grows with them?"""
    span = float(rows.max() - rows.min())
    return (abs(slope) + 2 * error_s) * span < LEAST_SPREAD * mean_s
