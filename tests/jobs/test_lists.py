"""Lists of objects: how they are cut, what their columns mean, and what is refused."""

import csv
import gzip
import io
import json
from collections.abc import Sequence
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.adapters.memory import MemoryObjects
from penstock.adapters.stores.local_files import LocalObjects
from penstock.core.routing.store_choice import StoreChoice
from penstock.errors import EXIT_USAGE, Fatal
from penstock.formats.source import AtHand
from penstock.messages.reference import Reference, SchemaError
from penstock.tools.jobs.globs_and_manifests import At, open_manifest
from penstock.tools.jobs.list_rows import MOST_RECORD_CHARS, ListColumns, csv_rows

INVENTORY = "Bucket, Key, VersionId, IsLatest, IsDeleteMarker, Size, LastModifiedDate, ETag"
cells = st.text(st.sampled_from('a,";\n\r ü'), min_size=1, max_size=6)


def written(rows: Sequence[Sequence[str]], line_end: str) -> bytes:
    text = io.StringIO(newline="")
    csv.writer(text, lineterminator=line_end, quoting=csv.QUOTE_ALL).writerows(rows)
    return text.getvalue().encode()


class Cut(AtHand):
    """Gives some bytes at a time."""

    def __init__(self, data: bytes, most: int) -> None:
        super().__init__(data)
        self._most = most

    def read(self, start: int, stop: int) -> bytes:
        return super().read(start, min(stop, start + self._most))


def rows_of(data: bytes, most: int = 10_000) -> list[list[str]]:
    columns = ListColumns(["bucket", "key"])
    return [row for _, rows in csv_rows(Cut(data, most), columns) for row in rows]


@given(
    st.lists(st.lists(cells, min_size=2, max_size=3), max_size=5),
    st.sampled_from(["\n", "\r\n"]),
    st.integers(1, 7),
)
def test_records_are_the_same_wherever_their_bytes_are_cut(
    rows: list[list[str]], line_end: str, most: int
) -> None:
    assert rows_of(written(rows, line_end), most) == rows


def test_a_mark_at_the_beginning_and_a_missing_line_end_are_no_part_of_a_record() -> None:
    ((columns, rows),) = csv_rows(AtHand(b"\xef\xbb\xbfbucket,key\nb,k"), None)
    assert rows == [["b", "k"]]
    assert columns.reference(rows[0]) == Reference(bucket="b", key="k")


