"""Small tables that decode to large ones: weighed before they are made, refused above the ratio."""

import gzip
import io
import tracemalloc
from collections.abc import Callable
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from penstock.errors import Poison
from penstock.formats.reading import decoded, read_object
from penstock.formats.registry import claim_of
from penstock.formats.runs import FREE_ROWS, RowOptions
from penstock.formats.source import AtHand
from penstock.formats.tables.weight import weights_of
from tests.formats.support import elements

LONG = "x" * 100_000
MIB = 1 << 20


def dictionary(text: str, rows: int) -> Any:
    return pa.DictionaryArray.from_arrays(pa.array(np.zeros(rows, np.int32)), pa.array([text]))


def runs(value: Any, rows: int) -> Any:
    return pa.RunEndEncodedArray.from_arrays(pa.array([rows], pa.int32()), pa.array([value]))


def views(text: str, rows: int) -> Any:
    view = np.array([len(text), 0, 0, 0], "<i4").tobytes()
    view = view[:4] + text[:4].encode() + view[8:]
    buffers = [None, pa.py_buffer(view * rows), pa.py_buffer(text.encode())]
    return pa.Array.from_buffers(pa.string_view(), rows, buffers)


def list_views(numbers: int, rows: int) -> Any:
    starts, sizes = np.zeros(rows, np.int32), np.full(rows, numbers, np.int32)
    values = pa.array(np.zeros(numbers))
    return pa.ListViewArray.from_arrays(pa.array(starts), pa.array(sizes), values)


BOMBS: dict[str, Callable[[], Any]] = {
    "dictionary": lambda: dictionary(LONG, 100_000),
    "runs": lambda: runs(LONG, 100_000),
    "views": lambda: views(LONG, 10_000),
    "list views": lambda: list_views(10_000, 10_000),
    "lists of a dictionary": lambda: pa.FixedSizeListArray.from_arrays(
        dictionary(LONG, 100_000), 10
    ),
    "structs of runs": lambda: pa.StructArray.from_arrays([runs(1.5, 100_000_000)], names=["v"]),
    "nulls": lambda: pa.nulls(1_000_000_000),
    "structs of nothing": lambda: pa.StructArray.from_buffers(pa.struct([]), 10**8, [None]),
}


def arrow(column: Any) -> bytes:
    out = io.BytesIO()
    batch = pa.record_batch([column], names=["v"])
    options = pa.ipc.IpcWriteOptions(compression="zstd")
    with pa.ipc.new_file(out, batch.schema, options=options) as writer:
        writer.write_batch(batch)
    return out.getvalue()


def parquet(column: Any, **options: Any) -> bytes:
    out = io.BytesIO()
    pq.write_table(pa.table({"v": column}), out, **options)
    return out.getvalue()


def peak_bytes(data: bytes, key: str) -> tuple[int, int]:
    """While it is read to where it is refused, and how many rows came before."""
    rows = most = 0
    message = ""
    tracemalloc.start()
    before = pa.total_allocated_bytes()
    try:
        for some in decoded(RowOptions(form="json"), data, len(data), claim_of(key)):
            rows += sum(run.rows for run in some)
            most = max(most, pa.total_allocated_bytes() - before)
    except Poison as poison:
        message = f"{poison.code}: {poison}"
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert "too_large" in message
    assert "expansion_ratio" in message
    return most + peak, rows


@pytest.mark.parametrize(
    "name", sorted(set(BOMBS) - {"nulls", "structs of nothing", "structs of runs"})
)
def test_a_small_file_of_a_large_table_is_refused_in_little_memory(name: str) -> None:
    data = arrow(BOMBS[name]())
    assert len(data) < MIB
    peak, rows = peak_bytes(data, "x.arrow")
    assert rows
    assert peak < 64 * MIB


def refused(options: RowOptions, data: bytes, key: str) -> tuple[int, int]:
    """How many rows came before the object was refused for what it unfolds to, and their bytes."""
    rows = nbytes = 0
    found = decoded(options, data, MIB, claim_of(key))
    with pytest.raises(Poison, match=r"limits\.expansion_ratio") as caught:  # noqa: PT012
        for runs in found:
            rows += sum(run.rows for run in runs)
            nbytes += sum(run.payload.nbytes for run in runs if run.payload is not None)
    assert caught.value.code == "too_large"
    return rows, nbytes


