"""A file that breaks off, wherever: the rows before, and an error; and the same rows however its
bytes came.

`FORMATS_CUTS` is at how many places each file is cut: some in CI, at each byte (0) by hand.
"""

import gzip
import io
import os
from collections.abc import Callable

import fastavro
import lz4.frame
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from backports import zstd

from penstock.core.rows.payload import Columns
from penstock.errors import Poison, Unforeseen
from penstock.formats.media.audio import AudioOptions
from penstock.formats.reading import decoded
from penstock.formats.registry import claim_of
from penstock.formats.runs import RowOptions, Run
from penstock.formats.text.csv_dialect import CsvOptions
from tests.formats.archives.test_zip import zip_of
from tests.formats.recordings import recording, tone, video
from tests.formats.support import Row, rows_of, tar_of

CUTS = int(os.environ.get("FORMATS_CUTS", "25"))
TABLE = pa.table({"a": range(300), "b": [float(n) / 8 for n in range(300)]})
CSV = b"".join(b"%d,%d\n" % (n, n * n) for n in range(300))
MEMBERS = {"a.csv": CSV, "b.ndjson": b"[1, 2]\n" * 30}


def parquet() -> bytes:
    out = io.BytesIO()
    pq.write_table(TABLE, out, row_group_size=100)
    return out.getvalue()


def arrow(new: Callable[..., pa.ipc.RecordBatchFileWriter]) -> bytes:
    out = io.BytesIO()
    with new(out, TABLE.schema) as writer:
        writer.write_table(TABLE, 100)
    return out.getvalue()


def avro() -> bytes:
    fields = [{"name": "a", "type": "long"}, {"name": "b", "type": "double"}]
    schema = {"type": "record", "name": "R", "fields": fields}
    out = io.BytesIO()
    fastavro.writer(out, schema, TABLE.to_pylist(), "deflate", sync_interval=200)
    return out.getvalue()


def npy() -> bytes:
    out = io.BytesIO()
    np.save(out, np.arange(600.0).reshape(300, 2))
    return out.getvalue()


FILES: dict[str, tuple[bytes, RowOptions]] = {
    "x.parquet": (parquet(), RowOptions()),
    "x.arrow": (arrow(pa.ipc.new_file), RowOptions()),
    "x.arrows": (arrow(pa.ipc.new_stream), RowOptions()),
    "x.avro": (avro(), RowOptions()),
    "x.npy": (npy(), RowOptions()),
    "x.zip": (zip_of(MEMBERS), RowOptions(own=(CsvOptions(header="no"),))),
    "x.tar": (tar_of(MEMBERS), RowOptions(own=(CsvOptions(header="no"),))),
    "x.tar.gz": (gzip.compress(tar_of(MEMBERS)), RowOptions(own=(CsvOptions(header="no"),))),
    "x.csv.zst": (zstd.compress(CSV), RowOptions(own=(CsvOptions(header="no"),))),
    "x.csv.lz4": (lz4.frame.compress(CSV), RowOptions(own=(CsvOptions(header="no"),))),
    "x.flac": (
        recording(tone(9_000), "FLAC", "PCM_16"),
        RowOptions(own=(AudioOptions(window_ms=100),)),
    ),
    "x.ogg": (
        recording(tone(9_000), "OGG", "VORBIS"),
        RowOptions(own=(AudioOptions(window_ms=100),)),
    ),
    "x.wav": (recording(tone(900)), RowOptions(own=(AudioOptions(window_ms=10),))),
    "x.ts": (video(10, "mpegts"), RowOptions(form="bytes")),
    "x.mp4": (video(10), RowOptions(form="bytes")),
}
# Of these a part may be a whole file: up to a batch, a block, a packet, or the mark of the end.
MAY_END = {"x.arrows", "x.avro", "x.ts", "x.tar"}


def read(data: bytes, key: str, options: RowOptions, chunk_bytes: int) -> tuple[list[Row], bool]:
    """And whether it ended well."""
    runs: list[Run] = []
    try:
        for some in decoded(options, data, chunk_bytes, claim_of(key)):
            runs += some
    except Unforeseen:
        raise
    except Poison:
        return rows_of(runs), False
    assert not any(isinstance(run.payload, Columns) for run in runs)
    return rows_of(runs), True


@pytest.mark.parametrize("key", FILES)
def test_what_breaks_off_has_the_rows_before_and_an_error(key: str) -> None:
    data, options = FILES[key]
    whole, is_good = read(data, key, options, len(data))
    assert is_good
    step = max(1, len(data) // CUTS) if CUTS else 1
    for stop in range(1, len(data), step):
        rows, is_good = read(data[:stop], key, options, len(data))
        assert rows == whole[: len(rows)], stop
        assert not is_good or key in MAY_END, stop


@pytest.mark.parametrize("key", FILES)
def test_rows_are_the_same_however_the_bytes_come(key: str) -> None:
    data, options = FILES[key]
    whole = read(data, key, options, len(data))
    for chunk_bytes in (1, 7, 511, 512, 4_097):
        if len(data) // chunk_bytes < 40_000:
            assert read(data, key, options, chunk_bytes) == whole
    for stop in (len(data) // 3, len(data) - 1):
        cut = read(data[:stop], key, options, stop)
        assert read(data[:stop], key, options, 511) == cut
