"""Data of one kind under the name of another: the error says what it is and how to mend it."""

import io
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

from penstock.errors import Poison
from penstock.formats.first_bytes import BOM, iso_media
from penstock.formats.reading import read_object
from penstock.formats.registry import claim_of
from penstock.formats.runs import RowOptions
from penstock.formats.source import AtHand
from tests.formats.picture_bodies import png
from tests.formats.support import decode, decode_until_failure, errors, gzipped, rows_of, tar_of

CSV = b"1,2,3\n4,5,6\n"
PNG = png(4, 4)


def npy() -> bytes:
    out = io.BytesIO()
    np.save(out, np.zeros((3, 4), "<f4"))
    return out.getvalue()


def refused(data: bytes, key: str) -> Poison:
    """How a streamed object of this name fails, in the same words however it is cut."""
    said = set()
    for cuts in (range(1, 40), (9,), ()):
        with pytest.raises(Poison) as caught:
            decode(data, key, cuts=[cut for cut in cuts if cut < len(data)])
        said.add(str(caught.value))
    assert len(said) == 1
    return caught.value


def refused_ranged(data: bytes, key: str) -> Poison:
    options = RowOptions(form="matrix")
    assert claim_of(key).ranged(options) is not None
    try:
        list(read_object(AtHand(data), options, claim_of(key)))
    except Poison as poison:
        return poison
    raise AssertionError("it was read")


@pytest.mark.parametrize("key", ["a.csv", "a.csv.gz", "a.ndjson", "a.json"])
@pytest.mark.parametrize(
    ("data", "kind", "format"),
    [
        (PNG, "a PNG", "image"),
        (npy(), "npy", "npy"),
        (gzipped(PNG), "a PNG", "image"),
        (b"\xef\xbb\xbf\xff\xff\xff\xff1,2\n", "an Arrow stream", "arrow"),
    ],
)
def test_binary_data_named_as_text(key: str, data: bytes, kind: str, format: str) -> None:
    error = refused(data, key)
    assert error.code == "bad_format"
    assert f'it begins as {kind} does; read it as "{format}" ("format" of its reference' in str(
        error
    )


def test_a_workbook_named_as_csv_is_named() -> None:
    assert "a zip or an Excel workbook (.xlsx)" in str(refused(b"PK\3\4" + bytes(40), "a.csv"))


def test_what_nobody_reads_here_is_named_too() -> None:
    assert "this is HDF5, which is not read here" in str(
        refused(b"\x89HDF\r\n\x1a\n" + CSV, "a.csv")
    )


@pytest.mark.parametrize(
    ("key", "what"),
    [
        ("a.parquet", "no Parquet file"),
        ("a.arrow", "no Arrow data"),
        ("a.npy", "no npy file"),
        ("a.zip", "no zip"),
    ],
)
@pytest.mark.parametrize(
    ("data", "words"),
    [
        (b"hello, world\n" * 3, 'it is text and begins with "hello, world'),
        (b'{"a": 1}\n{"a": 2}\n', 'it begins as JSON does; read it as "ndjson"'),
        (PNG, 'it begins as a PNG does; read it as "image"'),
    ],
)
def test_another_kind_named_as_one_that_is_read_by_its_parts(
    key: str, what: str, data: bytes, words: str
) -> None:
    message = str(refused_ranged(data, key))
    assert what in message
    assert words in message


@pytest.mark.parametrize(
    ("key", "words"),
    [
        ("a.avro", "no Avro object container: correct its format"),
        ("a.tar", 'no tar archive: it is text and begins with "1,2,3'),
        ("a.json", 'no JSON: it is text and begins with "1,2,3'),
    ],
)
def test_text_named_as_something_else(key: str, words: str) -> None:
    assert words in str(refused(CSV * 100, key))


