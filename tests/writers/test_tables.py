"""Parquet, Feather, Arrow and Avro as other tools write them."""

import json
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.feather
import pyarrow.parquet as pq
import pytest

from tests.writers.support import Cell, File, Refused, Way, float32, hold, module, named, run

ROWS = 300
BY_RANGES: tuple[Way, ...] = ("plain", "decoder")
# No number is whole: JSON does not tell whether a whole number was written as a float.
_noise = np.random.default_rng(7).integers(-999, 999, (ROWS, 3)) + 0.25
NUMBERS: dict[str, list[float]] = {name: _noise[:, n].tolist() for n, name in enumerate("abc")}
BEGIN = datetime(2026, 11, 28, 12, 0, 0, 125_000, UTC)
RICH: dict[str, list[Any]] = {
    "id": list(range(ROWS)),
    "x": _noise[:, 0].tolist(),
    "name": [None if n % 7 == 0 else f"ü {n % 5}" for n in range(ROWS)],
    "ok": [n % 3 == 0 for n in range(ROWS)],
}
VECTORS: dict[str, list[Any]] = {
    "id": [n + 0.5 for n in range(ROWS)],
    "e": [[n + 0.25, -n - 0.5, n / 8 + 0.0625] for n in range(ROWS)],
}

# Scripts for the Python of `scripts/writers`. They get {"columns": ..., "path": ...}.
HEAD = "import json, sys; given = json.load(sys.stdin); d, path = given['columns'], given['path']; "


def records(columns: dict[str, list[Any]]) -> list[object]:
    return [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]


def numbers(key: str, data: bytes, columns: dict[str, list[float]] | None = None) -> File:
    given = columns or NUMBERS
    rows = records(dict(given))
    values = float32(zip(*given.values(), strict=True))
    return File(key, data, {"json": rows, "float32": values, "arrow": rows})


def rich(key: str, data: bytes, columns: dict[str, list[Any]] | None = None) -> File:
    rows = records(columns or RICH)
    return File(key, data, {"json": rows, "arrow": rows})


def vectors(key: str, data: bytes) -> File:
    rows = records(VECTORS)
    values = float32([[n, *e] for n, e in zip(*VECTORS.values(), strict=True)])
    return File(key, data, {"json": rows, "float32": values, "arrow": rows})


Write = Callable[[Path], File | Iterable[File]]
Make = Callable[[str, bytes], File]


# pandas: each kind of labels


def by_pandas(index: Callable[[Any, Any], Any], adds: Sequence[str]) -> Write:
    """`adds`: the labels that are a column, by the name that they have."""

    def write(folder: Path) -> Iterable[File]:
        pd = module("pandas")
        frame = index(pd, pd.DataFrame(NUMBERS))
        table = pa.Table.from_pandas(frame)
        frame.to_parquet(folder / "x.parquet")
        pa.feather.write_feather(table, folder / "x.feather")
        labels = frame.reset_index()
        given = {str(name): frame[name].tolist() for name in frame.columns}
        given |= {name: labels[name].tolist() for name in adds}
        notice = "__index_level_" if len(table.column_names) > len(given) else None
        for key in ("x.parquet", "x.feather"):
            yield replace(numbers(key, (folder / key).read_bytes(), given), notice=notice)

    return write


def shuffled(pd: Any, frame: Any) -> Any:
    return frame.sample(frac=0.5, random_state=3)


