"""Columns of Arrow as JSON: the rows of a table as objects.

Rule: whole columns at a time; a Python object for each value only where Arrow cannot write the text
(nested values, binary, strings with escapes). A null is null, as are NaN and infinity. Owner: the
reader of tables.
"""

import base64
from collections.abc import Sequence
from datetime import timedelta
from decimal import Decimal
from typing import Any, Final

import numpy as np
import orjson
import pyarrow as pa
import pyarrow.compute as pc

from consumers.core.payload import JsonRows

_ESCAPED: Final = r'["\\\x00-\x1f]'


def objects(names: Sequence[str], columns: list[Any]) -> JsonRows:
    """A JSON object for each row."""
    parts: list[Any] = []
    for index, (name, column) in enumerate(zip(names, columns, strict=True)):
        key = orjson.dumps(name).decode()
        parts += (f"{',' if index else '{'}{key}:", _json_text(column))
    text = pc.binary_join_element_wise(*parts, "},", "")
    text = text.combine_chunks() if isinstance(text, pa.ChunkedArray) else text
    ends = np.frombuffer(text.buffers()[1], np.int32, len(text) + 1, 4 * text.offset)
    body = memoryview(text.buffers()[2])[ends[0] : ends[-1] - 1]
    return JsonRows(bytes(body), ends[1:].astype(np.int64) - 1 - int(ends[0]))


def _json_text(column: Any) -> Any:
    """The column's values as JSON, in an array of strings without nulls."""
    kind, types = column.type, pa.types
    if types.is_null(kind):
        return pa.array(["null"] * len(column), pa.string())
    if types.is_floating(kind):
        if types.is_float16(kind):
            column = column.cast(pa.float32())
        column = pc.if_else(pc.is_finite(column), column, None)
        text = column.cast(pa.string())
    elif types.is_integer(kind) or types.is_boolean(kind) or types.is_decimal(kind):
        text = column.cast(pa.string())
    elif types.is_duration(kind):
        text = column.cast(pa.int64()).cast(pa.string())
    elif types.is_timestamp(kind):
        text = _quoted(pc.replace_substring(column.cast(pa.string()), " ", "T"))
    elif types.is_date(kind) or types.is_time(kind):
        text = _quoted(column.cast(pa.string()))
    elif types.is_string(kind) or types.is_large_string(kind):
        column.validate(full=True)  # Parquet's writers promise UTF-8, hostile ones break it
        column = column.cast(pa.string())
        is_plain = not pc.any(pc.match_substring_regex(column, _ESCAPED)).as_py()
        text = _quoted(column) if is_plain else _one_by_one(column)
    else:
        text = _one_by_one(column)
    return text.fill_null("null")


def _quoted(text: Any) -> Any:
    return pc.binary_join_element_wise('"', text, '"', "")


def _one_by_one(column: Any) -> Any:
    return pa.array(
        [orjson.dumps(value, default=json_value).decode() for value in column.to_pylist()],
        pa.string(),
    )


def json_value(value: Any) -> Any:
    """What JSON has no form for."""
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    if isinstance(value, Decimal):
        return float(value)
    if isinstance(value, timedelta):
        return value.total_seconds()
    raise TypeError
