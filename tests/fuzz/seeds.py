"""Where fuzzing begins: a few real inputs of each target, so that it need not guess the formats.

Rule: small, one for each branch worth reaching. Imports nothing of `penstock`: the process that
fuzzes instruments it while it is imported, and must come first.
"""

import bz2
import gzip
import io
import lzma
import tarfile
import zipfile
from collections.abc import Callable, Iterator
from typing import Any

import fastavro
import lz4.frame
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from backports import zstd
from PIL import Image

from tests.formats import picture_bodies, recordings

SOUNDS = ("WAV", "RF64", "FLAC", "OGG", "AIFF", "CAF", "AU", "W64")
_PLAIN = b"\x06\0\x55\xaa\0\0"  # settings: matrix, rows of any length, two cuts
_TEXTS = b"\x07\0\x33\x99\0\0"  # JSON rows
_OPAQUE = b"\x06\x10\x33\x99\0\0"  # rows of bytes


def _tar(members: dict[str, bytes], kind: int) -> bytes:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w", format=kind) as archive:
        for path, body in members.items():
            info = tarfile.TarInfo(path)
            info.size = len(body)
            archive.addfile(info, io.BytesIO(body))
    return out.getvalue().rstrip(b"\0") + b"\0" * 1024


def _both(*bodies: bytes) -> list[bytes]:
    return [settings + body for body in bodies for settings in (_PLAIN, _TEXTS)]


_CSV = b'a,"b ""x"""\r\n1,2.5\n\n"4","5\n"\n9,x\n+1,.5\n,\n"a, b",\xff\n1,"2"3\nnan,1e400\n7,8'
_NDJSON = b'[1,2.5]\n[ 4, 5 ]\r\n\n{"a":1}\n[1,[2]]\n[true,1]\n"x\n[-0,1E5]\nnull\n["\xc3\xbc",2]'
_ARRAY = rb'[ [1, 2],[4,"]\"],["], {"a":[1,{"b":"\\"}]},null,[7,8] ] '
_MEMBERS = {"a.csv": b"1,2\n", "b.ndjson": b"[3,4]", "n" * 60 + "/" + "m" * 60 + ".csv": b"5,6\n"}
_TARS = [_tar(_MEMBERS, kind) for kind in (0, 1, 2)]


_TABLE = pa.table({"a": [1, 2, None], "s": ["x", "y", "x"], "v": [[1.5], [], None]})
# Times, decimals and bytes where Python's own objects of them are not what JSON can hold.
_NESTED = pa.table(
    {
        "t": pa.array([[1], [2**62]], pa.list_(pa.timestamp("ns", "UTC"))),
        "far": pa.array([{"at": 2**62, "took": 5}, None], pa.struct(
            [("at", pa.timestamp("us")), ("took", pa.duration("ms"))]
        )),
        "d": pa.array([[("k", 1)], []], pa.map_(pa.string(), pa.decimal128(30, 5))),
        "b": pa.array([[b"x"], None], pa.list_(pa.binary(), 1)),
    }
)  # fmt: skip


def _arrow(new: Callable[..., Any], table: Any = _TABLE) -> bytes:
    out = io.BytesIO()
    with new(out, table.schema) as writer:
        writer.write_table(table, 2)
    return out.getvalue()


def _avro(codec: str) -> bytes:
    fields = [{"name": "a", "type": "int"}, {"name": "s", "type": ["null", "string"]}]
    schema = {"type": "record", "name": "r", "fields": fields}
    out = io.BytesIO()
    records = [{"a": 1, "s": None}, {"a": -2, "s": "x"}]
    fastavro.writer(out, schema, records, codec=codec, sync_marker=b"s" * 16)
    return out.getvalue()


def _avro_lists() -> bytes:
    """Rows of several widths."""
    kind = {"type": "array", "items": ["null", "double"]}
    schema = {"type": "record", "name": "r", "fields": [{"name": "a", "type": kind}]}
    out = io.BytesIO()
    records = [{"a": [1.0, 2.0]}, {"a": [1.0]}, {"a": []}, {"a": [None, 3.0]}]
    fastavro.writer(out, schema, records, sync_marker=b"s" * 16)
    return out.getvalue()


def _npy(values: Any) -> bytes:
    out = io.BytesIO()
    np.save(out, values)
    return out.getvalue()


def _zip(method: int) -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", method) as archive:
        for path, body in _MEMBERS.items():
            archive.writestr(zipfile.ZipInfo(path), body, method)
    return out.getvalue()


_ARRAYS = (
    _npy(np.array([[1.5, 2]], np.longdouble)),
    _npy(np.arange(6.0).reshape(3, 2)),
    _npy(np.asfortranarray(np.arange(6, dtype=">i2").reshape(3, 2))),
)


def _parquet(codec: str, table: Any = _TABLE) -> bytes:
    out = io.BytesIO()
    pq.write_table(table, out, compression=codec, row_group_size=2)
    return out.getvalue()


_LINES = b"\xef\xbb\xbfone\r\n\n\xc3\xbc\n\xff\nlast"
_PICTURES = (
    picture_bodies.png(5, 3),
    picture_bodies.jpeg(640, 480),
    picture_bodies.gif(5, 3),
    picture_bodies.bmp(5, 3),
    picture_bodies.tiff("<", 5, 3),
    picture_bodies.tiff(">", 5, 3),
    *(picture_bodies.webp(kind, 5, 3) for kind in ("VP8 ", "VP8L", "VP8X")),
)