def pairs(names: Sequence[str | None]) -> Callable[[Any, Any], Any]:
    def index(pd: Any, frame: Any) -> Any:
        steps = [(n // 10 + 0.5, n % 10 + 0.5) for n in range(ROWS)]
        return frame.set_index(pd.MultiIndex.from_tuples(steps, names=names))

    return index


def halves(pd: Any, frame: Any) -> Any:
    return frame.set_index(pd.Index([n * n + 0.5 for n in range(ROWS)], name="label"))


def embeddings_by_pandas(folder: Path) -> File:
    pd = module("pandas")
    frame = pd.DataFrame({"id": VECTORS["id"], "e": [np.array(e) for e in VECTORS["e"]]})
    frame.to_parquet(folder / "x.parquet")
    return vectors("x.parquet", (folder / "x.parquet").read_bytes())


PANDAS = {
    "default labels": (lambda pd, f: f, ()),
    "each second row": (lambda pd, f: f.iloc[::2], ()),
    "filtered": (lambda pd, f: f[f.a > 0], ()),
    "shuffled": (shuffled, ()),
    "labels with a name": (halves, ["label"]),
    "labels of time": (lambda pd, f: f.set_index(pd.date_range("2026", periods=ROWS)), ()),
    "pairs of labels": (pairs([None, None]), ()),
    "pairs of labels, one with a name": (pairs(["k", None]), ["k"]),
    "pairs of labels with names": (pairs(["k", "l"]), ["k", "l"]),
    "text as labels": (lambda pd, f: f.set_index(pd.Index([f"r{n}" for n in range(ROWS)])), ()),
}


# pyarrow, polars, DuckDB


def by_pyarrow(columns: dict[str, list[Any]], make: Make = rich, **options: Any) -> Write:
    def write(folder: Path) -> File:
        pq.write_table(pa.table(columns), folder / "x.parquet", **options)
        return make("x.parquet", (folder / "x.parquet").read_bytes())

    return write


def times_by_pyarrow(folder: Path) -> File:
    """INT96, as Spark, Impala and Hive write times."""
    times = [BEGIN.replace(tzinfo=None) + timedelta(hours=n) for n in range(ROWS)]
    path = folder / "x.parquet"
    pq.write_table(pa.table({"at": times}), path, use_deprecated_int96_timestamps=True)
    texts = [{"at": time.isoformat()} for time in times]
    return File("x.parquet", path.read_bytes(), {"json": texts, "arrow": records({"at": times})})


def feather(version: int, compression: str | None) -> Write:
    def write(folder: Path) -> File:
        path = folder / "x.feather"
        pa.feather.write_feather(pa.table(RICH), path, version=version, compression=compression)
        return rich("x.feather", path.read_bytes())

    return write


def stream(**options: Any) -> Write:
    def write(folder: Path) -> File:
        table, sink = pa.table(RICH), pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, table.schema, options=pa.ipc.IpcWriteOptions(**options)) as to:
            to.write_table(table, 100)
        return rich("x.arrows", sink.getvalue().to_pybytes())

    return write


def by_polars(method: str, key: str, make: Make = rich, **options: Any) -> Write:
    def write(folder: Path) -> File:
        pl = module("polars")
        columns = VECTORS if make is vectors else RICH
        getattr(pl.DataFrame(columns), method)(folder / key, **options)
        return make(key, (folder / key).read_bytes())

    return write


def by_duckdb(columns: dict[str, list[Any]], options: str = "", make: Make = rich) -> Write:
    def write(folder: Path) -> File:
        path = folder / "x.parquet"
        with module("duckdb").connect() as connection:
            connection.register("given", pa.table(columns))
            connection.execute(f"COPY given TO '{path}' (FORMAT parquet{options})")
        return make("x.parquet", path.read_bytes())

    return write


def hive_by_duckdb(folder: Path) -> Iterable[File]:
    """The columns of the path are not in the files."""
    with module("duckdb").connect() as connection:
        connection.register("given", pa.table({**RICH, "day": [n % 2 for n in range(ROWS)]}))
        connection.execute(f"COPY given TO '{folder}/t' (FORMAT parquet, PARTITION_BY (day))")
    for day in (0, 1):
        (path,) = (folder / "t" / f"day={day}").glob("*.parquet")
        some = {name: values[day::2] for name, values in RICH.items()}
        yield rich(f"t/day={day}/{path.name}", path.read_bytes(), some)


def folder_by_pyarrow(folder: Path) -> Iterable[File]:
    collected: list[Any] = []
    table = pa.table(RICH)
    pq.write_to_dataset(table, folder / "t", metadata_collector=collected)
    pq.write_metadata(table.schema, folder / "_common_metadata")
    pq.write_metadata(table.schema, folder / "_metadata", metadata_collector=collected)
    yield File("t/_common_metadata", (folder / "_common_metadata").read_bytes(), {"json": []})
    refused = Refused("only a footer")
    metadata = (folder / "_metadata").read_bytes()
    yield File("t/_metadata", metadata, {"json": refused, "arrow": refused})
    (path,) = (folder / "t").glob("*.parquet")
    yield rich("t/0.parquet", path.read_bytes())


# Tools of other environments


def by_python(script: str, columns: dict[str, list[Any]], make: Make = rich) -> Write:
    def write(folder: Path) -> File:
        path = folder / "x.parquet"
        given = json.dumps({"columns": columns, "path": str(path)}).encode()
        run("writers-python", "-c", HEAD + script, stdin=given)
        if path.is_dir():
            (path,) = path.rglob("*.parquet")
        return make("x.parquet", path.read_bytes())

    return write


FASTPARQUET = "import pandas as pd, fastparquet as fp; f = pd.DataFrame(d); "
DASK = "import pandas as pd, dask.dataframe as dd; f = pd.DataFrame(d); "
DATAFUSION = "import datafusion as df; t = df.SessionContext().from_pydict(d); "


# Spark


SPARK = """
from pyspark.sql import SparkSession
s = (SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false")
     .config("spark.sql.parquet.writeLegacyFormat", given["legacy"])
     .config("spark.sql.parquet.outputTimestampType", given["times"])
     .config("spark.sql.session.timeZone", "UTC").getOrCreate())
s.sql('''select id, id + 0.25D as x, if(mod(id, 7) = 0, null, concat('ü ', mod(id, 5))) as name,
  cast(id as decimal(9, 2)) as price, cast(id as decimal(30, 3)) as large,
  timestamp_seconds(1700000000 + id) as at, array(id + 0.5D, id + 0.25D) as e,
  named_struct('k', id, 'l', map('m', id)) as n from range(%d)''' % given["rows"]
).coalesce(1).write.parquet(path)
"""


def by_spark(times: str, *, legacy: bool) -> Write:
    def write(folder: Path) -> Iterable[File]:
        given = {
            "columns": {}, "path": str(folder / "t"), "times": times, "rows": ROWS,
            "legacy": str(legacy).lower(),
        }  # fmt: skip
        run("writers-python", "-c", HEAD + SPARK, stdin=json.dumps(given).encode())
        right = [
            {
                "id": n, "x": n + 0.25, "name": None if n % 7 == 0 else f"ü {n % 5}",
                "price": float(n) if n else 0.0, "large": float(n),
                "at": datetime.fromtimestamp(1_700_000_000 + n, UTC).isoformat()[:19],
                "e": [n + 0.5, n + 0.25], "n": {"k": n, "l": [["m", n]]},
            }
            for n in range(ROWS)
        ]  # fmt: skip
        (path,) = (folder / "t").glob("*.parquet")
        for row in right:
            row["at"] = f"{row['at']}.000000" + ("" if times == "INT96" else "Z")
        yield File("t/part-0.snappy.parquet", path.read_bytes(), {"json": right})
        yield File("t/_SUCCESS", (folder / "t" / "_SUCCESS").read_bytes(), {"json": []})

    return write


# Avro

AVRO_ROWS: list[Any] = [
    {
        "id": n, "x": n + 0.25, "name": None if n % 7 == 0 else f"ü {n % 5}", "ok": n % 3 == 0,
        "at": BEGIN + timedelta(seconds=n), "tags": {"k": [n]}, "kind": "AB"[n % 2],
    }
    for n in range(ROWS)
]  # fmt: skip
AVRO_SCHEMA: dict[str, Any] = {"type": "record", "name": "Row", "namespace": "org.x", "fields": [
    {"name": "id", "type": "long"}, {"name": "x", "type": "double"},
    {"name": "name", "type": ["null", "string"]}, {"name": "ok", "type": "boolean"},
    {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}},
    {"name": "tags", "type": {"type": "map", "values": {"type": "array", "items": "int"}}},
    {"name": "kind", "type": {"type": "enum", "name": "Kind", "symbols": ["A", "B"]}},
]}  # fmt: skip
CODECS = ("null", "deflate", "bzip2", "xz", "snappy", "zstandard")


