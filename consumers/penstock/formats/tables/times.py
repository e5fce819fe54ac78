"""Dates and times of Arrow as texts of ISO-8601.

Rule: times with a zone are written in UTC, with `Z`. A year that has not four digits is written as
ISO-8601 and JavaScript do: with a sign and at least six digits (`+012921-08-18`). Arrow writes such
years differently, and the farthest as "value out of range", so they are written here. A time of day
outside the day raises `ValueError`. Owner: the reader of tables.
"""

from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

_YEAR_DIGITS: Final = 6
# The first and last day of the years 0 to 9999, which Arrow writes well. Days count from 1970.
_FIRST_DAY: Final = -719_528
_LAST_DAY: Final = 2_932_896
_A_DAY: Final = {"s": 86_400, "ms": 86_400_000, "us": 86_400_000_000, "ns": 86_400_000_000_000}


def timestamp_text(column: Any) -> Any:
    unit, has_zone = column.type.unit, column.type.tz is not None
    values, a_day = column.cast(pa.int64()), _A_DAY[unit]
    if _within(values, _FIRST_DAY * a_day, (_LAST_DAY + 1) * a_day):
        if has_zone:
            column = column.cast(pa.timestamp(unit, "UTC"))
        return pc.replace_substring(column.cast(pa.string()), " ", "T")
    return _far(values, unit, "Z" if has_zone else "")


def date_text(column: Any) -> Any:
    days = column.cast(pa.date32()).cast(pa.int32()).cast(pa.int64())
    if _within(days, _FIRST_DAY, _LAST_DAY + 1):
        return column.cast(pa.string())
    return _far(days, "D", "")


def time_text(column: Any) -> Any:
    kind = column.type
    whole = column.cast(pa.int32() if pa.types.is_time32(kind) else pa.int64())
    if not _within(whole.cast(pa.int64()), 0, _A_DAY[kind.unit]):
        raise ValueError("a time of day lies outside of the day")
    return column.cast(pa.string())


def _within(values: Any, least: int, most: int) -> bool:
    """Are all values at least `least` and below `most`?"""
    found = pc.min_max(values)
    lowest, highest = found["min"].as_py(), found["max"].as_py()
    # Compare them as Python's integers, because `most` may not fit 64 bits.
    return lowest is None or (least <= lowest and highest < most)


def _far(values: Any, unit: str, end: str) -> Any:
    """Write the texts one by one, because some of these years do not have four digits."""
    moments = values.fill_null(0).to_numpy().astype(f"datetime64[{unit}]")
    texts = (_with_year(text) + end for text in np.datetime_as_string(moments).tolist())
    is_null = values.is_null().to_numpy(zero_copy_only=False)
    return pa.array(
        [None if null else text for null, text in zip(is_null.tolist(), texts, strict=True)],
        pa.string(),
    )


def _with_year(text: str) -> str:
    sign, digits = text.startswith("-"), text.lstrip("+-")
    year, rest = digits.split("-", 1)
    if len(year) == 4 and not sign:
        return text
    return f"{'-' if sign else '+'}{year.zfill(_YEAR_DIGITS)}-{rest}"
