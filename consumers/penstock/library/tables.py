"""Predictions as a table, for notebooks.

Rule: each record is a row, in order. If predictions are objects, each field becomes a column
`prediction.NAME`. A kept column of the input has its own name, or `columns.NAME` if the table has
another column of that name. Owner: the caller.
"""

from collections.abc import Collection, Iterable
from typing import Any

import msgspec
import pyarrow as pa

from penstock.messages.prediction import Prediction
from penstock.packages import missing_extra


class Predictions(list[Prediction]):
    """What `predict_sync` returns: a list of records."""

    def to_arrow(self) -> pa.Table:
        return to_arrow(self)

    def to_pandas(self) -> Any:
        return to_pandas(self)

    def to_polars(self) -> Any:
        return to_polars(self)


def to_arrow(results: Iterable[Prediction]) -> pa.Table:
    """Columns `id`, `stream`, `bucket`, `key`, `member`, `row`, `event_time`, `error`, `message`,
    the prediction, and what `keep` named.
    """
    found = list(results)
    plain = {
        "id": pa.array([one.id for one in found], pa.string()),
        "stream": pa.array([one.stream for one in found], pa.string()),
        "bucket": pa.array([one.object and one.object.bucket for one in found], pa.string()),
        "key": pa.array([one.object and one.object.key for one in found], pa.string()),
        "member": pa.array([one.member for one in found], pa.string()),
        "row": pa.array([one.row for one in found], pa.int64()),
        "event_time": _column([one.event_time for one in found]),
        "error": pa.array([one.error and one.error.code for one in found], pa.string()),
        "message": pa.array([one.error and one.error.message for one in found], pa.string()),
    }
    table = plain | _predictions([one.prediction for one in found])
    return pa.table(table | _kept([one.columns or {} for one in found], table.keys()))


def _predictions(values: list[Any]) -> dict[str, pa.Array]:
    given = [value for value in values if value is not None]
    if not given or not all(isinstance(value, dict) for value in given):
        return {"prediction": _column(values)}
    names = dict.fromkeys(name for value in given for name in value)
    return {
        f"prediction.{name}": _column([value and value.get(name) for value in values])
        for name in names
    }


def _kept(rows: list[dict[str, Any]], taken: Collection[str]) -> dict[str, pa.Array]:
    return {
        f"columns.{name}" if name in taken else name: _column([row.get(name) for row in rows])
        for name in dict.fromkeys(name for row in rows for name in row)
    }


def _column(values: list[Any]) -> pa.Array:
    """The values as a column. If they are of several types, or one is an integer of more than 64
    bits, the column holds their JSON.
    """
    try:
        return pa.array(values)
    except (pa.ArrowInvalid, pa.ArrowTypeError, OverflowError):
        return pa.array(
            [None if value is None else msgspec.json.encode(value).decode() for value in values]
        )


def to_pandas(results: Iterable[Prediction]) -> Any:
    """The columns of `to_arrow` as a pandas DataFrame."""
    try:
        import pandas  # noqa: F401, PLC0415 (an extra: pyarrow asks for it)
    except ImportError as error:
        raise missing_extra("to_pandas", "pandas", error) from None
    return to_arrow(results).to_pandas()


def to_polars(results: Iterable[Prediction]) -> Any:
    """The columns of `to_arrow` as a polars DataFrame."""
    try:
        import polars  # noqa: PLC0415 (an extra)
    except ImportError as error:
        raise missing_extra("to_polars", "polars", error) from None
    return polars.from_arrow(to_arrow(results))
