"""Columns of Arrow as JSON: what is nested is written as what is flat, and times as promised."""

from decimal import Decimal
from typing import Any

import orjson
import pyarrow as pa
import pytest

from penstock.core.rows.payload import NO_TIME, Form
from penstock.errors import Poison
from penstock.formats.runs import RowOptions, Run
from penstock.formats.tables.batches import TableReader
from penstock.formats.tables.json_values import objects
from tests.formats.support import elements

JSON = RowOptions(form="json")
FLAT: dict[str, Any] = {
    "ns": pa.array([1, None, -1], pa.timestamp("ns")),
    "zone": pa.array([0, 1, None], pa.timestamp("ms", "Asia/Kolkata")),
    "far": pa.array([2**62, -(2**62), None], pa.timestamp("us")),
    "day": pa.array([0, None, 12_000_000], pa.date32()),
    "time": pa.array([0, None, 86_399_999_999], pa.time64("us")),
    "took": pa.array([5, None, -5], pa.duration("ms")),
    "price": pa.array([Decimal("12345678901234567890.12345"), None, Decimal("-0.00001")],
                      pa.decimal128(30, 5)),
    "raw": pa.array([b"\0\xff", None, b""]),
    "id": pa.array([b"\0" * 16, None, bytes(range(16))], pa.uuid()),
    "text": pa.array(['q"\\\n', None, "\u00fc"]),
    "view": pa.array(["x", None, "y" * 40], pa.string_view()),
    "float": pa.array([0.1, None, float("nan")], pa.float32()),
    "word": pa.array(["a", None, "b"]).dictionary_encode(),
    "none": pa.nulls(3),
}  # fmt: skip
every_kind = pytest.mark.parametrize("kind", FLAT)


def texts(column: Any) -> list[str]:
    rows = objects(["v"], [column])
    return [bytes(rows.cut(row, row + 1).body).decode()[5:-1] for row in range(rows.rows)]


@every_kind
def test_what_is_nested_is_written_as_what_is_flat(kind: str) -> None:
    column = FLAT[kind]
    flat = texts(column)
    if pa.types.is_dictionary(column.type):
        column = column.dictionary_decode()
    lists = pa.ListArray.from_arrays([0, 2, 2, 3], column)
    assert texts(lists) == [f"[{flat[0]},{flat[1]}]", "[]", f"[{flat[2]}]"]
    assert texts(lists.slice(1, 2)) == ["[]", f"[{flat[2]}]"]
    assert texts(lists.cast(pa.large_list(column.type))) == texts(lists)
    views = pa.ListViewArray.from_arrays([2, 0, 0], [1, 2, 0], column)
    assert texts(views) == [f"[{flat[2]}]", f"[{flat[0]},{flat[1]}]", "[]"]
    structs = pa.StructArray.from_arrays([column, column], names=["x", 'y"'])
    assert texts(structs) == [f'{{"x":{one},"y\\"":{one}}}' for one in flat]
    assert texts(structs.slice(1, 1)) == [f'{{"x":{flat[1]},"y\\"":{flat[1]}}}']
    maps = pa.MapArray.from_arrays([0, 2, 2, 3], ["a", "b", "c"], column)
    assert texts(maps) == [f'[["a",{flat[0]}],["b",{flat[1]}]]', "[]", f'[["c",{flat[2]}]]']
    assert texts(maps.slice(2, 1)) == [f'[["c",{flat[2]}]]']
    fixed = pa.FixedSizeListArray.from_arrays(column, 3)
    assert texts(fixed) == [f"[{','.join(flat)}]"]
    for text in (*flat, *texts(structs)):
        orjson.loads(text)


def test_a_uuid_is_its_text_and_minus_zero_stays_a_float() -> None:
    assert texts(FLAT["id"]) == [
        '"00000000-0000-0000-0000-000000000000"', "null",
        '"00010203-0405-0607-0809-0a0b0c0d0e0f"',
    ]  # fmt: skip
    for kind in (pa.float16(), pa.float32(), pa.float64()):
        assert texts(pa.array([-0.0, 0.0, None, 1.5, -1.0]).cast(kind)) == [
            "-0.0", "0", "null", "1.5", "-1",
        ]  # fmt: skip


def test_a_list_struct_or_map_that_is_null_is_null() -> None:
    assert texts(pa.array([[1], None, []], pa.list_(pa.int8()))) == ["[1]", "null", "[]"]
    assert texts(pa.array([{"x": 1}, None, {"x": None}])) == ['{"x":1}', "null", '{"x":null}']
    assert texts(pa.array([None, [("k", 1)]], pa.map_(pa.string(), pa.int8()))) == [
        "null", '[["k",1]]',
    ]  # fmt: skip
    assert texts(pa.array([[1, 2], None], pa.list_(pa.int8(), 2))) == ["[1,2]", "null"]


def test_values_of_a_union_are_written_by_their_own_type() -> None:
    children = [pa.array([1, 2, 3], pa.timestamp("ns")), pa.array(["x", "y", None])]
    kinds = pa.array([0, 1, 1], pa.int8())
    sparse = pa.UnionArray.from_sparse(kinds, children)
    assert texts(sparse) == ['"1970-01-01T00:00:00.000000001"', '"y"', "null"]
    assert texts(sparse.slice(1)) == ['"y"', "null"]
    dense = pa.UnionArray.from_dense(kinds, pa.array([2, 0, 2], pa.int32()), children)
    assert texts(dense) == ['"1970-01-01T00:00:00.000000003"', '"x"', "null"]


