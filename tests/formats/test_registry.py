"""Which format an object is read as: asked for, named, or seen."""

import pytest

from penstock.errors import Poison
from penstock.formats.base.runs import RowOptions
from tests.formats.support import decode, elements, gzipped, matrix, tar_of

CSV = b"1,2\n3,4\n"
LINES = b"[1,2]\n[3,4]\n"
ARRAY = b"[[1,2],[3,4]]"
TAR = tar_of({"a.csv": CSV})
ROWS = [[1, 2], [3, 4]]


@pytest.mark.parametrize(
    ("key", "data"),
    [
        ("a/b.csv", CSV),
        ("B.CSV", CSV),
        ("b.csv.gz", gzipped(CSV)),
        ("b.gz", gzipped(LINES)),
        ("b.gz", gzipped(TAR)),
        ("b.jsonl", LINES),
        ("b.ndjson.gz", gzipped(LINES)),
        ("b.json", ARRAY),
        ("b.json", LINES),
        ("b.json", b'{"x":1,"y":2}\n{"x":3,"y":4}\n'),
        ("b.tar", TAR),
        ("b.tar.gz", gzipped(TAR)),
        ("b.tgz", gzipped(TAR)),
        ("b", CSV),
        ("b", LINES),
        ("b", ARRAY),
        ("b", b" [\n [1,2],\n [3,4]]"),
        ("b", b"\xef\xbb\xbf" + ARRAY),
        ("b", TAR),
        ("b", gzipped(TAR)),
        # What is there wins over what the name says about compression.
        ("b.csv", gzipped(CSV)),
        ("b.csv.gz", CSV),
        ("b.tgz", TAR),
    ],
)
def test_the_name_tells_the_format_or_else_the_content_does(key: str, data: bytes) -> None:
    assert matrix(decode(data, key)) == ROWS


@pytest.mark.parametrize(
    ("format", "data"), [("csv", CSV), ("ndjson", LINES), ("json", ARRAY), ("tar", TAR)]
)
def test_the_format_asked_for_wins_over_the_name(format: str, data: bytes) -> None:
    assert matrix(decode(data, "x.parquet", format=format)) == ROWS
    assert matrix(decode(gzipped(data), "x.csv", format=format, compression="gzip")) == ROWS


def test_auto_is_as_good_as_nothing() -> None:
    assert matrix(decode(LINES, "x.jsonl", format="auto", compression="auto")) == ROWS


def test_an_unknown_format_names_the_known_ones() -> None:
    known = "zip, image, audio, video, text, bytes, tar"
    with pytest.raises(Poison, match=known) as failure:
        decode(CSV, format="xml")
    assert failure.value.code == "bad_format"
    with pytest.raises(
        Poison, match='unknown compression "zip"; known: auto, gzip, bz2, xz, zstd, lz4, none'
    ):
        decode(CSV, compression="zip")


def test_without_compression_gzip_data_stays_as_it_is() -> None:
    with pytest.raises(Poison, match="binary data"):
        decode(gzipped(CSV * 500), "x", compression="none")


@pytest.mark.parametrize("key", ["x.csv", "x.csv.gz", "x.json", "x.ndjson", "x.tar", "x"])
def test_an_empty_object_has_no_rows(key: str) -> None:
    assert decode(b"", key) == []


def test_one_line_of_scalars_without_a_name_is_one_row() -> None:
    assert elements(decode(b'["a", "b"]', "x", RowOptions(form="json"))) == [["a", "b"]]
