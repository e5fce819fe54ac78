"""What each request looks like on the wire, and which answer a request of one row takes."""

import base64
import struct
from dataclasses import dataclass

import numpy as np
import orjson
import pyarrow as pa
import pytest

from penstock.adapters.model_servers import request_forms
from penstock.adapters.model_servers.row_answers import parse_single
from penstock.commands.predict import REQUEST_HELP
from penstock.core.rows.payload import BytesRows, Columns, JsonRows, Matrix
from penstock.errors import EXIT_USAGE, Fatal, PenstockError, Poison
from penstock.packages import plugins


def test_bytes_are_lengths_and_rows_of_all_payloads_in_order() -> None:
    rows = [b"frame one", b"", b"frame three"]
    body = request_forms.find("bytes").encode([BytesRows.of(rows[:2]), BytesRows.of(rows[2:])])
    assert body.data == b"".join(struct.pack("<I", len(row)) + row for row in rows)
    assert body.headers == {"Content-Type": "application/x-bytes-tensor", "X-Rows": "3"}


def test_base64_is_an_element_for_each_row_as_tf_serving_takes_them() -> None:
    rows = [b"\xff\xd8\xff frame", b"", bytes(range(256))]
    body = request_forms.find("b64").encode(
        [BytesRows.of([b"x", *rows[:2]]).cut(1, 3), BytesRows.of(rows[2:])]
    )
    instances = orjson.loads(body.data)["instances"]
    assert [base64.b64decode(each.pop("b64"), validate=True) for each in instances] == rows
    assert instances == [{}, {}, {}]
    assert body.headers == {"Content-Type": "application/json"}


@pytest.mark.parametrize(
    ("row", "kind"),
    [
        (b"\xff\xd8\xff\xe0...", "image/jpeg"),
        (b"\x89PNG\r\n\x1a\n...", "image/png"),
        (b"RIFF1234WEBPVP8 ", "image/webp"),
        (b"\0\0\0\x18ftypheic\0\0\0\0mif1heic", "image/heic"),
        (b"\0\0\0\x18ftypavif\0\0\0\0mif1avif", "image/avif"),
        (b"\0\0\0\x18ftypisom\0\0\0\0isommp42", "application/octet-stream"),
        (b"RIFF1234WAVEfmt ", "audio/wav"),
        (b"anything", "application/octet-stream"),
        (b"", "application/octet-stream"),
    ],
)
def test_raw_is_the_row_itself_under_its_own_type(row: bytes, kind: str) -> None:
    body = request_forms.find("raw").encode([BytesRows.of([b"before", row]).cut(1, 2)])
    assert (body.data, body.headers) == (row, {"Content-Type": kind})


def test_arrow_is_one_stream_of_a_batch_with_columns_as_they_came() -> None:
    batch = pa.record_batch({"id": [1, 2, 3], "name": ["a", None, "c"]})
    payload = Columns(batch, str(batch.schema))
    body = request_forms.find("arrow").encode([payload.cut(0, 1), payload.cut(1, 3)])
    table = pa.ipc.open_stream(body.data).read_all()
    assert table.to_pylist() == batch.to_pylist()
    assert table.schema == batch.schema
    assert body.headers["X-Rows"] == "3"


def test_arrow_takes_numbers_without_names_too() -> None:
    body = request_forms.find("arrow").encode([Matrix(np.array([[1, 2], [3, 4]], "<f4"))])
    table = pa.ipc.open_stream(body.data).read_all()
    assert table.to_pylist() == [{"0": 1, "1": 2}, {"0": 3, "1": 4}]


@pytest.mark.parametrize(
    "name", ["json", "instances", "ndjson", "float32", "bytes", "b64", "raw", "arrow"]
)
def test_every_request_can_be_empty_to_ask_for_health(name: str) -> None:
    body = request_forms.find(name).encode(())
    assert body.headers["Content-Type"]
    if name == "arrow":
        assert pa.ipc.open_stream(body.data).read_all().num_rows == 0


def test_an_unknown_request_names_the_known_ones() -> None:
    with pytest.raises(Fatal, match="choose one of") as caught:
        request_forms.find("xml")
    assert all(name in str(caught.value) for name in request_forms.known())
    assert caught.value.exit_code == EXIT_USAGE