def avro_right() -> list[object]:
    at = [f"{row['at'].isoformat()[:26]}Z" for row in AVRO_ROWS]
    return [{**row, "at": time} for row, time in zip(AVRO_ROWS, at, strict=True)]


def by_fastavro(codec: str) -> Write:
    def write(folder: Path) -> File:
        path = folder / "x.avro"
        with path.open("wb") as file:
            module("fastavro").writer(file, AVRO_SCHEMA, AVRO_ROWS, codec, sync_interval=2_000)
        return File("x.avro", path.read_bytes(), {"json": avro_right()})

    return write


APACHE = """
import avro.schema, avro.datafile, avro.io, datetime
schema = avro.schema.parse(json.dumps(given["schema"]))
write = avro.io.DatumWriter()
with avro.datafile.DataFileWriter(open(path, "wb"), write, schema, given["codec"]) as to:
    for row in given["rows"]:
        row["at"] = datetime.datetime.fromisoformat(row["at"])
        to.append(row)
"""


def by_apache(codec: str) -> Write:
    def write(folder: Path) -> File:
        rows = [{**row, "at": row["at"].isoformat()} for row in AVRO_ROWS]
        given = {
            "columns": None, "path": str(folder / "x.avro"), "rows": rows, "codec": codec,
            "schema": AVRO_SCHEMA,
        }  # fmt: skip
        run("writers-python", "-c", HEAD + APACHE, stdin=json.dumps(given).encode())
        return File("x.avro", (folder / "x.avro").read_bytes(), {"json": avro_right()})

    return write


