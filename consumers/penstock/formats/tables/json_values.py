"""Writes the rows of an Arrow table as JSON objects.

Rule: whole columns are written at a time; a Python object is made of each value only if Arrow
cannot write it. Nulls, NaN and infinity become null; a value without a form in JSON raises
`ValueError`. Times with a zone are in UTC, with `Z`. A year without four digits gets a sign and at
least six (`+012921-08-18`); Arrow writes such years differently, and the farthest as "value out of
range".
"""

import base64
from collections.abc import Sequence
from typing import Any, Final

import numpy as np
import orjson
import pyarrow as pa
import pyarrow.compute as pc

from penstock.core.rows.payload import JsonRows
from penstock.formats.tables.weight import BINARIES, LIST_VIEWS, LISTS, TEXTS, by_type

_ESCAPED: Final = r'["\\\x00-\x1f]'
_YEAR_DIGITS: Final = 6
# The first and the last day of the years 0 to 9999, counted from the beginning of 1970. Arrow
# writes these years correctly.
_FIRST_DAY: Final = -719_528
_LAST_DAY: Final = 2_932_896
_A_DAY: Final = {"s": 86_400, "ms": 86_400_000, "us": 86_400_000_000, "ns": 86_400_000_000_000}


def objects(names: Sequence[str], columns: list[Any]) -> JsonRows:
    """A JSON object for each row."""
    text = pc.binary_join_element_wise(_object_text(names, columns, len(columns[0])), ",", "")
    text = text.combine_chunks() if isinstance(text, pa.ChunkedArray) else text
    ends = np.frombuffer(text.buffers()[1], np.int32, len(text) + 1, 4 * text.offset)
    body = memoryview(text.buffers()[2])[ends[0] : ends[-1] - 1]
    return JsonRows(bytes(body), ends[1:].astype(np.int64) - 1 - int(ends[0]))


def plain(column: Any) -> Any:
    """The column as one array of plain values: dictionaries, runs, and extensions other than UUIDs
    are decoded.
    """
    if isinstance(column, pa.ChunkedArray):
        column = column.combine_chunks()
    if isinstance(column, pa.ExtensionArray) and not isinstance(column, pa.UuidArray):
        return plain(column.storage)
    if pa.types.is_dictionary(column.type):
        return plain(_decoded(column))
    if pa.types.is_run_end_encoded(column.type):
        return plain(pc.run_end_decode(column))
    return column


def _decoded(column: Any) -> Any:
    """The values of a column with a dictionary. polars writes dictionaries of views. Arrow cannot
    decode these, so the views become strings or bytes first.
    """
    kind = column.type.value_type
    if pa.types.is_string_view(kind) or pa.types.is_binary_view(kind):
        simple = pa.string() if pa.types.is_string_view(kind) else pa.binary()
        column = pa.DictionaryArray.from_arrays(column.indices, column.dictionary.cast(simple))
    return column.dictionary_decode()


def _object_text(names: Sequence[str], columns: Sequence[Any], rows: int) -> Any:
    if not names:
        return pa.array(["{}"] * rows, pa.string())
    parts: list[Any] = []
    for index, (name, column) in enumerate(zip(names, columns, strict=True)):
        key = orjson.dumps(name).decode()
        parts += (f"{',' if index else '{'}{key}:", json_text(column))
    return pc.binary_join_element_wise(*parts, "}", "")


def json_text(column: Any) -> Any:
    """The column's values as JSON, in an array of strings without nulls."""
    column = plain(column)
    text = _nested_text(column)
    if text is None:
        text = _flat_text(column)
    return text.fill_null("null")


def _flat_text(column: Any) -> Any:
    kind, types = column.type, pa.types
    if types.is_null(kind):
        return pa.nulls(len(column), pa.string())
    if types.is_floating(kind):
        if types.is_float16(kind):
            column = column.cast(pa.float32())
        text = pc.if_else(pc.is_finite(column), column, None).cast(pa.string())
        # Arrow writes -0.0 as `-0`, which Python reads as the integer 0.
        is_minus_zero = pc.equal(text, "-0")
        return pc.if_else(is_minus_zero, "-0.0", text) if pc.any(is_minus_zero).as_py() else text
    if types.is_integer(kind) or types.is_boolean(kind) or types.is_decimal(kind):
        return column.cast(pa.string())
    if types.is_duration(kind):
        return column.cast(pa.int64()).cast(pa.string())
    if types.is_timestamp(kind):
        return _quoted(timestamp_text(column))
    if types.is_date(kind):
        return _quoted(date_text(column))
    if types.is_time(kind):
        return _quoted(time_text(column))
    if kind.id in TEXTS:
        return _string_text(column)
    if isinstance(kind, pa.UuidType):
        return _quoted(pa.array([cell and str(cell) for cell in column.to_pylist()], pa.string()))
    if kind.id in BINARIES or types.is_fixed_size_binary(kind):
        return _base64_text(column)
    raise ValueError(f"values of {kind} have no form in JSON; choose others with rows.columns")


