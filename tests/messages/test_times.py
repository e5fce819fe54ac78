"""What a time means is told by its size, its digits or its text; or it is no time."""

from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import pytest

from penstock.messages.times import NoTime, read_time

NOON = 1_795_262_400_000  # 2026-11-21T12:00:00Z
MIDNIGHT = NOON - 12 * 3_600_000


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (NOON // 1000, NOON),
        (NOON / 1000, NOON),
        (NOON / 1000 + 0.412, NOON + 412),
        (NOON, NOON),
        (NOON * 1000 + 999, NOON),
        (NOON * 1_000_000 + 999_999, NOON),
        (str(NOON), NOON),
        (f" {NOON // 1000} ", NOON),
        ("1.7952624E9", NOON),
        (-631_152_000, -631_152_000_000),  # 1950, in seconds
        (20261121, MIDNIGHT),
        (20261121.0, MIDNIGHT),  # a column of pandas with a missing value
        ("20261121", MIDNIGHT),
        ("20261121120000", NOON),
        (20261121120000, NOON),
        ("20261121120000004", NOON + 4),
        ("20261121120000004567", NOON + 4),
        ("20261121T120000Z", NOON),
        ("2026-11-21T12:00:00Z", NOON),
        ("2026-11-21 13:00:00+01:00", NOON),
        ("2026-11-21T12:00:00.004", NOON + 4),
        ("2026-11-21", MIDNIGHT),
        ("2026-W47-6", MIDNIGHT),
        (datetime(2026, 11, 21, 12, tzinfo=UTC), NOON),
        (date(2026, 11, 21), MIDNIGHT),
        ("20261321120000", 20_261_321_120_000),  # no month: milliseconds of the year 2612
    ],
)
def test_a_value_with_one_meaning_is_read(value: object, expected: int) -> None:
    assert read_time(value) == expected


@pytest.mark.parametrize(
    ("value", "why"),
    [
        (5, "too small"),
        (0.05, "too small"),
        ("45292.5", "too small"),  # a day of a spreadsheet
        (2026, "too small"),
        ("202611", "too small"),
        (-1, "too small"),
        ("2034010112", "digits of a date"),  # an hour; or seconds of 2034
        ("20261121120000.5", "digits of a date"),  # as MySQL's NOW(3)+0; or the year 2612
        ("202611211200", "digits of a date"),  # a minute; or milliseconds of 1976
        (10**30, "beyond the years"),
        (3 * 10**14, None),  # microseconds of 1979
        (float("nan"), "beyond the years"),
        (float("-inf"), "beyond the years"),
        ("yesterday", "neither"),
        ("nan", "neither"),
        ("1_795_262_400", "neither"),
        ("\u0661\u0667\u0669\u0665\u0662\u0666\u0662\u0664\u0660\u0660", "neither"),
        ("2026-11-21T24:00:01", "neither"),
        ("2026", "too small"),
        ("1" * 70, "neither"),
        (True, "neither"),
        ([1], "neither"),
        (Decimal(NOON), "neither"),
    ],
)
def test_a_value_with_no_meaning_or_two_is_no_time(value: Any, why: str | None) -> None:
    if why is None:
        assert read_time(value) == 300_000_000_000
        return
    with pytest.raises(NoTime, match=why):
        read_time(value)