@pytest.mark.parametrize("name", ["nulls", "structs of nothing", "structs of runs"])
def test_a_batch_that_tells_too_many_rows_gives_none(name: str) -> None:
    for form in ("json", "columns"):
        assert refused(RowOptions(form=form), arrow(BOMBS[name]()), "x.arrow") == (0, 0)


def test_a_parquet_footer_that_tells_too_many_rows_gives_none() -> None:
    data = parquet(pa.nulls(2 * FREE_ROWS, pa.int8()))
    assert refused(RowOptions(), data, "x.parquet") == (0, 0)


def test_an_object_may_have_as_many_rows_as_its_size_allows() -> None:
    """A row that takes a byte is never one too many, and a million rows are free."""
    labels = io.BytesIO()
    np.save(labels, np.ones(2 * FREE_ROWS, np.bool_))
    found = decoded(RowOptions(), labels.getvalue(), MIB, claim_of("x.npy"))
    assert sum(run.rows for runs in found for run in runs) == 2 * FREE_ROWS
    noise = np.random.default_rng(3).integers(0, 1 << 16, 2 * FREE_ROWS, np.uint16)
    for column in (pa.array(noise), pa.array(np.zeros(FREE_ROWS, np.uint16))):
        found = decoded(RowOptions(), parquet(column), MIB, claim_of("x.parquet"))
        assert sum(run.rows for runs in found for run in runs) == len(column)


@pytest.mark.parametrize("key", ["x.csv.gz", "x.ndjson.gz"])
def test_rows_of_packed_text_count_like_those_of_tables(key: str) -> None:
    """Two bytes of text are a row, and 500 such rows fit in a packed byte."""
    data = gzip.compress(b"1\n" * (FREE_ROWS + 1))
    assert refused(RowOptions(), data, key)[0] == FREE_ROWS


@pytest.mark.parametrize("key", ["x.arrow", "x.parquet"])
def test_names_count_once_for_each_row_that_has_them(key: str) -> None:
    column = pa.array(np.random.default_rng(1).integers(0, 9, 100_000), pa.int8())
    name = "n" * 20_000
    table = pa.table({name: column, "s": pa.StructArray.from_arrays([column], names=[name])})
    out = io.BytesIO()
    if key == "x.arrow":
        with pa.ipc.new_file(out, table.schema) as writer:
            writer.write_table(table)
    else:
        pq.write_table(table, out)
    data = out.getvalue()
    for column in (name, "s"):
        options = RowOptions(form="json", columns=[column])
        assert 0 < refused(options, data, key)[1] < 200 * len(data) + 65 * MIB
    numbers = decoded(RowOptions(columns=[name]), data, MIB, claim_of(key))
    assert sum(run.rows for runs in numbers for run in runs) == 100_000


@pytest.mark.parametrize("writer", ["pyarrow", "duckdb"])
def test_a_long_text_that_repeats_in_parquet_is_decoded_in_steps(
    writer: str, tmp_path: Any
) -> None:
    path = tmp_path / "x.parquet"
    if writer == "pyarrow":
        texts = dictionary(LONG[:50_000], 20_000)
        pq.write_table(pa.table({"id": range(20_000), "v": texts}), path)
    else:
        made = "select i id, repeat('x', 50000) v from range(20000) r(i)"
        duckdb.connect().execute(f"copy ({made}) to '{path}' (format parquet)")
    peak, rows = peak_bytes(path.read_bytes(), "x.parquet")
    assert rows
    assert peak < 64 * MIB


def test_an_ordinary_file_of_equal_texts_is_read(tmp_path: Any) -> None:
    path = tmp_path / "x.parquet"
    made = "select i id, repeat('x', 1000) v from range(20000) r(i)"
    duckdb.connect().execute(f"copy ({made}) to '{path}' (format parquet)")
    data = path.read_bytes()
    found = decoded(RowOptions(form="json"), data, len(data), claim_of("x.parquet"))
    assert sum(run.rows for some in found for run in some if run.error is None) == 20_000