@pytest.mark.parametrize(
    "wrong",
    [
        b"\xff\n",
        b'a,"b"c\n',
        b"x" * (MOST_RECORD_CHARS + 1),
        b'"x\n",' * (MOST_RECORD_CHARS // 4),
    ],
)
def test_what_is_no_csv_is_refused(wrong: bytes) -> None:
    before = csv.field_size_limit(1 << 30)  # as after a reading of large results
    try:
        with pytest.raises(SchemaError):
            rows_of(wrong)
    finally:
        csv.field_size_limit(before)


def test_a_file_without_a_record_is_an_empty_list() -> None:
    assert not list(csv_rows(AtHand(b"\n"), None))


@pytest.mark.parametrize("most", [3, 50, 10_000])
def test_gzip_of_several_members_is_one_text_and_a_cut_one_is_refused(most: int) -> None:
    text = b"".join(b"%d,%d\n" % (n, n * n) for n in range(12_000))
    packed = gzip.compress(text[:3_000]) + gzip.compress(text[3_000:])
    assert rows_of(packed, most) == [[str(n), str(n * n)] for n in range(12_000)]
    with pytest.raises(SchemaError, match="breaks off"):
        rows_of(packed[:-9], most)


def inventory_row(key: str, **changes: str) -> list[str]:
    names = [name.strip() for name in INVENTORY.split(",")]
    values = {
        "Bucket": "b", "Key": key, "VersionId": "v7", "IsLatest": "true",
        "IsDeleteMarker": "false", "Size": "12", "LastModifiedDate": "2026-09-01T00:00:01.000Z",
        "ETag": "9b2cf",
    }  # fmt: skip
    return [(values | changes)[name] for name in names]


def test_a_row_of_an_inventory_pins_its_object_and_its_key_is_decoded() -> None:
    columns = ListColumns(INVENTORY.split(","), is_encoded=True)
    made = columns.reference(inventory_row("site+1/cam%2B3/%C3%BC.csv"))
    assert made == Reference(
        bucket="b", key="site 1/cam+3/ü.csv", version_id="v7", etag="9b2cf", size=12,
        event_time=1_788_220_801_000,
    )  # fmt: skip


@pytest.mark.parametrize("gone", [{"IsLatest": "false"}, {"IsDeleteMarker": "true"}])
def test_a_row_of_no_present_object_makes_no_reference(gone: dict[str, str]) -> None:
    columns = ListColumns(INVENTORY.split(","), is_encoded=True)
    assert columns.reference(inventory_row("k", **gone)) is None


def test_keys_of_other_lists_are_literal_and_empty_cells_pin_nothing() -> None:
    columns = ListColumns(["e_tag", "KEY", "Bucket", "colour"])
    assert columns.reference(["", "a+b%20", "b", "red"]) == Reference(bucket="b", key="a+b%20")
    by_url = ListColumns(["url", "stream"]).reference(["gs://b/k", "s"])
    assert by_url == Reference(bucket="b", key="k", store="gs", stream="s")


@pytest.mark.parametrize("names", [["key", "size"], ["b", "site/a.csv"]])
def test_columns_that_name_no_objects_are_refused(names: list[str]) -> None:
    with pytest.raises(SchemaError, match=r"first line.*manifest\.json"):
        ListColumns(names)


@pytest.mark.parametrize(
    "row", [["b"], ["b", "k", "many"], ["", "k", "1"], ["b", "k" * 5_000, "1"]]
)
def test_a_wrong_row_is_refused(row: list[str]) -> None:
    with pytest.raises(SchemaError):
        ListColumns(["bucket", "key", "size"]).reference(row)


@pytest.mark.parametrize(
    ("name", "value", "field"),
    [
        ("stream", 7, "7"), ("stream", b"s", "s"), ("etag", 12, "12"),
        ("size", 12, 12), ("size", 12.0, 12), ("size", Decimal(12), 12),
        ("event_time", 1e12, 10**12), ("event_time", 1e12 + 0.5, 10**12),
        ("last_modified_date", datetime(2001, 9, 9, 1, 46, 40, tzinfo=UTC), 10**12),
        ("last_modified_date", date(2001, 9, 9), 999_993_600_000),
    ],
)  # fmt: skip
def test_values_of_a_parquet_list_are_converted(name: str, value: object, field: object) -> None:
    made = ListColumns([name, "key", "bucket"]).reference([value, b"k", b"b"])
    assert made is not None
    assert (made.bucket, made.key) == ("b", "k")
    assert getattr(made, "event_time" if name == "last_modified_date" else name) == field


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("key", b"\xff"), ("key", 1.5), ("stream", True), ("size", 1.5), ("size", float("nan")),
        ("size", True), ("size", Decimal("1.5")),
        ("event_time", float("inf")), ("event_time", b"1"), ("etag", date(2001, 9, 9)),
    ],
)  # fmt: skip
def test_values_of_a_wrong_kind_are_refused(name: str, value: object) -> None:
    names = dict.fromkeys(["bucket", "key", name])
    row = {"bucket": "b", "key": "k"} | {name: value}
    with pytest.raises(SchemaError):
        ListColumns([*names]).reference([row[each] for each in names])


def test_a_row_of_no_present_object_is_told_by_numbers_too() -> None:
    columns = ListColumns(["bucket", "key", "is_latest"])
    assert columns.reference(["b", "k", 0]) is None
    assert columns.reference(["b", "k", 1]) == Reference(bucket="b", key="k")


@pytest.fixture
def objects() -> MemoryObjects:
    return MemoryObjects(chunk_bytes=100)


