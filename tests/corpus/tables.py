"""Hostile tables, arrays and archives: cut at every tenth, misnamed, damaged, lying, bombs.

What is cut here was written as one block, one batch or one row group, so that no row of it is
complete before its end. Where rows go to the model as JSON (`texts`), texts and nulls are rows too.
"""

import bz2
import gzip
import io
import lzma
import zipfile
from collections.abc import Callable, Mapping
from typing import Any

import fastavro
import lz4.frame
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from backports import zstd

from penstock.formats.runs import RowOptions
from tests.corpus.cases import Stored
from tests.formats.support import tar_of

_NOISE = np.random.default_rng(3).normal(size=(300, 2))
_TABLE = pa.table({"a": _NOISE[:, 0], "b": _NOISE[:, 1]})
_CSV = "".join(f"{a:.9f},{b:.9f}\n" for a, b in _NOISE).encode()
_RECORD = {"type": "record", "name": "r", "fields": [
    {"name": "a", "type": "double"}, {"name": "b", "type": "double"},
]}  # fmt: skip


def _parquet(table: Any = _TABLE, **options: Any) -> bytes:
    out = io.BytesIO()
    pq.write_table(table, out, **options)
    return out.getvalue()


def _arrow(new: Callable[..., Any], table: Any = _TABLE) -> bytes:
    out = io.BytesIO()
    with new(out, table.schema) as writer:
        writer.write_table(table)
    return out.getvalue()


def _npy(values: Any) -> bytes:
    out = io.BytesIO()
    np.save(out, values, allow_pickle=True)
    return out.getvalue()


def _avro(schema: Any = _RECORD, records: Any = None, codec: str = "null") -> bytes:
    out = io.BytesIO()
    rows = [{"a": a, "b": b} for a, b in _NOISE.tolist()] if records is None else records
    fastavro.writer(out, schema, rows, codec=codec, sync_interval=1 << 20)
    return out.getvalue()


def _zip(members: Mapping[str, bytes], method: int = zipfile.ZIP_DEFLATED) -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", method) as archive:
        for path, body in members.items():
            archive.writestr(path, body)
    return out.getvalue()


# Key, what is in it, and what it is called when it is broken.
_WHOLE: dict[str, tuple[str, bytes, str]] = {
    "Parquet": ("x.parquet", _parquet(), "bad_format"),
    "Parquet of zstd and new pages": (
        "x.parquet", _parquet(compression="zstd", data_page_version="2.0"), "bad_format",
    ),
    "Parquet, plain": (
        "x.parquet", _parquet(compression="none", use_dictionary=False), "bad_format",
    ),
    "an Arrow file": ("x.arrow", _arrow(pa.ipc.new_file), "bad_format"),
    "an Arrow stream": ("x.arrows", _arrow(pa.ipc.new_stream), "bad_format"),
    "npy": ("x.npy", _npy(_NOISE), "bad_format"),
    "npy in Fortran's order": ("x.npy", _npy(np.asfortranarray(_NOISE)), "bad_format"),
    "packed npy": ("x.npy.bz2", bz2.compress(_npy(_NOISE)), "bad_format"),
    "npz": ("x.npz", _zip({"a.npy": _npy(_NOISE)}), "bad_archive"),
    "zip": ("x.zip", _zip({"a.csv": _CSV, "b.csv": _CSV}), "bad_archive"),
    "stored zip": ("x.zip", _zip({"a.csv": _CSV}, zipfile.ZIP_STORED), "bad_archive"),
    "Avro": ("x.avro", _avro(), "bad_format"),
    "deflated Avro": ("x.avro", _avro(codec="deflate"), "bad_format"),
    "Avro of snappy": ("x.avro", _avro(codec="snappy"), "bad_format"),
    "bzip2": ("x.csv.bz2", bz2.compress(_CSV), "bad_format"),
    "zstd": ("x.csv.zst", zstd.compress(_CSV), "bad_format"),
    "lz4": ("x.csv.lz4", lz4.frame.compress(_CSV), "bad_format"),
    "tar of zstd": ("x.tar.zst", zstd.compress(tar_of({"a.csv": _CSV})), "bad_archive"),
}  # fmt: skip

