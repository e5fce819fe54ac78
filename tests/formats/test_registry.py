"""Which format an object is read as: asked for, named, or seen."""

import pytest

from penstock.core.rows.payload import Form
from penstock.errors import Poison
from penstock.formats.reading import read_object
from penstock.formats.registry import claim_of
from penstock.formats.runs import RowOptions
from penstock.formats.source import AtHand
from tests.formats.picture_bodies import PNG
from tests.formats.support import decode, elements, gzipped, matrix, rows_of, tar_of

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


@pytest.mark.parametrize("key", ["x.csv", "x.json", "x.ndjson", "x", "folder/"])
def test_an_empty_object_of_text_has_no_rows(key: str) -> None:
    assert decode(b"", key) == []
    assert decode(gzipped(b""), key + ".gz") == []
    assert list(read_object(AtHand(b""), RowOptions(), claim_of(key))) == []


@pytest.mark.parametrize(
    "ending",
    [
        ".parquet",
        ".arrow",
        ".feather",
        ".avro",
        ".npy",
        ".npz",
        ".zip",
        ".tar",
        ".tgz",
        ".png",
        ".jpg",
        ".wav",
        ".flac",
        ".mp4",
    ],
)
def test_an_empty_object_of_what_is_never_empty_is_refused(ending: str) -> None:
    for key in (f"x{ending}", f"x{ending}.gz"):
        with pytest.raises(Poison) as failure:
            list(read_object(AtHand(b""), RowOptions(form="bytes"), claim_of(key)))
        assert failure.value.code == "bad_format"


@pytest.mark.parametrize("key", ["x.csv.gz", "x.json.zst", "x.gz", "x.csv.br", "x.bin.xz"])
def test_packed_data_is_never_empty(key: str) -> None:
    with pytest.raises(Poison, match="empty"):
        decode(b"", key)
    assert decode(b"", "x.csv", compression="none") == []
    with pytest.raises(Poison, match="empty"):  # a reference says it, too
        decode(b"", "x.csv", compression="gzip")


@pytest.mark.parametrize(
    ("key", "data"),
    [
        ("x.bin.gz", b"\x01\x02\x03"),
        ("x.gz", b"any text"),
        ("x.csv.bz2", b"BZh91AY&"),
        ("x.png.xz", b"hello"),
        ("x.csv.zst", b"1,2\n\xff\xfe\n"),
        ("x.csv.gz", b"\x1f"),
        ("x.csv.br", bytes(range(128, 256))),
        ("x.lzma", b"\x5d\0\0\x80\0"),
    ],
)
def test_a_name_that_promises_a_codec_is_held_to_it(key: str, data: bytes) -> None:
    form: Form = "matrix" if ".csv" in key else "bytes"
    for cuts in ((), range(1, len(data))):
        with pytest.raises(Poison) as failure:
            decode(data, key, RowOptions(form=form), cuts=cuts)
        assert failure.value.code == "bad_format"


def test_bytes_that_prove_what_they_are_may_have_been_unpacked_on_the_way() -> None:
    assert matrix(decode(CSV, "x.csv.br")) == ROWS
    assert matrix(decode(CSV, "x.csv", compression="gzip")) == ROWS
    assert rows_of(decode(PNG, "x.png.gz", RowOptions(form="bytes"))) == [(None, PNG)]
    for key in ("x.bin", "x"):
        with pytest.raises(Poison, match="data of gzip"):
            decode(b"\x01\x02", key, RowOptions(form="bytes"), compression="gzip")


def test_one_line_of_scalars_without_a_name_is_one_row() -> None:
    assert elements(decode(b'["a", "b"]', "x", RowOptions(form="json"))) == [["a", "b"]]