def test_a_member_of_another_kind_is_named_with_its_archive() -> None:
    runs, failure = decode_until_failure(tar_of({"x/1.csv": PNG}), "a.tar", RowOptions())
    [(member, reason)] = rows_of(runs)
    assert member == "x/1.csv"
    assert str(reason).startswith("this is no text, as csv is: it begins as")
    assert "no member of the archive can be read: 1 *.csv" in str(failure)


def test_packed_data_behind_a_byte_order_mark_is_no_text() -> None:
    assert "it begins with 1f 8b;" in str(refused(BOM + b"\x1f\x8b2,3\n4,5\n", "a.csv"))


def test_text_named_as_a_picture_is_a_bad_row() -> None:
    [reason] = errors(decode(CSV, "a.png", RowOptions(form="bytes")))
    assert "no JPEG, PNG" in reason
    assert 'read it as "csv"' in reason


def test_a_damaged_part_says_which() -> None:
    schema = pa.schema([("a", pa.float32())])
    out = io.BytesIO()
    with pa.ipc.new_stream(out, schema) as stream:
        for _ in range(3):
            stream.write_batch(pa.record_batch([np.zeros(50, np.float32)], schema=schema))
    message = str(refused_ranged(out.getvalue()[:-120], "a.arrow"))
    assert "batch 2 of the Arrow data cannot be read" in message


def test_pictures_for_a_model_of_numbers_are_told_their_setting() -> None:
    with pytest.raises(Poison, match=r"set rows\.image_size, as 224x224"):
        decode(PNG, "a.png", RowOptions(form="matrix"))


@pytest.mark.parametrize("text", [b"1,5;2,5\n3,5;4,5\n", b'"1,5","2,5"\n"3,5","4,5"\n'])
def test_numbers_with_a_decimal_comma_are_no_header(text: bytes) -> None:
    rows = rows_of(decode(text, "a.csv"))
    assert len(rows) == 2
    assert all("(see rows.decimal)" in str(row) for _, row in rows)


@pytest.mark.parametrize("key", ["a.csv", "a.ndjson", "a.json"])
@pytest.mark.parametrize(
    "frame",
    [
        b"\x50\x2a\x4d\x18\4\0\0\0abcd",
        b"\x5f\x2a\x4d\x18\0\0\0\0",
        b"\x28\xb5\x2f\xfd\x24\0",
        b"\x04\x22\x4d\x18\x64\x40",
        b"\xfd7zXZ\0\0\4",
        b"BZh91AY&SY\0\0",
        b"\x1f\x8b\x08\0",
    ],
)
def test_packed_data_that_is_not_to_be_unpacked_is_no_text(key: str, frame: bytes) -> None:
    for cuts in ((), range(1, 12)):
        with pytest.raises(Poison, match="no text") as caught:
            decode(frame + CSV * 20, key, cuts=cuts, compression="none")
        assert caught.value.code == "bad_format"


def test_text_of_another_encoding_is_read_the_same_packed_and_bare() -> None:
    data = "Größe,b\n1,2\n3,4\n".encode("latin-1")
    rows = rows_of(decode(data, "a.csv"))
    assert rows == [(None, [1, 2]), (None, [3, 4])]
    for cuts in ((), range(1, 30)):
        assert rows_of(decode(gzipped(data), "a.csv.gz", cuts=cuts)) == rows


@pytest.mark.parametrize(
    ("writer", "name", "found"),
    [
        (("ffmpeg", "-i", "x.png", "a.mp4"), "a.mp4", "video"),
        (("ffmpeg", "-i", "x.png", "a.mov"), "a.mov", "video"),
        (("ffmpeg", "-i", "x.png", "-movflags", "frag_keyframe", "a.m4v"), "a.m4v", "video"),
        (("ffmpeg", "-f", "lavfi", "-i", "sine=d=0.1", "a.m4a"), "a.m4a", "audio"),
        (("heif-enc", "x.png", "-o", "a.heic"), "a.heic", "image"),
        (("heif-enc", "-A", "x.png", "-o", "a.avif"), "a.avif", "image"),
        (("avifenc", "x.png", "a.avif"), "a.avif", "image"),
    ],
)
def test_the_brands_tell_a_picture_from_a_film_and_a_sound(
    writer: Sequence[str], name: str, found: str, tmp_path: Path
) -> None:
    if shutil.which(writer[0]) is None:
        pytest.skip(f"{writer[0]} is not on this machine")
    (tmp_path / "x.png").write_bytes(png(64, 64))
    done = subprocess.run(writer, cwd=tmp_path, capture_output=True, check=False)
    if done.returncode:
        pytest.skip(f"this {writer[0]} cannot write it: {done.stderr.decode()[-200:]}")
    assert iso_media((tmp_path / name).read_bytes()[:512]) == found