def _drawn() -> Iterator[bytes]:
    """True pictures, of modes and kinds with a way of their own."""
    image = Image.effect_mandelbrot((9, 7), (-2, -1, 1, 1), 20)
    for mode, kind in [
        ("RGB", "JPEG"), ("CMYK", "JPEG"), ("P", "PNG"), ("I;16", "PNG"), ("LA", "PNG"),
        ("RGB", "WebP"), ("P", "GIF"), ("RGB", "BMP"), ("RGB", "TIFF"),
    ]:  # fmt: skip
        out = io.BytesIO()
        image.convert(mode).save(out, kind)
        yield out.getvalue()


SEEDS: dict[str, list[bytes]] = {
    "csv": _both(_CSV, b"\xef\xbb\xbf1,2\n3,4\n"),
    "ndjson": _both(_NDJSON, b'{"a":1,"b":2}\n{"b":1}\n'),
    "json": _both(_ARRAY, b"[[1,2],[3,,4]]", b"[]"),
    "gzip": _both(gzip.compress(_CSV, mtime=0), gzip.compress(b"1,2\n", mtime=0) * 2 + b"\0\0"),
    "packed": _both(
        bz2.compress(_CSV),
        lzma.compress(_CSV, check=lzma.CHECK_CRC32),
        zstd.compress(_CSV),
        lz4.frame.compress(_CSV),
    ),
    "tar": _both(*_TARS),
    "tar.gz": _both(*(gzip.compress(tar, mtime=0) for tar in _TARS)),
    "unnamed": _both(_CSV, _NDJSON, _ARRAY, gzip.compress(_CSV, mtime=0), _TARS[2]),
    "parquet": [
        choice + _parquet(codec) for choice in (_PLAIN, _TEXTS) for codec in ("none", "snappy")
    ],
    "arrow": _both(
        _arrow(pa.ipc.new_file), _arrow(pa.ipc.new_stream), _arrow(pa.ipc.new_stream, _NESTED)
    ),
    "avro": _both(_avro("null"), _avro("deflate"), _avro_lists()),
    "npy": _both(*_ARRAYS),
    "npy as a member": _both(*_ARRAYS),
    "zip": _both(_zip(zipfile.ZIP_STORED), _zip(zipfile.ZIP_DEFLATED)),
    "image": [_OPAQUE + picture for picture in _PICTURES],
    "pixels": [b"\x13" + picture for picture in _drawn()],
    "audio": [recordings.recording(recordings.tone(300), kind) for kind in SOUNDS],
    "video": [recordings.video(3, kind) for kind in ("mp4", "matroska", "mpegts")],
    "container": [
        *(recordings.recording(recordings.tone(9), kind) for kind in ("WAV", "OGG")),
        *(recordings.video(2, kind) for kind in ("mp4", "matroska", "mpegts")),
    ],
    "text": [choice + _LINES for choice in (_OPAQUE, _TEXTS)],
    "message": [
        b'{"bucket":"b","key":"k","stream":"s","event_time":7,"rows":[[0,5],[7,null]],"etag":"e"}',
        b'{"url":"s3://b/k","attributes":{"a":[1,{"b":2}]},"event_time":"2026-11-21T12:00:00Z"}',
        b'{"objects":[{"bucket":"b","key":"k"},{"url":"s3://b/k"}]}',
        b'{"stream":"s","inline":[[1,2],{"a":1}]}',
        (
            b'{"Records":[{"eventName":"ObjectCreated:Put","s3":{"bucket":{"name":"b"},'
            b'"object":{"key":"a%2Bb+c","size":1,"eTag":"e","versionId":"v"}}}]}'
        ),
        b'{"detail-type":"Object Created","detail":{"bucket":{"name":"b"},"object":{"key":"k"}}}',
        b'{"Message":"{\\"Records\\":[{\\"body\\":\\"{}\\"}]}"}',
        b'{"Event":"s3:TestEvent"}',
    ],
    "cursor": [
        b"",
        b"\0p1:0;0.17.0123456789abcdef",
        b"\0p1:0;3.0.",
        b"\x07p1:7;0.0.;1.2,3.4;1.0.2,5.1.1;2.1.1f.0123456789abcdef!a",
        b"\0p1:0;1.9223372036854775807.!",
    ],
    "dead_letter": [
        (
            b'{"v":1,"code":"bad_row","stage":"expand","message":"m","attempts":1,"stream":"s",'
            b'"source":{"topic":"t","partition":0,"offset":1},"object":null,"member":null,'
            b'"rows":[[1,2]],"event_time":null,"failed_at":1,"model":"m","reference":'
            b'{"bucket":"b","key":"k","rows":[[1,2]]},"value_b64":"aGVsbG8="}'
        )
    ],
    "prediction": [
        (
            b'{"v":1,"id":"t/0/1/0/2","stream":"s","source":{"topic":"t","partition":0,"offset":1},'
            b'"object":{"bucket":"b","key":"k","version":null},"row":2,"last":true,"rows":3,'
            b'"model":"m","prediction":{"a":1},"error":{"code":"bad_row","message":"m"}}'
        )
    ],
    "answer": [
        b'\x02[{"a":1},{"error":"no"}]',
        b'\x02{"predictions":[[1],[2]]}',
        b"\x03[1,null,true]",
        b'\x01["x\\"},{"]',
    ],
    "http": [
        b"\x20HTTP/1.1 200 OK\r\nContent-Length: 3\r\nRetry-After: 1\r\n\r\n[1]",
        b"\x80HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 204 No Content\r\n\r\n",
        (
            b"\x40HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
            b"2;x\r\n[1\r\n1\r\n]\r\n0\r\n\r\n"
        ),
        b"\x60HTTP/1.0 503 X\r\nConnection: close\r\n\r\nsorry",
    ],
    "refusal": [b'\x01\x8f1234{"code":503,"type":"InternalServerException","message":"m"}'],
}