async def read(
    objects: MemoryObjects, key: str, after: At | None = None
) -> list[tuple[At, Reference]]:
    listing = await open_manifest(objects, f"s3://lists/{key}", StoreChoice.one())
    return [one async for chunk in listing.chunks(after) for one in chunk]


def put_inventory(objects: MemoryObjects, kind: str = "CSV", schema: str = INVENTORY) -> None:
    """Two files, of 20 keys and of 10, whose fourth is a delete marker."""
    for number, count in enumerate([20, 10]):
        rows = [inventory_row(f"{number}/{n}") for n in range(count)]
        rows[3] = inventory_row("gone", IsDeleteMarker="true")
        objects.put("lists", f"data/{number}.csv.gz", gzip.compress(written(rows, "\n")))
    manifest = {
        "fileFormat": kind, "fileSchema": schema, "destinationBucket": "arn:aws:s3:::elsewhere",
        "files": [{"key": f"data/{number}.csv.gz", "size": 1} for number in range(2)],
    }  # fmt: skip
    objects.put("lists", "manifest.json", json.dumps(manifest).encode())


async def test_the_files_of_an_inventory_are_read_in_their_order(objects: MemoryObjects) -> None:
    put_inventory(objects)
    text = await read(objects, "manifest.json")
    wanted = [(f, n) for f, count in enumerate([20, 10]) for n in range(count) if n != 3]
    assert [at for at, _ in text] == wanted
    assert [reference.key for _, reference in text] == [f"{f}/{n}" for f, n in wanted]


@pytest.mark.parametrize("after", [(0, 3), (0, 19), (1, 2)])
async def test_a_listing_goes_on_behind_any_place(objects: MemoryObjects, after: At) -> None:
    put_inventory(objects)
    whole = await read(objects, "manifest.json")
    assert await read(objects, "manifest.json", after) == [one for one in whole if one[0] > after]


@pytest.mark.parametrize("suffix", ["csv", "csv.gz", "list"])
async def test_a_list_is_told_by_its_bytes(objects: MemoryObjects, suffix: str) -> None:
    text = b"bucket,key\nb,k1\nb,k2\n"
    objects.put("lists", f"a.{suffix}", gzip.compress(text) if suffix == "csv.gz" else text)
    assert [one.key for _, one in await read(objects, f"a.{suffix}")] == ["k1", "k2"]


async def test_a_parquet_list_is_read_by_ranges_and_its_keys_are_literal(
    objects: MemoryObjects,
) -> None:
    keys = [f"a+{n}" for n in range(12_000)]
    table: dict[str, Any] = {
        "bucket": ["b"] * len(keys),
        "key": keys,
        "e_tag": ["e"] * len(keys),
        "is_latest": [True] * len(keys),
        "last_modified_date": pa.array([5] * len(keys), pa.timestamp("ms")),
        "owner": ["x" * 50] * len(keys),
    }
    sink = io.BytesIO()
    pq.write_table(pa.table(table), sink, row_group_size=7_000)
    objects.put("lists", "a.parquet", sink.getvalue())
    text = await read(objects, "a.parquet", (0, 5))
    assert [one.key for _, one in text] == keys[6:]
    assert text[0][1] == Reference(bucket="b", key="a+6", etag="e", event_time=5)
    assert max(size for _, size in objects.parts) < len(sink.getvalue())


def parquet(kind: pa.DataType, keys: Sequence[str]) -> bytes:
    sink = io.BytesIO()
    table = pa.table({"bucket": ["b"] * len(keys), "key": pa.array(keys, kind)})
    pq.write_table(table, sink, compression="zstd")
    return sink.getvalue()


async def test_names_of_a_parquet_list_may_be_bytes_and_its_sizes_floats(
    objects: MemoryObjects,
) -> None:
    """Hive and Impala write the first, pandas the second if a size is missing."""
    out = io.BytesIO()
    keys = pa.array([b"site/\xc3\xbc.csv", b"k"], pa.binary())
    table = pa.table({"bucket": ["b", "b"], "key": keys, "size": pa.array([3.0, None])})
    pq.write_table(table, out)
    objects.put("lists", "x.parquet", out.getvalue())
    assert [one for _, one in await read(objects, "x.parquet")] == [
        Reference(bucket="b", key="site/ü.csv", size=3),
        Reference(bucket="b", key="k"),
    ]


