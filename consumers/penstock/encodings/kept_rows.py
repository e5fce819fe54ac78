"""The kept values of a result's rows, one entry a row.

Rule: no value is decoded; columns stay JSON. Owner: the formats that have a column for them.
"""

from collections.abc import Sequence

from penstock.core.rows.kept import NO_TIME
from penstock.encodings.base import Rows


def columns_of(rows: Rows) -> Sequence[bytes | None]:
    """Of each row the JSON object of its columns."""
    if rows.kept is None or rows.kept.columns is None:
        return [None] * len(rows.answers)
    kept = rows.kept.columns
    return [bytes(kept.cut(row, row + 1).body) for row in range(kept.rows)]


def times_of(rows: Rows) -> Sequence[int | None]:
    """Of each row its own time in epoch milliseconds."""
    if rows.kept is None or rows.kept.times is None:
        return [None] * len(rows.answers)
    return [None if time == NO_TIME else int(time) for time in rows.kept.times]
