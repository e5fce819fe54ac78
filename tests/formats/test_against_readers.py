"""Values by an independent reader: what other libraries write is read as yet another one reads it.

`FORMATS_CASES` is how many files by chance each test makes: a dozen in CI, thousands by hand.
"""

import base64
import bz2
import gzip
import io
import json
import lzma
import math
import os
import tarfile
import zipfile
from collections.abc import Callable
from datetime import date, datetime
from decimal import Decimal
from pathlib import Path
from random import Random
from typing import Any

import av
import fastavro
import numpy as np
import polars as pl
import pytest
from backports import zstd
from PIL import Image

from penstock.core.rows.payload import BytesRows, JsonRows, Matrix
from penstock.formats.media.audio import AudioOptions
from penstock.formats.pictures.pixels import PictureOptions, PixelOptions
from penstock.formats.reading import decoded
from penstock.formats.registry import claim_of
from penstock.formats.runs import RowOptions, Run
from penstock.formats.text.csv_dialect import CsvOptions
from tests.formats.random_tables import (
    NUMBERS,
    OTHERS,
    arrow_by_polars,
    arrow_by_pyarrow,
    by_duckdb,
    by_polars,
    by_pyarrow,
    table_of,
)
from tests.formats.recordings import recording
from tests.formats.support import matrix

CASES = range(int(os.environ.get("FORMATS_CASES", "12")))
JSON = RowOptions(form="json")
PARQUET = {"pyarrow": by_pyarrow, "polars": by_polars, "duckdb": by_duckdb}
ARROW = {"pyarrow": arrow_by_pyarrow, "polars": arrow_by_polars}
# Of other lengths their text is another float's: as numbers they are compared.
WRITTEN = OTHERS | {name: NUMBERS[name] for name in NUMBERS if name != "f32"}


def runs_of(data: bytes, key: str, options: RowOptions, chunk_bytes: int = 1 << 16) -> list[Run]:
    return [run for some in decoded(options, data, chunk_bytes, claim_of(key)) for run in some]


def objects(data: bytes, key: str) -> list[Any]:
    found = []
    for run in runs_of(data, key, JSON):
        assert isinstance(run.payload, JsonRows), run.error
        found += json.loads(b"[" + bytes(run.payload.body) + b"]", parse_float=Decimal)
    return found


def numbers(data: bytes, key: str, options: RowOptions) -> list[list[float] | None]:
    """A bad row is None."""
    found: list[list[float] | None] = []
    for run in runs_of(data, key, options):
        is_good = isinstance(run.payload, Matrix)
        found += run.payload.values.tolist() if isinstance(run.payload, Matrix) else []
        found += [] if is_good else [None] * run.rows
    return found


def is_same(got: Any, value: Any) -> bool:
    """Is that what the value is as JSON?"""
    if value is None or (isinstance(value, float) and not math.isfinite(value)):
        return got is None
    if isinstance(value, dict):
        return list(got) == list(value) and all(is_same(got[name], value[name]) for name in value)
    if isinstance(value, list):
        return len(got) == len(value) and all(map(is_same, got, value))
    if isinstance(value, bytes):
        return base64.b64decode(got) == value
    if isinstance(value, datetime):
        assert got.endswith("Z") == (value.tzinfo is not None)
        return datetime.fromisoformat(got) == value
    if isinstance(value, date):
        return bool(got == value.isoformat())
    if isinstance(value, float):
        return float(got) == value
    return bool(got == value if isinstance(value, str | bool) else Decimal(str(got)) == value)


def check_json(data: bytes, key: str, frame: pl.DataFrame) -> None:
    got, values = objects(data, key), frame.to_dicts()
    assert len(got) == len(values)
    for row, (one, value) in enumerate(zip(got, values, strict=True)):
        assert is_same(one, value), (row, one, value)


def check_numbers(data: bytes, key: str, frame: pl.DataFrame) -> None:
    """A row with a null is bad, or has what stands for it."""
    columns = [frame[name].cast(pl.Float64).to_numpy() for name in frame.columns]
    # Integers of 64 bits are rounded once.
    exact = [frame[name].to_numpy() for name in frame.columns]
    is_null = np.array([frame[name].is_null().to_numpy() for name in frame.columns]).T
    with np.errstate(over="ignore", invalid="ignore"):
        rounded = [
            (one if one.dtype.kind in "iuf" else other).astype(np.float32)
            for one, other in zip(exact, columns, strict=True)
        ]
    expected = np.array(rounded).T
    got = numbers(data, key, RowOptions())
    assert [row is None for row in got] == is_null.any(axis=1).tolist()
    good = [row for row in got if row is not None]
    there = expected[~is_null.any(axis=1)]
    np.testing.assert_array_equal(np.array(good, np.float32).reshape(there.shape), there)


