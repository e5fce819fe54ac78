"""Parquet as other programs write it: pandas, polars and DuckDB, in all the ways that they have.

Each file is compared with what its writer was given. Writers that are not on this machine are
skipped.
"""

import io
import json
from collections.abc import Callable
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from penstock.formats.registry import formats
from penstock.formats.runs import RowOptions
from tests.formats.support import by_ranges, elements, matrix

ROWS = 500
BEGIN = datetime(2026, 11, 21, 12, 0, 0, 123_456, UTC)
JSON = RowOptions(form="json")
NUMBERS = RowOptions()

_noise = np.random.default_rng(5).normal(size=(ROWS, 3))
FLOATS: dict[str, list[float]] = {f"f{n}": _noise[:, n].tolist() for n in range(3)}
RICH: dict[str, list[Any]] = {
    "id": list(range(ROWS)),
    "name": [None if n % 7 == 0 else f"sensor-{n % 5}" for n in range(ROWS)],
    "ok": [n % 2 == 0 for n in range(ROWS)],
    "value": [None if n % 11 == 0 else n / 8 for n in range(ROWS)],
}


def rows_of(data: bytes, options: RowOptions) -> Any:
    runs = [run for some in by_ranges(options, formats()["parquet"], data) for run in some]
    return elements(runs) if options.form == "json" else matrix(runs)


def records(columns: dict[str, list[Any]]) -> list[dict[str, Any]]:
    return [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]


def expected_numbers() -> list[list[float]]:
    values: list[list[float]] = _noise.astype(np.float32).tolist()
    return values


Write = Callable[[dict[str, list[Any]], Path], None]


def by_pandas(**options: Any) -> Write:
    def write(columns: dict[str, list[Any]], path: Path) -> None:
        pandas = pytest.importorskip("pandas")
        pandas.DataFrame(columns).to_parquet(path, **options)

    return write


def by_polars(**options: Any) -> Write:
    def write(columns: dict[str, list[Any]], path: Path) -> None:
        polars = pytest.importorskip("polars")
        polars.DataFrame(columns).write_parquet(path, **options)

    return write


def by_duckdb(options: str) -> Write:
    def write(columns: dict[str, list[Any]], path: Path) -> None:
        duckdb = pytest.importorskip("duckdb")
        with duckdb.connect() as connection:
            connection.register("given", pa.table(columns))
            connection.execute(f"COPY given TO '{path}' (FORMAT parquet, {options})")

    return write


CODECS = ("uncompressed", "snappy", "gzip", "brotli", "zstd", "lz4")
WRITERS: dict[str, Write] = {
    "pandas": by_pandas(),
    "pandas, with its index": by_pandas(index=True),
    **{f"polars, {codec}": by_polars(compression=codec) for codec in CODECS},
    "polars, small pages": by_polars(row_group_size=100, data_page_size=256),
    "polars, without statistics": by_polars(statistics=False),
    **{f"DuckDB, {codec}": by_duckdb(f"COMPRESSION '{codec}'") for codec in CODECS[:-1]},
    "DuckDB, lz4_raw": by_duckdb("COMPRESSION 'lz4_raw'"),
    "DuckDB, V2": by_duckdb("PARQUET_VERSION 'V2'"),
    "DuckDB, many row groups": by_duckdb("ROW_GROUP_SIZE 64"),
}

every_writer = pytest.mark.parametrize("writer", WRITERS)


@every_writer
def test_numbers_are_those_that_were_written(writer: str, tmp_path: Path) -> None:
    path = tmp_path / "a.parquet"
    WRITERS[writer](FLOATS, path)
    options = RowOptions(columns=tuple(FLOATS))
    assert rows_of(path.read_bytes(), options) == expected_numbers()


@every_writer
def test_texts_booleans_and_nulls_are_those_that_were_written(writer: str, tmp_path: Path) -> None:
    path = tmp_path / "a.parquet"
    WRITERS[writer](RICH, path)
    rows = rows_of(path.read_bytes(), RowOptions(form="json", columns=tuple(RICH)))
    # Of a missing number pandas makes NaN, which is null in JSON, too.
    assert rows == records(RICH)


@every_writer
def test_a_table_without_rows_has_none(writer: str, tmp_path: Path) -> None:
    path = tmp_path / "a.parquet"
    empty = {"a": np.array([], np.float64)}
    WRITERS[writer](empty, path)  # type: ignore[arg-type]
    assert rows_of(path.read_bytes(), NUMBERS) == []