def _nested_text(column: Any) -> Any:
    """The values of a nested column as JSON; None: the column is not nested."""
    kind, types = column.type, pa.types
    if types.is_struct(kind):
        names = [kind.field(index).name for index in range(kind.num_fields)]
        if len(set(names)) < len(names):
            raise ValueError("a struct has two fields of the same name")
        columns = [column.field(index) for index in range(kind.num_fields)]
        return _where_valid(column, _object_text(names, columns, len(column)))
    if types.is_map(kind):
        first, last = (column.offsets[end].as_py() for end in (0, -1))
        key, value = (
            json_text(part.slice(first, last - first)) for part in (column.keys, column.items)
        )
        pairs = pc.binary_join_element_wise("[", key, ",", value, "]", "")
        return _list_text(column, pairs, first)
    if kind.id in LIST_VIEWS:
        lengths = pc.list_value_length(column).cast(pa.int64()).fill_null(0).to_numpy()
        offsets = np.concatenate([[0], np.cumsum(lengths)])
        column = pa.LargeListArray.from_arrays(
            pa.array(offsets), column.flatten(), mask=column.is_null()
        )
    elif types.is_fixed_size_list(kind):
        column = column.cast(pa.list_(kind.value_field))
    elif types.is_union(kind):
        return _union_text(column)
    elif kind.id not in LISTS:
        return None
    first, last = (column.offsets[end].as_py() for end in (0, -1))
    return _list_text(column, json_text(column.values.slice(first, last - first)), first)


def _list_text(column: Any, values: Any, first: int = 0) -> Any:
    """The lists as JSON. `values`: the JSON of the lists' items, from the item at place `first`
    on.
    """
    offsets = column.offsets.to_numpy() - first
    lists = pa.LargeListArray.from_arrays(pa.array(offsets, pa.int64()), values)
    joined = pc.binary_join(lists, ",")
    return _where_valid(column, pc.binary_join_element_wise("[", joined, "]", ""))


def _union_text(column: Any) -> Any:
    """The values of a union as JSON. Each value is written by the rule of its own type."""
    texts: Any = pa.nulls(len(column), pa.string())
    for values, places, is_one in by_type(column):
        at = pa.array(places, pa.int64(), mask=~is_one)
        texts = pc.if_else(at.is_valid(), json_text(values).take(at), texts)
    return texts


def _where_valid(column: Any, text: Any) -> Any:
    return pc.if_else(column.is_valid(), text, None) if column.null_count else text


def _quoted(text: Any) -> Any:
    return pc.binary_join_element_wise('"', text, '"', "")


def check_values(column: Any) -> None:
    """Raises `ValueError` if some value is none that its type can have."""
    try:
        column.validate(full=True)
    except pa.ArrowInvalid as error:
        what = "text that is not UTF-8" if "UTF8" in str(error) else "a value that it cannot have"
        raise ValueError(what) from None


def _string_text(column: Any) -> Any:
    check_values(column)
    column = column.cast(pa.string())
    if not pc.any(pc.match_substring_regex(column, _ESCAPED)).as_py():
        return _quoted(column)
    values = [orjson.dumps(value).decode() for value in column.to_pylist()]
    return pa.array(values, pa.string())


def _base64_text(column: Any) -> Any:
    values = column.to_pylist()
    return pa.array(
        [None if value is None else f'"{base64.b64encode(value).decode()}"' for value in values],
        pa.string(),
    )


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
        raise ValueError("a time of day outside of the day")
    return column.cast(pa.string())


def _within(values: Any, least: int, most: int) -> bool:
    """True if all values are at least `least` and below `most`."""
    ends = pc.min_max(values)
    lowest, highest = ends["min"].as_py(), ends["max"].as_py()
    # Compare them as Python's integers, because `most` may not fit 64 bits.
    return lowest is None or (least <= lowest and highest < most)


def _far(values: Any, unit: str, end: str) -> Any:
    """The texts of these times. They are written one by one, because some of their years do not
    have four digits.
    """
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
