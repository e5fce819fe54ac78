"""Objects that are larger than what a worker may hold, written to files piece by piece.

Rule: what is in them does not shrink, so that their size is what has to go through; each maker says
how many rows its object has.
"""

import io
import shutil
import subprocess
import sys
import tarfile
import zipfile
import zlib
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from PIL import Image

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

MB = 1_000_000
COLUMNS = 64
GROUP_ROWS = 50_000  # of 25 MB
# More than zstd looks back for repetitions, which is 2 MB at its first level.
PICTURES = 20


def parquet(path: Path, mb: int) -> int:
    """Random doubles."""
    random = np.random.default_rng(1)
    groups = max(1, mb * MB // (GROUP_ROWS * COLUMNS * 8))
    schema = pa.schema([(f"c{number}", pa.float64()) for number in range(COLUMNS)])
    with pq.ParquetWriter(path, schema, compression="snappy", use_dictionary=False) as writer:
        for _ in range(groups):
            values = random.standard_normal((COLUMNS, GROUP_ROWS))
            table = pa.table([pa.array(column) for column in values], schema=schema)
            writer.write_table(table, row_group_size=GROUP_ROWS)
    return groups * GROUP_ROWS


def tar_zst(path: Path, mb: int) -> int:
    pictures, rows = _pictures(), 0
    with zstd.open(path, "wb", level=1) as packed, tarfile.open(fileobj=packed, mode="w|") as tar:
        for name, data in _members(pictures, mb):
            info = tarfile.TarInfo(name)
            info.size = len(data)
            tar.addfile(info, io.BytesIO(data))
            rows += 1
    return rows


def zipped(path: Path, mb: int) -> int:
    pictures, rows = _pictures(), 0
    # Each is packed once: to pack noise takes longer than all that is done with it.
    packed = {picture: _deflated(picture) for picture in pictures}
    with path.open("wb") as file, zipfile.ZipFile(file, "w") as archive:
        for name, data in _members(pictures, mb):
            info = zipfile.ZipInfo(name)
            info.compress_type = zipfile.ZIP_DEFLATED
            info.header_offset = file.tell()
            info.CRC, info.file_size = zlib.crc32(data), len(data)
            info.compress_size = len(packed[data])
            file.write(info.FileHeader(zip64=False) + packed[data])
            archive.filelist.append(info)
            archive.start_dir = file.tell()  # of the table of contents
            rows += 1
    return rows


def _deflated(data: bytes) -> bytes:
    packer = zlib.compressobj(1, zlib.DEFLATED, -zlib.MAX_WBITS)
    return packer.compress(data) + packer.flush()


def video(path: Path, mb: int) -> int:
    """An hour for 2,048 MB asked for, its frames 25 a second; one a second is to be answered. The
    same minute again and again: no frame needs one of the minute before.
    """
    seconds = max(10, 3600 * mb // 2048)
    minute = path.with_suffix(".minute.mp4")
    source = ["-f", "lavfi", "-i", "testsrc=size=320x240:rate=25", "-t", "60"]
    _ffmpeg(*source, "-c:v", "libx264", "-preset", "ultrafast", "-g", "50", str(minute))
    _ffmpeg("-stream_loop", "-1", "-i", str(minute), "-t", str(seconds), "-c", "copy", str(path))
    minute.unlink()
    return seconds


def _ffmpeg(*arguments: str) -> None:
    subprocess.run(["ffmpeg", "-v", "error", *arguments], check=True)


def can_make(path: str) -> bool:
    return not path.endswith(".mp4") or shutil.which("ffmpeg") is not None


MAKERS = {"a.parquet": parquet, "a.tar.zst": tar_zst, "a.zip": zipped, "a.mp4": video}


def _pictures() -> list[bytes]:
    """Noise, of about 1 MB each."""
    random = np.random.default_rng(1)
    found = []
    for _ in range(PICTURES):
        out = io.BytesIO()
        pixels = random.integers(0, 256, (700, 1000, 3), np.uint8)
        Image.fromarray(pixels).save(out, "JPEG", quality=90)
        found.append(out.getvalue())
    return found


def _members(pictures: list[bytes], mb: int) -> Iterator[tuple[str, bytes]]:
    made = number = 0
    while made < mb * MB:
        data = pictures[number % len(pictures)]
        yield f"{number:06}.jpg", data
        made += len(data)
        number += 1
