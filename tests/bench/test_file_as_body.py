"""`--body FILE`: the rows of the file, and the requests that are made of them."""

import io
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from PIL import Image

from penstock import config
from penstock.errors import EXIT_USAGE, Fatal
from penstock.tools.bench.object_bodies import read_body

CSV = b"1,2\n3,4\n5,6\n"


def settings(request: str, max_rows: int = 512, max_bytes: int = 4 << 20) -> config.Config:
    return config.Config(
        model=config.Model(request=request),
        window=config.Window(max_rows=max_rows, max_bytes=max_bytes),
    )


def file(folder: Path, name: str, data: bytes) -> Path:
    path = folder / name
    path.write_bytes(data)
    return path


def jpeg() -> bytes:
    out = io.BytesIO()
    Image.new("RGB", (40, 30), "red").save(out, "JPEG")
    return out.getvalue()


def test_a_picture_is_one_row_and_a_call_has_many(tmp_path: Path) -> None:
    data = jpeg()
    body = read_body(settings("bytes", max_rows=5), file(tmp_path, "a.jpg", data))
    assert (body.data, body.extension, body.rows) == (data, ".jpg", 1)
    row = len(data).to_bytes(4, "little") + data
    assert (body.small.data, body.small.rows) == (row, 1)
    assert (body.full.data, body.full.rows) == (row * 5, 5)
    assert body.full.headers == {"Content-Type": "application/x-bytes-tensor", "X-Rows": "5"}


def test_a_call_holds_no_more_bytes_than_the_window(tmp_path: Path) -> None:
    data = jpeg()
    body = read_body(settings("bytes", max_bytes=7 * len(data) // 2), file(tmp_path, "a.jpg", data))
    assert body.full.rows == 3


def test_raw_has_one_row_a_call(tmp_path: Path) -> None:
    data = jpeg()
    body = read_body(settings("raw"), file(tmp_path, "a.jpg", data))
    assert (body.full.data, body.full.rows) == (data, 1)
    assert body.full.headers == {"Content-Type": "image/jpeg"}


def test_rows_of_a_table_go_round_until_the_call_is_full(tmp_path: Path) -> None:
    body = read_body(settings("float32", max_rows=7), file(tmp_path, "a.csv", CSV))
    assert (body.rows, body.small.rows, body.full.rows) == (3, 3, 7)
    values = np.frombuffer(body.full.data, "<f4").reshape(7, 2)
    assert values.tolist() == [[1, 2], [3, 4], [5, 6], [1, 2], [3, 4], [5, 6], [1, 2]]


def test_a_file_of_a_format_that_is_read_by_ranges_can_be_the_body(tmp_path: Path) -> None:
    out = io.BytesIO()
    pq.write_table(pa.table({"a": [1.0, 2.0], "b": [3.0, 4.0]}), out)
    body = read_body(settings("float32"), file(tmp_path, "a.parquet", out.getvalue()))
    assert (body.rows, body.extension) == (2, ".parquet")


@pytest.mark.parametrize(
    ("request_form", "name", "data", "says"),
    [
        ("json", "a.jpg", jpeg(), "model.request = 'json'"),
        ("float32", "a.csv", b"1,2\n3,x\n", "bad row"),
        ("float32", "a.csv", b"", "no rows"),
    ],
)
def test_a_file_that_the_worker_would_refuse_is_refused_before_the_measurement(
    tmp_path: Path, request_form: str, name: str, data: bytes, says: str
) -> None:
    with pytest.raises(Fatal, match=says) as caught:
        read_body(settings(request_form), file(tmp_path, name, data))
    assert caught.value.exit_code == EXIT_USAGE