@pytest.mark.parametrize("kind", [pa.string(), pa.large_string(), pa.binary()])
@pytest.mark.parametrize(
    ("keys", "says"),
    [
        # Few bytes in the file: each value is stored once.
        (["k" * 10_000] * 5_000 + ["k"], "5,000 values of a column have 50,000,000 bytes"),
        ([f"{n}{'k' * 5_000}" for n in range(500)], "column key have 5,0.. bytes each: no list"),
    ],
)
async def test_a_parquet_file_of_huge_values_is_refused_before_they_are_unfolded(
    objects: MemoryObjects, kind: pa.DataType, keys: Sequence[str], says: str
) -> None:
    objects.put("lists", "a.parquet", parquet(kind, keys))
    with pytest.raises(Fatal, match=says):
        await read(objects, "a.parquet")


@pytest.mark.parametrize("kind", [pa.string(), pa.large_string()])
async def test_texts_of_a_parquet_list_may_be_repeated_and_missing(
    objects: MemoryObjects, kind: pa.DataType
) -> None:
    keys = ["a", "b", "a"] * 3_000
    objects.put("lists", "a.parquet", parquet(kind, keys))
    assert [one.key for _, one in await read(objects, "a.parquet")] == keys


@pytest.mark.parametrize("field", ["size", "event_time"])
def test_a_number_of_thousands_of_digits_is_no_number(field: str) -> None:
    columns = ListColumns(["bucket", "key", field])
    with pytest.raises(SchemaError):
        columns.reference(["b", "k", "9" * 5_000])


@pytest.mark.parametrize(
    ("key", "data", "says"),
    [
        ("a.json", b"{}", "no manifest.json"),
        ("a.json", b'{"fileFormat": "ORC", "files": []}', "CSV or Parquet"),
        ("a.csv", b"bucket,key\nb,k\nb\n", r"1 columns instead of 2 \(row 2\)"),
        ("a.csv", b'"b","k","1"\n', "manifest.json"),
        ("a.parquet", b"PAR1 and no more", "no Parquet"),
        ("a.csv.gz", b"\x1f\x8b and no more", "no gzip"),
    ],
)
async def test_a_wrong_list_ends_with_its_name_and_what_is_wrong(
    objects: MemoryObjects, key: str, data: bytes, says: str
) -> None:
    objects.put("lists", key, data)
    with pytest.raises(Fatal, match=says) as caught:
        await read(objects, key)
    assert caught.value.exit_code == EXIT_USAGE
    assert key in str(caught.value)


async def test_a_local_list_that_is_replaced_while_it_is_read_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "list.csv"

    def write(name: str) -> None:
        rows = [("b", f"{name}-{number}") for number in range(200_000)]
        path.with_suffix(".new").write_bytes(written([("bucket", "key"), *rows], "\n"))
        path.with_suffix(".new").rename(path)

    write("old")
    local = LocalObjects(MemoryObjects)
    listing = await open_manifest(local, str(path), StoreChoice.one())
    keys: list[str] = []

    async def read_on() -> None:
        async for chunk in listing.chunks(None):
            keys.extend(reference.key or "" for _, reference in chunk)
            write("new, and longer")

    with pytest.raises(Fatal, match="changed"):
        await read_on()
    assert keys
    assert all(key.startswith("old") for key in keys)


async def test_a_list_that_is_not_there_is_an_error(objects: MemoryObjects) -> None:
    with pytest.raises(Fatal, match="cannot be read"):
        await read(objects, "typo.csv")


def test_a_key_in_a_list_that_is_not_utf_8_is_refused() -> None:
    columns = ListColumns(["bucket", "key"], is_encoded=True)
    with pytest.raises(SchemaError, match="not UTF-8"):
        columns.reference(["b", "K%F6ln.csv"])