_CUT = [
    Stored(f"{name}, {tenth} tenths of it", key, data[: len(data) * tenth // 10], f"end:{code}")
    for name, (key, data, code) in _WHOLE.items()
    for tenth in range(1, 10)
]
_MISNAMED = [
    Stored(f"{what} named {key}", key, data, f"end:{code}")
    for key, code in (
        ("x.parquet", "bad_format"),
        ("x.arrow", "bad_format"),
        ("x.npy", "bad_format"),
        ("x.avro", "bad_format"),
        ("x.zip", "bad_archive"),
    )
    for what, data in (
        ("CSV", _CSV),
        ("zeros", bytes(5000)),
        ("noise", np.random.default_rng(5).bytes(5000)),
        ("a picture", b"\x89PNG\r\n\x1a\n" + bytes(100)),
        ("HTML", b"<html><body>404</body></html>"),
    )
] + [
    Stored(f"nothing named {key}", key, b"", "end:bad_format")
    for key in ("x.parquet", "x.arrow", "x.npy", "x.avro", "x.zip", "x.csv.zst", "x.csv.bz2")
]  # fmt: skip


def _with(data: bytes, at: int, part: bytes) -> bytes:
    at %= len(data)
    return data[:at] + part + data[at + len(part) :]


_PARQUET = _parquet()
_FOOTER_BYTES = int.from_bytes(_PARQUET[-8:-4], "little")
_FOOTER_AT = len(_PARQUET) - 8 - _FOOTER_BYTES
_FOOTERS = [
    Stored("a Parquet footer of no bytes", "x.parquet", _with(_PARQUET, -8, bytes(4)),
           "end:bad_format"),
    Stored("a Parquet footer longer than the file", "x.parquet", _with(_PARQUET, -8, b"\xff" * 4),
           "end:bad_format"),
    Stored("a Parquet footer that is the whole file", "x.parquet",
           _with(_PARQUET, -8, (len(_PARQUET) - 12).to_bytes(4, "little")), "end:bad_format"),
    Stored("a Parquet footer of zeros", "x.parquet",
           _with(_PARQUET, _FOOTER_AT, bytes(_FOOTER_BYTES)), "end:bad_format"),
    Stored("a Parquet footer of 0xFF", "x.parquet",
           _with(_PARQUET, _FOOTER_AT, b"\xff" * _FOOTER_BYTES), "end:bad_format"),
    Stored("encrypted Parquet", "x.parquet", _with(_PARQUET, -4, b"PARE"), "end:bad_format"),
    Stored("Parquet whose pages are zeros", "x.parquet", _with(_PARQUET, 4, bytes(4000)),
           "end:bad_format"),
    Stored("Parquet in gzip", "x.parquet.gz", gzip.compress(_PARQUET, mtime=0), "end:bad_format"),
    Stored("Parquet in a tar", "x.tar", tar_of({"a.parquet": _PARQUET}), "bad_row"),
    Stored("an Arrow file in a zip", "x.zip", _zip({"a.arrow": _arrow(pa.ipc.new_file)}),
           "bad_row"),
]  # fmt: skip

_VALUES = [
    Stored("NaN and infinity in Parquet", "x.parquet",
           _parquet(pa.table({"a": [1.0, float("nan"), float("-inf")], "b": [1.0, 2.0, 3.0]})),
           "row*3"),
    Stored("nulls in Parquet", "x.parquet",
           _parquet(pa.table({"a": [1.0, None, None, 4.0], "b": [1.0, 2.0, 3.0, 4.0]})),
           "row bad_row*2 row", "row*4"),
    Stored("texts in Parquet", "x.parquet", _parquet(pa.table({"a": ["x", None]})),
           "end:bad_format", "row*2"),
    Stored("numbers beyond float32 in Parquet", "x.parquet",
           _parquet(pa.table({"a": [1e300, -1e300]})), "row*2"),
    Stored("a column twice in Arrow", "x.arrows",
           _arrow(pa.ipc.new_stream, pa.Table.from_arrays([pa.array([1])] * 2, names=["a", "a"])),
           "end:bad_format"),
    Stored("invalid UTF-8 in Arrow", "x.arrows",
           _arrow(pa.ipc.new_stream, pa.table({"a": pa.array([b"\xff\xfe"]).view(pa.string())})),
           "end:bad_format", texts="bad_row"),
    Stored("Parquet without columns", "x.parquet", _parquet(pa.table({})), "end:bad_format"),
    Stored("Parquet without rows", "x.parquet", _parquet(_TABLE.slice(0, 0)), "end"),
    Stored("Arrow without rows", "x.arrow", _arrow(pa.ipc.new_file, _TABLE.slice(0, 0)), "end"),
    Stored("npy without rows", "x.npy", _npy(np.zeros((0, 2))), "end"),
    Stored("Avro without rows", "x.avro", _avro(records=[]), "end"),
    Stored("a zip without members", "x.zip", _zip({}), "end"),
    Stored("NaN and infinity in npy", "x.npy", _npy(np.array([[1, np.nan], [np.inf, 2]])), "row*2"),
    Stored("a pickle in npy", "x.npy", _npy(np.array([{"a": 1}], object)), "end:bad_format"),
    Stored("texts in npy", "x.npy", _npy(np.array(["a", "b"])), "end:bad_format"),
    Stored("dates in npy", "x.npy", _npy(np.array(["2026"], "datetime64[Y]")), "end:bad_format"),
    Stored("nothing in each row of npy", "x.npy", _npy(np.zeros((5, 0))), "end:bad_format"),
    Stored("a million numbers in a row of npy", "x.npy", _npy(np.zeros((1, 1_000_000), "u1")),
           "end:too_large"),
    Stored("npy twice", "x.npy", _npy(_NOISE) * 2, "end:bad_format"),
    Stored("rows of several widths in Avro", "x.avro",
           _avro({"type": "record", "name": "r", "fields": [
               {"name": "a", "type": {"type": "array", "items": "float"}}]},
                 [{"a": [1, 2]}, {"a": [1]}, {"a": [3, 4]}]),
           "row bad_row row", "row*3"),
    Stored("nested nanoseconds in Parquet", "x.parquet",
           _parquet(pa.table({"a": pa.array([[1], [2]], pa.list_(pa.timestamp("ns")))})),
           "end:bad_format", "row*2"),
    Stored("times beyond all calendars in Parquet", "x.parquet",
           _parquet(pa.table({"a": pa.array([2**62, -(2**62)], pa.timestamp("us"))})),
           "end:bad_format", "row*2"),
    Stored("long doubles in npy", "x.npy", _npy(np.array([[1.5, 2.5]], np.longdouble)), "row"),
    Stored("a null in Avro", "x.avro",
           _avro({"type": "record", "name": "r", "fields": [
               {"name": "a", "type": ["null", "int"]}]}, [{"a": 1}, {"a": None}, {"a": 3}]),
           "row bad_row row", "row*3"),
]  # fmt: skip


def _npy_header(text: str, data: bytes = b"") -> bytes:
    header = text.encode().ljust(118) + b"\n"
    return b"\x93NUMPY\x01\0" + len(header).to_bytes(2, "little") + header + data


_HEADERS = [
    Stored(f"npy that says {text[:60]}", "x.npy", _npy_header(text, bytes(64)), f"end:{code}")
    for text, code in (
        ("{'descr': '<f4', 'fortran_order': False, 'shape': (9999999999999, 4)}", "bad_format"),
        ("{'descr': '<f4', 'fortran_order': True, 'shape': (99999999999, 4)}", "bad_format"),
        ("{'descr': '<f4', 'fortran_order': False, 'shape': (-4, 4)}", "bad_format"),
        ("{'descr': '<f4', 'fortran_order': False, 'shape': (4, 4, 9999999)}", "too_large"),
        ("{'descr': '|V999999999', 'fortran_order': False, 'shape': (1,)}", "bad_format"),
        ("{'descr': '|O', 'fortran_order': False, 'shape': (4,)}", "bad_format"),
        ("{'descr': 'f4'}", "bad_format"),
        ("__import__('os').abort()", "bad_format"),
        ("((((((((((", "bad_format"),
        ("", "bad_format"),
    )
]

_ZIP = _zip({"a.csv": b"1,2\n", "b.csv": b"3,4\n"}, zipfile.ZIP_STORED)
_ENCRYPTED = bytearray(_ZIP)
_ENCRYPTED[6] |= 1
_ENCRYPTED[_ZIP.index(b"PK\x01\x02") + 8] |= 1
_ZIPS = [
    Stored("a zip with a name that climbs out", "x.zip",
           _zip({"../../../etc/a.csv": b"1,2\n", "/etc/b.csv": b"3,4\n", "C:\\c.csv": b"5,6\n"}),
           "row*3"),
    Stored("an encrypted zip", "x.zip", bytes(_ENCRYPTED), "bad_row row"),
    Stored("a zip with a wrong checksum", "x.zip", _ZIP.replace(b"3,4", b"9,9"),
           "row bad_row"),
    Stored("a zip in a zip", "x.zip", _zip({"a.zip": _ZIP}), "bad_row"),
    Stored("a zip with more members than allowed", "x.zip", _ZIP, "end:too_large", None,
           RowOptions(members=1)),
    Stored("a zip with a member larger than allowed", "x.zip", _ZIP,
           "bad_row bad_row end:bad_archive", None,
           RowOptions(member_bytes=3)),
    Stored("a zip whose directory claims gigabytes", "x.zip",
           _with(_ZIP, -10, b"\xf0\xff\xff\xff"), "end:bad_archive"),
    Stored("a zip whose members are elsewhere", "x.zip",
           _with(_ZIP, _ZIP.index(b"PK\x01\x02") + 42, b"\xff\xff\xff\x7f"),
           "end:bad_archive"),
    Stored("a zip of a method nobody knows", "x.zip",
           _with(_with(_ZIP, 8, b"\x63\0"), _ZIP.index(b"PK\x01\x02") + 10, b"\x63\0"),
           "bad_row row"),
    Stored("a zip with a comment behind", "x.zip", _ZIP + b"more", "row*2 end:bad_archive"),
    Stored("a zip behind a zip", "x.zip", _ZIP * 2, "row*4"),
    Stored("a zip behind a program", "x.zip", b"#!/bin/sh\n" + _ZIP, "row*2"),
]  # fmt: skip


def _hostile_avro(schema: bytes, block: bytes = b"", codec: bytes = b"null") -> bytes:
    out = io.BytesIO()
    metadata = {"avro.schema": schema, "avro.codec": codec}
    fastavro.schemaless_writer(out, {"type": "map", "values": "bytes"}, metadata)
    return b"Obj\x01" + out.getvalue() + b"s" * 16 + block


_OF_NOTHING = (
    b'{"type":"record","name":"r","fields":[{"name":"f","type":{"type":"array","items":"null"}}]}'
)
_ITSELF = b'{"type":"record","name":"r","fields":[{"name":"f","type":["null","r"]}]}'
_INT = b'{"type":"record","name":"r","fields":[{"name":"f","type":"int"}]}'
_AVROS = [
    Stored(name, "x.avro", data, "end:bad_format")
    for name, data in (
        ("an Avro schema that holds itself",
         _hostile_avro(_ITSELF, b"\x02\x80\x80\x80\x02" + b"\2" * 2_097_152 + b"s" * 16)),
        ("an Avro schema with arrays of nothing", _hostile_avro(_OF_NOTHING)),
        ("an Avro schema that is no JSON", _hostile_avro(b"{")),
        ("an Avro schema that is a number", _hostile_avro(b"7")),
        ("an Avro schema 20,000 levels deep", _hostile_avro(b"[" * 20_000 + b"]" * 20_000)),
        ("an Avro codec nobody knows", _hostile_avro(_INT, codec=b"lzo")),
        ("Avro records without end", _hostile_avro(_INT, b"\xff" * 40)),
        ("an Avro block of less than no records", _hostile_avro(_INT, b"\x01\x02\x02" + b"s" * 16)),
        ("an Avro block of a terabyte", _hostile_avro(_INT, b"\x02\x80\x80\x80\x80\x80\x40")),
        ("an Avro block without its mark", _hostile_avro(_INT, b"\x02\x02\x02" + b"x" * 16)),
        ("an Avro block with fewer bytes", _hostile_avro(_INT, b"\x08\x04\x02\x02" + b"s" * 16)),
        ("an Avro header without end", b"Obj\x01" + b"\x02\x80" * 3_000_000),
    )
]  # fmt: skip
_AVROS.append(
    Stored(
        "an Avro block with more bytes",
        "x.avro",
        _hostile_avro(_INT, b"\x02\x04\x02\x02" + b"s" * 16),
        "row end:bad_format",
    )
)

_BOMBS = [
    Stored(f"a bomb of {name}", f"x.csv.{name}", data, "end:too_large")
    for name, data in (
        ("bz2", lambda: bz2.compress(bytes(64 << 20))),
        ("xz", lambda: lzma.compress(bytes(64 << 20), preset=1)),
        ("zst", lambda: zstd.compress(bytes(64 << 20))),
        ("lz4", lambda: lz4.frame.compress(bytes(64 << 20))),
    )
]
_TWICE = [
    Stored(f"{name} in gzip", "x.csv.gz", gzip.compress(data, mtime=0), "end:bad_format")
    for name, data in (
        ("bzip2", bz2.compress(_CSV)),
        ("xz", lzma.compress(_CSV)),
        ("zstd", zstd.compress(_CSV)),
        ("lz4", lz4.frame.compress(_CSV)),
    )
]

TABLES = [*_CUT, *_MISNAMED, *_FOOTERS, *_VALUES, *_HEADERS, *_ZIPS, *_AVROS, *_BOMBS, *_TWICE]