@pytest.mark.parametrize("writer", PARQUET)
@pytest.mark.parametrize("seed", CASES)
def test_parquet_as_polars_reads_it(writer: str, seed: int, tmp_path: Path) -> None:
    draw, path = Random(f"{writer} {seed}"), tmp_path / "x.parquet"
    PARQUET[writer](table_of(draw, WRITTEN, draw.choice([0, 0.1])), draw, path)
    check_json(path.read_bytes(), "x.parquet", pl.read_parquet(path))
    PARQUET[writer](table_of(draw, NUMBERS, draw.choice([0, 0.1])), draw, path)
    check_numbers(path.read_bytes(), "x.parquet", pl.read_parquet(path))


@pytest.mark.parametrize("writer", ARROW)
@pytest.mark.parametrize("is_stream", [False, True], ids=["file", "stream"])
@pytest.mark.parametrize("seed", CASES)
def test_arrow_as_polars_reads_it(writer: str, is_stream: bool, seed: int) -> None:
    draw = Random(f"{writer} {is_stream} {seed}")
    read = pl.read_ipc_stream if is_stream else pl.read_ipc
    for check, kinds in ((check_json, WRITTEN), (check_numbers, NUMBERS)):
        table = table_of(draw, kinds, draw.choice([0, 0.1]))
        data = ARROW[writer](table, draw, is_stream=is_stream)
        check(data, "x.arrow", read(io.BytesIO(data)))


PACKERS: list[Callable[[bytes], bytes]] = [
    bytes, gzip.compress, bz2.compress, lzma.compress, zstd.compress
]  # fmt: skip
AVRO_TYPES: dict[str, Any] = {
    "long": lambda draw: draw.randrange(-(2**63), 2**63),
    "int": lambda draw: draw.randrange(-(2**31), 2**31),
    "double": lambda draw: draw.gauss(0, 1e10),
    "boolean": lambda draw: draw.random() < 0.5,
    "string": lambda draw: draw.choice(["", "a", "\u00fc", 'q"\\\n', "long " * 99]),
}


@pytest.mark.parametrize("seed", CASES)
def test_avro_as_polars_reads_it(seed: int) -> None:
    draw, out = Random(seed), io.BytesIO()
    kinds = draw.choices(sorted(AVRO_TYPES), k=draw.randrange(1, 6))
    is_optional = [draw.random() < 0.5 for _ in kinds]
    fields = [
        {"name": f"f{at}", "type": ["null", kind] if optional else kind}
        for at, (kind, optional) in enumerate(zip(kinds, is_optional, strict=True))
    ]
    records = [
        {
            f"f{at}": None if is_optional[at] and draw.random() < 0.2 else AVRO_TYPES[kind](draw)
            for at, kind in enumerate(kinds)
        }
        for _ in range(draw.randrange(1, 500))
    ]
    schema = {"type": "record", "name": "R", "fields": fields}
    codec = draw.choice(["null", "deflate", "snappy"])
    fastavro.writer(out, schema, records, codec, sync_interval=draw.choice([10, 16_000]))
    check_json(out.getvalue(), "x.avro", pl.read_avro(io.BytesIO(out.getvalue())))


@pytest.mark.parametrize("seed", CASES)
def test_npy_as_numpy_reads_it(seed: int) -> None:
    draw = Random(seed)
    shape = [draw.randrange(1, 30), *(draw.randrange(1, 5) for _ in range(draw.randrange(3)))]
    kind = draw.choice(["<f4", ">f8", "<f2", "|i1", ">u2", "<i8", "|b1"])
    order = draw.choice(["C", "F"])
    values = np.random.default_rng(seed).integers(-100, 100, shape).astype(kind)
    out = io.BytesIO()
    np.save(out, np.array(values, order=order))  # type: ignore[call-overload]
    read = np.load(io.BytesIO(out.getvalue()))
    expected = read.reshape(len(read), -1).astype(np.float32).tolist()
    for key, packed in (("x.npy", out.getvalue()), ("x.tar", tar(draw, {"a.npy": out.getvalue()}))):
        assert numbers(packed, key, RowOptions()) == expected