def test_a_row_that_is_too_heavy_is_bad_and_not_decoded() -> None:
    column = pa.DictionaryArray.from_arrays(pa.array([0, 1, 0]), pa.array(["a", LONG]))
    options = RowOptions(form="json", row_bytes=10_000)
    found = [
        run for some in decoded(options, arrow(column), 999, claim_of("x.arrow")) for run in some
    ]
    assert [(run.rows, run.error is None) for run in found] == [(1, True), (1, False), (1, True)]
    assert "limits.row_bytes" in str(found[1].error)


@pytest.mark.parametrize(
    ("column", "expected"),
    [
        (pa.array([1, None, 3], pa.int32()), [4, 4, 4]),
        (pa.array(["a", None, "ccc"]), [2, 1, 4]),
        (pa.array(["a", None, "c" * 40], pa.string_view()), [2, 1, 41]),
        (pa.array(["a", None, "ccc", "a"]).dictionary_encode(), [2, 1, 4, 2]),
        (pa.array([[1, 2], None, []], pa.list_(pa.int64())), [17, 1, 1]),
        (pa.array([[1, 2], [3, None]], pa.list_(pa.int64(), 2)), [17, 17]),
        (pa.array([[("k", "vv")], []], pa.map_(pa.string(), pa.string())), [7, 1]),
        (pa.array([{"a": 1, "b": "x"}, None]), [21, 20]),
        (pa.array([True, None]), [1, 1]),
        (pa.RunEndEncodedArray.from_arrays([2, 3], ["a", "bbb"]), [2, 2, 4]),
        (
            pa.UnionArray.from_dense(
                pa.array([0, 1, 0], pa.int8()),
                pa.array([0, 0, 1], pa.int32()),
                [pa.array(["a", "bbb"]), pa.array([7])],
            ),
            [2, 8, 4],
        ),
    ],
    ids=lambda value: str(value.type) if isinstance(value, pa.Array) else "",
)
def test_weights_follow_the_values_wherever_a_slice_begins(column: Any, expected: Any) -> None:
    for start in range(len(column)):
        weights = np.broadcast_to(weights_of(column.slice(start)), len(column) - start)
        assert weights.tolist() == expected[start:]


def test_texts_in_an_encoding_that_is_read_to_texts_alone_are_read() -> None:
    """Few bytes a text, so that they look like places in a dictionary."""
    table = pa.table({"v": ["", "a"] * 5_000, "w": ["same"] * 10_000})
    out = io.BytesIO()
    encodings = {"v": "DELTA_LENGTH_BYTE_ARRAY"}
    pq.write_table(table, out, use_dictionary=["w"], column_encoding=encodings)
    options = RowOptions(form="json")
    found = [
        run for some in decoded(options, out.getvalue(), MIB, claim_of("x.parquet")) for run in some
    ]
    assert elements(found) == table.to_pylist()


@pytest.mark.parametrize("first_wanted", [0, 1_500])
def test_a_parquet_object_ends_at_the_same_row_whatever_groups_are_skipped(
    first_wanted: int,
) -> None:
    """After a crash the groups before the cursor are skipped, although they had expanded, too."""
    texts = pa.chunked_array([["y" * 20_000] * 1_000, [LONG] * 1_000])
    data = parquet(texts, row_group_size=1_000, compression="zstd")
    rows = 0

    def read() -> None:
        nonlocal rows
        options, claim = RowOptions(form="json"), claim_of("a.parquet")
        for run in read_object(AtHand(data), options, claim, lambda _, stop: stop > first_wanted):
            rows += run.rows

    with pytest.raises(Poison, match=r"limits\.expansion_ratio"):
        read()
    # The second group has 5/6 of the bytes, so of the free 64 MiB, in steps of ten of its texts.
    assert rows == 1_000 + 64 * MIB * 5 // 6 // (10 * len(LONG)) * 10