def test_json_rows_are_spliced() -> None:
    payloads = [JsonRows.of([b"[1]", b"{}"]), JsonRows.of([b"2"])]
    assert orjson.loads(request_forms.find("instances").encode(payloads).data) == {
        "instances": [[1], {}, 2]
    }


def test_lines_of_json_are_the_rows_as_they_came() -> None:
    rows = [b"18446744073709551617", b'{"a": 1, "a": 0.1000}', b'"x, y"', b"[[1],\n [2]]"]
    payloads = [JsonRows.of(rows[:3]), JsonRows.of([b"0", rows[3]]).cut(1, 2)]
    body = request_forms.find("ndjson").encode(payloads).data
    assert body.split(b"\n") == [*rows[:3], b"[[1],  [2]]"]


@pytest.mark.parametrize(
    ("answer", "value"),
    [
        (b'{"cat": 0.9, "dog": 0.1}', {"cat": 0.9, "dog": 0.1}),
        (b'[{"label": 1}]', {"label": 1}),
        (b'{"predictions": [{"label": 1}]}', {"label": 1}),
        (b"[0.5, 0.25]", [0.5, 0.25]),
        (b"[]", []),
        (b'"cat"', "cat"),
        (b"7", 7),
        (b'{\n  "cat": 0.5\n}', {"cat": 0.5}),
    ],
)
def test_the_answer_to_one_row_may_come_bare(answer: bytes, value: object) -> None:
    answers = parse_single(answer, 1)
    assert [orjson.loads(text) for text in answers.values] == [value]
    assert not answers.errors


def test_an_error_and_null_reject_the_row() -> None:
    assert parse_single(b'{"error": "no face"}', 1).errors == {0: "no face"}
    assert 0 in parse_single(b"null", 1).errors
    assert 0 in parse_single(b'{"score": NaN}', 1).errors


@pytest.mark.parametrize("answer", [b"", b"<html>", b"[1", b"cat"])
def test_what_is_no_json_refuses_the_row(answer: bytes) -> None:
    with pytest.raises(PenstockError):
        parse_single(answer, 1)


def test_the_help_of_predict_names_every_request() -> None:
    assert set(request_forms.known()) <= set(REQUEST_HELP.replace(",", "").split())


def asked(made: object, monkeypatch: pytest.MonkeyPatch) -> request_forms.Body:
    """What the adapters get of a user's request that makes this."""
    theirs = request_forms.RequestForm("theirs", "json", lambda _: made)  # type: ignore[arg-type, return-value]
    monkeypatch.setattr("importlib.metadata.entry_points", lambda group: [Entry(theirs)])
    request_forms.known.cache_clear()
    plugins.cache_clear()
    try:
        return request_forms.find("theirs").encode([JsonRows.of([b"1"])])
    finally:
        request_forms.known.cache_clear()
        plugins.cache_clear()


@dataclass
class Entry:
    loaded: object
    name: str = "theirs"
    value: str = "theirs:FORM"

    def load(self) -> object:
        return self.loaded


def test_a_request_of_a_package_is_sent_as_it_was_made(monkeypatch: pytest.MonkeyPatch) -> None:
    body = request_forms.Body(b"[1]", {"Content-Type": "application/x-theirs; a=1"})
    assert asked(body, monkeypatch) == body


@pytest.mark.parametrize(
    ("made", "says"),
    [
        (None, "NoneType"),
        (b"[1]", "bytes; it must be a Body"),
        (request_forms.Body("[1]", {}), "str; it must be a Body"),  # type: ignore[arg-type]
        (request_forms.Body(b"[1]", {"X-A": "1\r\nX-B: 2"}), "cannot be sent"),
        (request_forms.Body(b"[1]", {"X A": "1"}), "cannot be sent"),
        (request_forms.Body(b"[1]", {"Content-Length": "3"}), "cannot be sent"),
    ],
)
def test_what_a_request_of_a_package_cannot_mean_is_a_mismatch(
    made: object, says: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(Poison, match=f"'theirs' gave .*{says}") as caught:
        asked(made, monkeypatch)
    assert caught.value.code == "model_mismatch"