@pytest.mark.parametrize("format", ["WAV", "FLAC"])
@pytest.mark.parametrize("seed", CASES)
def test_recordings_as_ffmpeg_reads_them(format: str, seed: int) -> None:
    draw = Random(seed)
    rate, channels = draw.choice([8_000, 11_025, 44_100]), draw.randrange(1, 3)
    frames = draw.randrange(1, 3 * rate)
    samples = np.random.default_rng(seed).integers(-(2**15), 2**15, (frames, channels))
    data = recording((samples / 2**15).astype(np.float32), format, "PCM_16", rate)
    window_ms = draw.randrange(5, 900)
    hop_ms = draw.randrange(1, window_ms + 1)
    options = RowOptions(own=(AudioOptions(window_ms, hop_ms),))
    with av.open(io.BytesIO(data), "r") as container:
        frames_of = list(container.decode(audio=0))
        layout = [frame.to_ndarray().reshape(-1, channels) for frame in frames_of]
    heard = np.concatenate(layout).astype(np.float32) / np.float32(2**15)
    seen = np.zeros(len(heard), bool)
    for number, row in enumerate(numbers(data, "x.wav", options)):
        values = np.array(row, np.float32).reshape(channels, -1).T
        begin = number * hop_ms * rate // 1000
        there = heard[begin : begin + len(values)]
        np.testing.assert_array_equal(values[: len(there)], there)
        assert not values[len(there) :].any()
        seen[begin : begin + len(values)] = True
    assert seen.all()


PICTURES: dict[str, list[dict[str, Any]]] = {
    "PNG": [{}, {"compress_level": 0}, {"optimize": True}],
    "BMP": [{}],
    "TIFF": [{}, {"compression": "tiff_lzw"}, {"compression": "tiff_adobe_deflate"}],
    "WebP": [{"lossless": True}],
}


@pytest.mark.parametrize("format", PICTURES)
@pytest.mark.parametrize("seed", CASES)
def test_pictures_as_ffmpeg_reads_them(format: str, seed: int) -> None:
    draw, out = Random(f"{format} {seed}"), io.BytesIO()
    width, height = draw.randrange(1, 90), draw.randrange(1, 90)
    pixels = np.random.default_rng(seed).integers(0, 256, (height, width, 3), np.uint8)
    modes = ["RGB"] if format == "WebP" else ["RGB", "L", "P"]
    image = Image.fromarray(pixels).convert(draw.choice(modes))
    image.save(out, format, **draw.choice(PICTURES[format]))
    with av.open(io.BytesIO(out.getvalue()), "r", format=f"{format.lower()}_pipe") as container:
        (seen,) = (frame.to_ndarray(format="rgb24") for frame in container.decode(video=0))
    options = RowOptions(
        form="bytes", own=(PictureOptions(image=PixelOptions(width, height, "nhwc")),)
    )
    (run,) = runs_of(out.getvalue(), "x", options)
    assert isinstance(run.payload, BytesRows)
    assert bytes(run.payload.row(0)) == seen.tobytes()


def tar(draw: Random, members: dict[str, bytes]) -> bytes:
    out = io.BytesIO()
    format = draw.choice([tarfile.USTAR_FORMAT, tarfile.PAX_FORMAT, tarfile.GNU_FORMAT])
    with tarfile.open(fileobj=out, mode="w", format=format) as archive:
        for name, data in members.items():
            info = tarfile.TarInfo(name)
            info.size = len(data)
            archive.addfile(info, io.BytesIO(data))
    return draw.choice(PACKERS)(out.getvalue())


def zipped(draw: Random, members: dict[str, bytes]) -> bytes:
    out = io.BytesIO()
    methods = [zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED, zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA]
    with zipfile.ZipFile(out, "w", draw.choice(methods)) as archive:
        archive.comment = draw.randbytes(draw.choice([0, 5]))
        for name, data in members.items():
            with archive.open(name, "w", force_zip64=draw.choice([True, False])) as file:
                file.write(data)
    return out.getvalue()


@pytest.mark.parametrize("write", [tar, zipped])
@pytest.mark.parametrize("seed", CASES)
def test_archives_have_the_rows_of_their_members(write: Any, seed: int) -> None:
    draw = Random(seed)
    rows = [
        [float(draw.randrange(1000)), float(number)] for number in range(draw.randrange(1, 300))
    ]
    members, at = {}, 0
    while at < len(rows):
        some = rows[at : at + draw.randrange(1, 100)]
        name = "d\u00fcr/" * draw.randrange(20) + f"{at}"
        kind = draw.choice(["csv", "ndjson", "npy", "txt"])
        if kind == "csv":
            members[f"{name}.csv"] = b"".join(b"%d,%d\n" % (x, y) for x, y in some)
        elif kind == "ndjson":
            members[f"{name}.ndjson"] = "".join(f"{json.dumps(row)}\n" for row in some).encode()
        elif kind == "npy":
            file = io.BytesIO()
            np.save(file, np.array(some))
            members[f"{name}.npy"] = file.getvalue()
        else:
            members[f"{name}.txt"] = b"no rows"
            continue
        at += len(some)
    data = write(draw, members)
    for chunk_bytes in (1 << 20, draw.randrange(1, 2000)):
        found = runs_of(data, "x", RowOptions(own=(CsvOptions(header="no"),)), chunk_bytes)
        assert matrix(found) == rows