def test_runs_are_their_values() -> None:
    assert texts(pa.RunEndEncodedArray.from_arrays([2, 3], [7, 8])) == ["7", "7", "8"]


@pytest.mark.parametrize(
    ("column", "expected"),
    [
        (FLAT["zone"], ['"1970-01-01T00:00:00.000Z"', '"1970-01-01T00:00:00.001Z"', "null"]),
        (FLAT["far"], ['"+148108-07-06T14:00:27.387904"', '"-144169-06-28T09:59:32.612096"',
                       "null"]),
        (pa.array([2**62], pa.timestamp("us", "UTC")), ['"+148108-07-06T14:00:27.387904Z"']),
        (pa.array([4_000_000, 0], pa.date32()), ['"+012921-08-18"', '"1970-01-01"']),
        (pa.array([-719_528, 2_932_896], pa.date32()), ['"0000-01-01"', '"9999-12-31"']),
        (pa.array([-719_529, 2_932_897], pa.date32()), ['"-000001-12-31"', '"+010000-01-01"']),
        (pa.array([2**40], pa.timestamp("s")), ['"+036812-02-20T00:36:16"']),
    ],
)  # fmt: skip
def test_times_are_iso_8601_in_utc_however_far(column: Any, expected: list[str]) -> None:
    assert texts(column) == expected


@pytest.mark.parametrize(
    "column",
    [
        pa.array([(1, 2, 3)], pa.month_day_nano_interval()),
        pa.StructArray.from_arrays([pa.array([1]), pa.array([2])], names=["x", "x"]),
    ],
)
@pytest.mark.parametrize("is_nested", [False, True])
def test_what_has_no_form_in_json_is_bad_format(column: Any, is_nested: bool) -> None:
    if is_nested:
        column = pa.ListArray.from_arrays([0, 1], column)
    batch = pa.record_batch([column], names=["v"])
    with pytest.raises(Poison, match='column "v" cannot be read') as caught:
        list(TableReader(batch.schema, JSON, 0).runs(batch))
    assert caught.value.code == "bad_format"


LATIN = pa.array([b"ok", "Köln".encode("latin-1"), None, b"\xff"]).view(pa.string())
OUTSIDE = pa.array([0, 90_000, None, -1], pa.time32("s"))


@pytest.mark.parametrize("column", [LATIN, OUTSIDE, LATIN.dictionary_encode()])
@pytest.mark.parametrize("nested", ["", "list", "struct", "map"])
@pytest.mark.parametrize("form", ["json", "columns"])
def test_a_value_that_cannot_be_makes_its_own_row_bad(column: Any, nested: str, form: Form) -> None:
    is_text = column is not OUTSIDE
    if nested and form == "columns" and pa.types.is_dictionary(column.type):
        pytest.skip("in Arrow, a nested dictionary belongs to all rows")
    if nested == "list":
        column = pa.ListArray.from_arrays([0, 1, 2, 3, 4], column)
    elif nested == "struct":
        column = pa.StructArray.from_arrays([column, pa.array([1, 2, 3, 4])], names=["x", "y"])
    elif nested == "map":
        column = pa.MapArray.from_arrays([0, 1, 2, 3, 4], pa.array(["a", "b", "c", "d"]), column)
    batch = pa.record_batch([pa.array([1, 2, 3, 4]), column], names=["id", "v"])
    runs = list(TableReader(batch.schema, RowOptions(form=form), 0).runs(batch))
    outside = (
        "a time of day outside of the day" if form == "json" else "a value that it cannot have"
    )
    bad = f'column "v" holds {"text that is not UTF-8" if is_text else outside}'
    errors = [run.error for run in runs for _ in range(run.rows)]
    assert errors == [None, bad, None, bad]


def test_a_kept_value_that_cannot_be_is_null_and_its_row_stays_good() -> None:
    batch = pa.record_batch([pa.array([1, 2, 3, 4]), LATIN], names=["id", "v"])
    runs = list(TableReader(batch.schema, RowOptions(keep=["v"], time="v"), 0).runs(batch))
    assert [run.rows for run in runs] == [4]
    kept = runs[0].kept
    assert kept is not None
    assert kept.columns is not None
    rows = [bytes(kept.columns.cut(row, row + 1).body) for row in range(4)]
    assert rows == [b'{"v":"ok"}', b'{"v":null}', b'{"v":null}', b'{"v":null}']


def times(run: Run) -> list[int | None]:
    assert run.kept is not None
    assert run.kept.times is not None
    return [None if time == NO_TIME else time for time in run.kept.times.tolist()]


def reader(batch: Any, time: str) -> TableReader:
    options = RowOptions(form="json", time=time)
    return TableReader(batch.schema, options, 0)


def test_a_row_keeps_its_time_however_far_its_neighbours_are() -> None:
    seconds = pa.array([1, 2**62, None, 253_402_300_799], pa.timestamp("s"))
    nested = pa.array([[1]] * 4, pa.list_(pa.timestamp("ns")))
    batch = pa.record_batch([seconds, nested, pa.array([1, 2, 3, 4])], names=["at", "l", "n"])
    (run,) = reader(batch, "at").runs(batch)
    assert times(run) == [1000, None, None, 253_402_300_799_000]
    (run,) = reader(batch, "l").runs(batch)
    assert times(run) == [None] * 4
    assert len(elements([run])) == 4
