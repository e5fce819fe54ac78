"""Columns that a writer adds to a table: which are left out, and which are not."""

import io
import json
from typing import Any

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from penstock.formats.reading import decoded
from penstock.formats.registry import claim_of
from penstock.formats.runs import Notices, RowOptions
from tests.formats.support import elements

FRAME = pd.DataFrame({"a": [1.0, 2.0, 3.0], "b": [4.0, 5.0, 6.0]})
PAIRS = pd.MultiIndex.from_tuples([(1, "x"), (1, "y"), (2, "x")])
FILTERED = FRAME.set_index(
    pd.Index([7, 9, 8])
)  # pandas tells labels at equal steps by three numbers
DATA = ["a", "b"]


def parquet(table: Any) -> bytes:
    out = io.BytesIO()
    pq.write_table(table, out)
    return out.getvalue()


def feather(table: Any) -> bytes:
    out = io.BytesIO()
    with pa.ipc.new_file(out, table.schema) as writer:
        writer.write_table(table)
    return out.getvalue()


every_file = pytest.mark.parametrize(("key", "write"), [("x.pq", parquet), ("x.arrow", feather)])


def read(key: str, data: bytes, options: RowOptions | None = None) -> tuple[list[str], list[str]]:
    """The names of a row's columns, and what the log says."""
    said: list[str] = []
    found = options or RowOptions(form="json")
    object.__setattr__(found, "notices", Notices(said.append))
    rows: list[Any] = elements(
        [run for runs in decoded(found, data, 1 << 20, claim_of(key)) for run in runs]
    )
    return list(rows[0]), said


@every_file
@pytest.mark.parametrize(
    ("frame", "names"),
    [
        (FRAME, DATA),
        (FRAME.iloc[::2], DATA),
        (FILTERED, DATA),
        (FILTERED.rename_axis("id"), [*DATA, "id"]),
        (FRAME.set_index(pd.date_range("2026", periods=3)), DATA),
        (FRAME.set_index(PAIRS), DATA),
        (FRAME.set_index(PAIRS.set_names(["k", None])), [*DATA, "k"]),
        (FRAME.set_index(PAIRS.set_names(["k", "l"])), [*DATA, "k", "l"]),
        (FILTERED.rename_axis("a"), [*DATA, "__index_level_0__"]),  # it has a name, taken twice
    ],
    ids=range(9),
)
def test_labels_of_pandas_are_left_out_unless_they_have_a_name(
    key: str, write: Any, frame: Any, names: list[str]
) -> None:
    table = pa.Table.from_pandas(frame)
    found, said = read(key, write(table))
    assert found == names
    assert bool(said) == (set(table.column_names) != set(names))


@every_file
def test_the_log_says_it_and_the_column_can_be_chosen(key: str, write: Any) -> None:
    data = write(pa.Table.from_pandas(FILTERED))
    for named in ("__index_level_0__", 2):
        options = RowOptions(form="json", columns=["a", named])
        assert read(key, data, options) == (["a", "__index_level_0__"], [])
    assert read(key, data, RowOptions(form="json", keep=["__index_level_0__"])) == (DATA, [])
    _, reason = read(key, data)
    assert len(reason) == 1
    assert "__index_level_0__" in reason[0]
    assert "rows.columns" in reason[0]


@every_file
def test_the_log_names_labels_with_a_name_that_are_a_range_and_no_column(
    key: str, write: Any
) -> None:
    table = pa.Table.from_pandas(FRAME.rename_axis("id"))
    assert table.column_names == DATA
    assert pq.read_table(io.BytesIO(parquet(table))).to_pandas().index.name == "id"
    found, said = read(key, write(table))
    assert found == DATA
    assert len(said) == 1
    assert '"id"' in said[0]
    assert "reset_index()" in said[0]
    assert read(key, write(table.append_column("id", [[1, 2, 3]]))) == ([*DATA, "id"], [])


def told(metadata: Any, names: list[str]) -> list[str]:
    table = pa.table({name: [1.0] for name in names})
    text = metadata if isinstance(metadata, bytes) else json.dumps(metadata).encode()
    return read("x.pq", parquet(table.replace_schema_metadata({b"pandas": text})))[0]


def test_metadata_of_other_writers_and_of_old_versions_count_too() -> None:
    dask = {"name": "__null_dask_index__", "field_name": "__null_dask_index__"}
    named = {"index_columns": ["__null_dask_index__"], "columns": [dask]}
    assert told(named, ["a", "__null_dask_index__"]) == ["a"]
    old = {"index_columns": ["__index_level_0__"], "columns": [{"name": "__index_level_0__"}]}
    assert told(old, ["a", "__index_level_0__"]) == ["a"]
    index = {"index_columns": ["index"], "columns": [{"name": "index", "field_name": "index"}]}
    assert told(index, ["a", "index"]) == ["a", "index"]
    by_fastparquet = {**index, "creator": {"library": "fastparquet"}}
    assert told(by_fastparquet, ["a", "index"]) == ["a"]


@pytest.mark.parametrize(
    "metadata",
    [b"", b"{", b"[]", b"\xff", {"index_columns": 3}, {"index_columns": [{"kind": "range"}]},
     {"columns": [3]}, {"index_columns": ["__index_level_1__"]}],
)  # fmt: skip
def test_without_metadata_that_say_so_a_column_stays(metadata: Any) -> None:
    assert told(metadata, ["a", "__index_level_0__"]) == ["a", "__index_level_0__"]