@pytest.mark.parametrize("unit", ["ms", "us", "ns"])
def test_times_of_polars_are_those_that_were_written(unit: str, tmp_path: Path) -> None:
    polars = pytest.importorskip("polars")
    path = tmp_path / "a.parquet"
    moments = [BEGIN + timedelta(seconds=n) for n in range(3)]
    frame = polars.DataFrame(
        {
            "ts": polars.Series(moments).dt.cast_time_unit(unit),
            "day": [moment.date() for moment in moments],
            "sizes": [[1, 2], [], None],
            "place": [{"x": n, "y": None} for n in range(3)],
        }
    )
    frame.write_parquet(path)
    rows = rows_of(path.read_bytes(), JSON)
    for row, moment in zip(rows, moments, strict=True):
        whole = moment.replace(microsecond=123_000) if unit == "ms" else moment
        assert datetime.fromisoformat(row["ts"]) == whole
        assert date.fromisoformat(row["day"]) == moment.date()
    assert [row["sizes"] for row in rows] == [[1, 2], [], None]
    assert [row["place"] for row in rows] == [{"x": n, "y": None} for n in range(3)]


def test_every_type_of_duckdb_has_a_form_in_json(tmp_path: Path) -> None:
    duckdb = pytest.importorskip("duckdb")
    path = tmp_path / "a.parquet"
    query = """
        SELECT 12.34::DECIMAL(9, 2) AS price, 1.5::FLOAT AS f, 7::UTINYINT AS u,
               TIMESTAMP '2026-11-21 12:00:00.5' AS ts, TIMESTAMP_NS '2026-11-21 12:00:00.5' AS ns,
               TIMESTAMPTZ '2026-11-21 12:00:00+00' AS tz, TIME '01:02:03' AS t,
               [1, NULL, 3] AS list, {'a': 1, 'b': 'x'} AS struct, MAP {'k': 1} AS map,
               'blob'::BLOB AS raw, 'e'::ENUM('e', 'f') AS word, 9007199254740993::BIGINT AS big
    """
    with duckdb.connect() as connection:
        connection.execute("SET TimeZone = 'UTC'")
        connection.execute(f"COPY ({query}) TO '{path}' (FORMAT parquet)")
    (row,) = rows_of(path.read_bytes(), JSON)
    assert json.dumps(row["price"]) == "12.34"
    assert {name: row[name] for name in ("f", "u", "list", "struct", "map", "word", "big")} == {
        "f": 1.5, "u": 7, "list": [1, None, 3], "struct": {"a": 1, "b": "x"}, "map": [["k", 1]],
        "word": "e", "big": 9007199254740993,
    }  # fmt: skip
    assert row["ts"].startswith("2026-11-21T12:00:00.5")
    assert row["ns"].startswith("2026-11-21T12:00:00.5")
    assert row["tz"] == "2026-11-21T12:00:00Z" or row["tz"].startswith("2026-11-21T12:00:00.0")
    assert row["t"].startswith("01:02:03")
    assert row["raw"] == "YmxvYg=="


def test_ten_thousand_tiny_row_groups_of_polars(tmp_path: Path) -> None:
    polars = pytest.importorskip("polars")
    path = tmp_path / "a.parquet"
    polars.DataFrame({"n": list(range(10_000))}).write_parquet(path, row_group_size=1)
    assert rows_of(path.read_bytes(), NUMBERS) == [[float(n)] for n in range(10_000)]


@pytest.mark.parametrize("order", ["C", "F"])
@pytest.mark.parametrize("kind", ["<f4", ">f8", "<i2", ">u4", "?"])
def test_arrow_and_npy_of_pandas_columns(order: Any, kind: str) -> None:
    """What numpy writes of a frame's values, in the order in which pandas holds them."""
    pandas = pytest.importorskip("pandas")
    values = pandas.DataFrame(np.arange(12).reshape(4, 3)).to_numpy().astype(kind, order=order)
    out = io.BytesIO()
    np.save(out, values)
    data = out.getvalue()
    runs = [run for some in by_ranges(NUMBERS, formats()["npy"], data) for run in some]
    assert matrix(runs) == values.astype(np.float32).tolist()