CELLS: list[Cell] = [
    *(
        Cell("pandas", f"Parquet and Feather, {name}", by_pandas(index, adds), ["module:pandas"],
             ways=BY_RANGES)
        for name, (index, adds) in PANDAS.items()
    ),
    Cell("pandas", "Parquet, a column of arrays", embeddings_by_pandas, ["module:pandas"],
         ways=BY_RANGES),
    Cell("pyarrow", "Parquet", by_pyarrow(RICH), ways=BY_RANGES),
    Cell("pyarrow", "Parquet 1.0, pages with CRC", ways=BY_RANGES,
         write=by_pyarrow(RICH, version="1.0", write_page_checksum=True, data_page_size=100)),
    Cell("pyarrow", "Parquet, pages of version 2, Brotli, small row groups", ways=BY_RANGES,
         write=by_pyarrow(RICH, data_page_version="2.0", compression="brotli", row_group_size=70)),
    Cell("pyarrow", "Parquet, delta and byte-split encodings", ways=BY_RANGES, write=by_pyarrow(
        RICH, use_dictionary=False, column_encoding={
            "id": "DELTA_BINARY_PACKED", "x": "BYTE_STREAM_SPLIT", "name": "DELTA_BYTE_ARRAY",
            "ok": "RLE"})),
    Cell("pyarrow", "Parquet, lists of equal length", by_pyarrow(VECTORS, vectors), ways=BY_RANGES),
    Cell("pyarrow", "Parquet, times as INT96", times_by_pyarrow, ways=BY_RANGES),
    Cell("pyarrow", "a folder with _metadata", folder_by_pyarrow, ways=BY_RANGES),
    Cell("pyarrow", "Feather, LZ4", feather(2, "lz4"), ways=BY_RANGES),
    Cell("pyarrow", "Feather, zstd", feather(2, "zstd"), ways=BY_RANGES),
    Cell("pyarrow", "Arrow stream", stream(), ways=BY_RANGES),
    Cell("pyarrow", "Arrow stream of before 0.15", stream(use_legacy_format=True), ways=BY_RANGES),
    Cell("polars", "Parquet", by_polars("write_parquet", "x.parquet"), ["module:polars"],
         ways=BY_RANGES),
    Cell("polars", "Parquet, LZ4", by_polars("write_parquet", "x.parquet", compression="lz4"),
         ["module:polars"], ways=BY_RANGES),
    Cell("polars", "Parquet, lists of equal length", ways=BY_RANGES, tools=["module:polars"],
         write=by_polars("write_parquet", "x.parquet", vectors)),
    Cell("polars", "Arrow file", by_polars("write_ipc", "x.arrow"), ["module:polars"],
         ways=BY_RANGES),
    Cell("polars", "Arrow file, zstd", by_polars("write_ipc", "x.arrow", compression="zstd"),
         ["module:polars"], ways=BY_RANGES),
    Cell("polars", "Arrow stream", by_polars("write_ipc_stream", "x.arrows"), ["module:polars"],
         ways=BY_RANGES),
    Cell("DuckDB", "Parquet", by_duckdb(RICH), ["module:duckdb"], ways=BY_RANGES),
    Cell("DuckDB", "Parquet, zstd, version 2", ways=BY_RANGES, tools=["module:duckdb"],
         write=by_duckdb(RICH, ", COMPRESSION zstd, PARQUET_VERSION v2")),
    Cell("DuckDB", "Parquet, lists of equal length", by_duckdb(VECTORS, "", vectors),
         ["module:duckdb"], ways=BY_RANGES),
    Cell("DuckDB", "Hive's folders", hive_by_duckdb, ["module:duckdb"], ways=BY_RANGES),
    Cell("fastparquet", "default labels", by_python(
        FASTPARQUET + "fp.write(path, f)", NUMBERS, numbers), ["writers-python"], ways=BY_RANGES),
    Cell("fastparquet", "labels without a name", by_python(
        FASTPARQUET + "fp.write(path, f, write_index=True)", NUMBERS, numbers),
        ["writers-python"], ways=BY_RANGES),
    Cell("fastparquet", "texts, gzip", by_python(
        FASTPARQUET + "fp.write(path, f, compression='GZIP')", RICH), ["writers-python"],
        ways=BY_RANGES),
    Cell("dask", "labels without a name", by_python(
        DASK + "dd.from_pandas(f, npartitions=1).to_parquet(path)", NUMBERS, numbers),
        ["writers-python"], ways=BY_RANGES),
    Cell("DataFusion (arrow-rs)", "Parquet", by_python(DATAFUSION + "t.write_parquet(path)", RICH),
         ["writers-python"], ways=BY_RANGES),
    Cell("DataFusion (arrow-rs)", "Parquet, lists of equal length", by_python(
        DATAFUSION + "t.write_parquet(path)", VECTORS, vectors), ["writers-python"],
        ways=BY_RANGES),
    *(
        Cell("fastavro", f"Avro, {codec}", by_fastavro(codec), ["module:fastavro"])
        for codec in CODECS
    ),
    *(
        Cell("Avro for Python", codec, by_apache(codec), ["writers-python"])
        for codec in ("null", "deflate", "bzip2")
    ),
    Cell("Spark", "Parquet, times in microseconds", by_spark("TIMESTAMP_MICROS", legacy=False),
         ["writers-python"], ways=BY_RANGES, is_long=True),
    Cell("Spark", "Parquet, INT96, legacy decimals and lists", by_spark("INT96", legacy=True),
         ["writers-python"], ways=BY_RANGES, is_long=True),
]  # fmt: skip


@pytest.mark.parametrize("cell", named(CELLS))
def test_rows_are_what_was_written(cell: Cell, tmp_path: Path) -> None:
    hold(cell, tmp_path)
