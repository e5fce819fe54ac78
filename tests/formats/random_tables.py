"""Tables by chance, written by each library in the ways that it has, for comparison with another.

Rule: a seed makes the same file each time. Types are those that all of these libraries know.
"""

import io
from collections.abc import Callable
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from random import Random
from typing import Any, Literal

import duckdb
import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq

MOST_ROWS = 400
WORDS = ["", "a", "\u00fc\u2028", 'q"\\\n\t\x01', "\U0001f600" * 3, "long " * 200, "null", "1"]
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
STRUCT = pa.struct({"n": pa.int16(), "t": pa.string(), "l": pa.list_(pa.int8())})

Value = Callable[[Random], Any]


def number_of(bits: int, *, signed: bool = True) -> Value:
    low = -(2 ** (bits - 1)) if signed else 0
    return lambda draw: draw.choice([low, low + 2**bits - 1, 0, draw.randrange(low, low + 2**bits)])


def real(draw: Random) -> float:
    odd = [0.0, -0.0, float("nan"), float("inf"), 1e-310, 1e300]
    return draw.choice([*odd, draw.gauss(0, 1), draw.gauss(0, 1) * 10.0 ** draw.randrange(-30, 30)])


def moment(draw: Random) -> datetime:
    return EPOCH + timedelta(microseconds=draw.randrange(-(10**15), 4 * 10**15))


def few(value: Value) -> Value:
    """Lists of it."""
    return lambda draw: [draw.choice([None, value(draw)]) for _ in range(draw.randrange(4))]


def struct(draw: Random) -> dict[str, Any]:
    return {"n": draw.choice([None, 7]), "t": draw.choice(WORDS), "l": few(number_of(8))(draw)}


NUMBERS: dict[str, tuple[pa.DataType, Value]] = {
    "i8": (pa.int8(), number_of(8)),
    "u16": (pa.uint16(), number_of(16, signed=False)),
    "i64": (pa.int64(), number_of(64)),
    "u64": (pa.uint64(), number_of(64, signed=False)),
    "f32": (pa.float32(), lambda draw: float(np.float32(draw.gauss(0, 1)))),
    "f64": (pa.float64(), real),
    "bool": (pa.bool_(), lambda draw: draw.random() < 0.5),
}
OTHERS: dict[str, tuple[pa.DataType, Value]] = {
    "text": (pa.string(), lambda draw: draw.choice(WORDS)),
    "bytes": (pa.binary(), lambda draw: draw.randbytes(draw.randrange(5))),
    "date": (pa.date32(), lambda draw: date(1970, 1, 1) + timedelta(draw.randrange(-9999, 40_000))),
    "time": (pa.timestamp("us"), lambda draw: moment(draw).replace(tzinfo=None)),
    "zone": (pa.timestamp("us", "UTC"), moment),
    "price": (
        pa.decimal128(20, 4),
        lambda draw: Decimal(draw.randrange(-(10**19), 10**19)).scaleb(-4),
    ),
    "list": (pa.list_(pa.int64()), few(number_of(64))),
    "texts": (pa.list_(pa.string()), few(lambda draw: draw.choice(WORDS))),
    "struct": (STRUCT, struct),
    "lists": (pa.list_(pa.list_(pa.float64())), few(few(lambda draw: draw.gauss(0, 1)))),
    "structs": (pa.list_(STRUCT), few(struct)),
    "word": (pa.dictionary(pa.int32(), pa.string()), lambda draw: draw.choice(WORDS)),
}


def table_of(draw: Random, kinds: dict[str, tuple[pa.DataType, Value]], nulls: float) -> pa.Table:
    rows = draw.choice([1, 2, 7, 63, 64, 65, draw.randrange(1, MOST_ROWS)])
    chosen = draw.sample(sorted(kinds), draw.randrange(1, len(kinds) + 1))
    columns = {}
    for name in chosen:
        kind, value = kinds[name]
        repeated = value(draw)  # runs of one value are stored in another way
        columns[name] = pa.array(
            [
                None
                if draw.random() < nulls
                else (repeated if draw.random() < 0.3 else value(draw))
                for _ in range(rows)
            ],
            kind,
        )
    return pa.table(columns)


def by_pyarrow(table: pa.Table, draw: Random, path: Path) -> None:
    pq.write_table(
        table,
        path,
        row_group_size=draw.choice([1, 10, 64, 1000]),
        version=draw.choice(["1.0", "2.4", "2.6"]),
        data_page_version=draw.choice(["1.0", "2.0"]),
        # With pages of a byte pyarrow does not read back what it wrote: rows span pages there.
        data_page_size=draw.choice([512, 1 << 20]),
        use_dictionary=draw.choice([True, False]),
        compression=draw.choice(["none", "snappy", "gzip", "zstd", "lz4", "brotli"]),
        write_page_index=draw.choice([True, False]),
        write_page_checksum=draw.choice([True, False]),
        store_schema=draw.choice([True, False]),
    )


def by_polars(table: pa.Table, draw: Random, path: Path) -> None:
    frame = pl.from_arrow(table)
    assert isinstance(frame, pl.DataFrame)
    frame.write_parquet(
        path,
        compression=draw.choice(["uncompressed", "snappy", "zstd", "lz4", "gzip"]),
        row_group_size=draw.choice([None, 10, 64]),
        data_page_size=draw.choice([None, 256]),
        statistics=draw.choice([True, False]),
    )


def by_duckdb(table: pa.Table, draw: Random, path: Path) -> None:
    with duckdb.connect() as connection:
        connection.register("given", table)
        options = (
            f"row_group_size {draw.choice([10, 2048])}, parquet_version {draw.choice(['v1', 'v2'])}"
        )
        codec = draw.choice(["uncompressed", "snappy", "zstd", "gzip", "lz4_raw", "brotli"])
        connection.execute(
            f"COPY given TO '{path}' (FORMAT parquet, {options}, COMPRESSION {codec})"
        )


def arrow_by_pyarrow(table: pa.Table, draw: Random, *, is_stream: bool) -> bytes:
    out = io.BytesIO()
    options = pa.ipc.IpcWriteOptions(
        compression=draw.choice([None, "lz4", "zstd"]),
        unify_dictionaries=not is_stream,
        emit_dictionary_deltas=draw.choice([True, False]) and is_stream,
    )
    new = pa.ipc.new_stream if is_stream else pa.ipc.new_file
    with new(out, table.schema, options=options) as writer:
        writer.write_table(table, draw.choice([1, 50, 1000]))
    return out.getvalue()


def arrow_by_polars(table: pa.Table, draw: Random, *, is_stream: bool) -> bytes:
    frame, out = pl.from_arrow(table), io.BytesIO()
    assert isinstance(frame, pl.DataFrame)
    codecs: list[Literal["uncompressed", "lz4", "zstd"]] = ["uncompressed", "lz4", "zstd"]
    compression = draw.choice(codecs)
    compat = draw.choice([pl.CompatLevel.oldest(), pl.CompatLevel.newest()])
    if is_stream:
        frame.write_ipc_stream(out, compression=compression, compat_level=compat)
    else:
        frame.write_ipc(out, compression=compression, compat_level=compat)
    return out.getvalue()