BINARY = {
    b"7z\xbc\xaf\x27\x1c\0\4": "this is 7-Zip",
    b"Rar!\x1a\x07\1\0": "this is RAR",
    b"PK\x07\x08PK\3\4": "this is a part of a zip that was split",
    b"LZIP\x01\x0c": "this is packed by lzip",
    b"\x1f\x9d\x90\0": "this is packed by compress",
    b"\x89HDF\r\n\x1a\n": "this is HDF5",
    b"CDF\x01\0\0\0\0": "this is NetCDF",
    b"SQLite format 3\0": "this is SQLite",
    b"\x80\x04\x95\0": "this is a Python pickle",
    b'\x40\0\0\0\0\0\0\0{"a":': "this is safetensors",
    b"\0\0\0\x01\x2a\x02\x04\x06": "a topic with a schema registry (schema 298)",
}
TEXTS = {
    b"!<arch>\ndebian-binary   ": "this is an archive of ar",
    b"Salted__\1\2\3\xff": "this is encrypted by OpenSSL",
    b"<!DOCTYPE html>\n<html>": "this is an HTML page",
    pd.DataFrame({"a": [1.5]}).to_html().encode(): "this is a table in HTML",
    b"\n <HTML><body>": "this is an HTML page",
    b'<?xml version="1.0"?>\n<Error><Code>NoSuchKey': "this is XML, perhaps the error of a store",
    b"version https://git-lfs.github.com/spec/v1\noid": "this is a pointer of Git LFS",
    b"/annex/objects/MD5E-s1--x": "this is a pointer of git-annex",
    b"{\\rtf1\\ansi hello}": "this is RTF",
    b"-----BEGIN PGP MESSAGE-----": "this is PEM or PGP",
}
CPIO = b"070701" + b"0" * 104 + b"name\0"


@pytest.mark.parametrize(("data", "words"), {**BINARY, **TEXTS}.items())
def test_what_nobody_reads_here_is_refused_by_its_name(data: bytes, words: str) -> None:
    keys = ["a", "a.csv", "a.ndjson", "a.json"]
    if data in TEXTS:
        keys = keys[: 1 if data.startswith((b"!<", b"Salt")) else 4]
    elif data.startswith((b"@", b"CDF", b"SQ")):
        keys, data = keys[:1], data + bytes(40)
    for key in keys:
        assert words in str(refused(data, key))
    for key in ("a.parquet", "a.arrow", "a.npy", "a.zip"):
        assert words in str(refused_ranged(data, key))


def test_tables_and_archives_that_are_texts_by_their_first_bytes_are_named() -> None:
    for data, words in ((b"PARE", "with an encrypted footer"), (CPIO, "cpio"), (b"GRIB", "GRIB")):
        assert words in str(refused(data + bytes(500), "a"))


def test_other_archives_and_pointers_are_no_bytes_for_a_model_but_documents_are() -> None:
    options = RowOptions(form="bytes")
    archives = [b"7z", b"Rar!", b"PK", b"LZIP", b"!<arch", b"Salted", b"version", b"/annex"]
    for data in (*BINARY, *TEXTS, CPIO):
        _, failure = decode_until_failure(data, "a", options)
        assert (failure is not None) == data.startswith((*archives, CPIO)), data
        assert rows_of(decode(data, "a", options, format="bytes")) == [(None, data)]
