"""The frame's records are what the contract shows, field by field and in its order."""

from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.messages.prediction import (
    MAX_MESSAGE_CHARS,
    Constants,
    Failure,
    ObjectId,
    RecordFrame,
    Source,
    decode_prediction,
)
from penstock.messages.reference import SchemaError

ARGUMENTS: dict[str, Any] = {
    "source": Source("refs", 0, 1042),
    "object_index": 0,
    "stream": "site-1/cam-3",
    "object": ObjectId("sensors", "site-1/cam-3/000042.csv.gz", '"5d41"'),
    "event_time": 1795208217412,
    "attributes": None,
    "model": "rows",
    "model_version": "1.0",
}


def frame(**changes: Any) -> RecordFrame:
    return RecordFrame(Constants(**ARGUMENTS | changes))


def test_the_last_row_reads_as_in_the_contract() -> None:
    value = frame().last_row(17, b'{"label":1,"score":0.37}', "a/b.csv", 18)
    document = orjson.loads(value)
    assert document == {
        "v": 1,
        "id": "refs/0/1042/0/17",
        "stream": "site-1/cam-3",
        "source": {"topic": "refs", "partition": 0, "offset": 1042},
        "object": {
            "bucket": "sensors",
            "key": "site-1/cam-3/000042.csv.gz",
            "version": '"5d41"',
        },
        "member": "a/b.csv",
        "row": 17,
        "last": True,
        "rows": 18,
        "event_time": 1795208217412,
        "model": "rows",
        "model_version": "1.0",
        "prediction": {"label": 1, "score": 0.37},
    }
    assert [*document][-1] == "prediction"


def test_rows_count_on_from_the_first_and_keep_answers_byte_for_byte() -> None:
    answers = [b"1.50", b'{"a": [1, 2]}', b"null"]
    records = frame().rows(9_999, answers, None)
    assert [decode_prediction(record).row for record in records] == [9_999, 10_000, 10_001]
    assert [decode_prediction(record).id for record in records][2] == "refs/0/1042/0/10001"
    for record, answer in zip(records, answers, strict=True):
        assert record.endswith(b'"prediction":' + answer + b"}")
        assert b'"last"' not in record
        assert b'"rows":' not in record


def test_a_row_is_written_alike_in_bulk_and_alone() -> None:
    encode = frame(attributes={"line": "A"})
    (in_bulk,) = encode.rows(3, [b"7"], "m.csv")
    alone = encode.last_row(3, b"7", "m.csv", 4)
    assert alone.replace(b',"last":true,"rows":4', b"") == in_bulk


def test_what_is_absent_is_left_out() -> None:
    (record,) = frame(event_time=None, model_version=None).rows(0, [b"1"], None)
    assert not {
        "member",
        "last",
        "rows",
        "event_time",
        "attributes",
        "model_version",
        "error",
    } & set(orjson.loads(record))


def test_a_member_applies_to_its_own_rows_only() -> None:
    encode = frame()
    members = [
        decode_prediction(encode.rows(row, [b"1"], member)[0]).member
        for row, member in enumerate(["a", "a", "b", None, "b"])
    ]
    assert members == ["a", "a", "b", None, "b"]


def test_a_rejected_row_has_null_and_the_error() -> None:
    one, end = (
        decode_prediction(frame().rejected(5, 1, "bad_row", "no number", None, rows)[0])
        for rows in (None, 6)
    )
    assert (one.prediction, one.error) == (None, Failure("bad_row", "no number"))
    assert (one.last, one.rows) == (False, None)
    assert (end.row, end.last, end.rows) == (5, True, 6)


def test_a_marker_has_no_row_and_ends_the_object() -> None:
    empty = decode_prediction(frame().marker(0, None))
    assert (empty.id, empty.row, empty.last, empty.rows) == ("refs/0/1042/0/-", None, True, 0)
    assert (empty.prediction, empty.error) == (None, None)
    failed = decode_prediction(frame().marker(3, ("bad_format", "cut")))
    assert (failed.rows, failed.error) == (3, Failure("bad_format", "cut"))


def test_without_an_object_it_is_null() -> None:
    value = frame(object=None).marker(0, ("bad_reference", "no"))
    assert orjson.loads(value)["object"] is None


def test_an_unknown_version_is_null() -> None:
    unknown = ObjectId("sensors", "a.csv", None)
    record = decode_prediction(frame(object=unknown).marker(0, ("not_found", "no")))
    assert record.object == unknown


def test_messages_are_cut_and_always_encode() -> None:
    error = decode_prediction(frame().marker(0, ("bad_format", "\ud800" + "x" * 9_999))).error
    assert error is not None
    assert len(error.message) == MAX_MESSAGE_CHARS
    assert error.message.startswith("?x")


@given(
    texts=st.lists(st.text(st.characters(exclude_categories=["Cs"])), min_size=4, max_size=4),
    member=st.none() | st.text(max_size=9),
    attributes=st.dictionaries(st.text(max_size=5), st.text() | st.integers(), min_size=1),
    row=st.integers(0, 1 << 40),
)
def test_any_names_survive(
    texts: list[str], member: str | None, attributes: dict[str, Any], row: int
) -> None:
    stream, bucket, key, model = texts
    about = ObjectId(bucket, key, '"5d41"')
    encode = frame(stream=stream, object=about, model=model, attributes=attributes)
    (value,) = encode.rows(row, [b'{"%d": "%b"}'], member)
    record = decode_prediction(value)
    assert (record.stream, record.model, record.row) == (stream, model, row)
    assert record.object == about
    assert (record.member, record.attributes) == (member, attributes)
    assert record.prediction == {"%d": "%b"}


AWKWARD = st.text(st.sampled_from('%s"\\{}\n\0ü日😀\ud800\udcff/ab'), max_size=9)
FIELDS = {
    "v", "id", "stream", "source", "object", "row", "last", "rows",
    "event_time", "model", "model_version", "prediction",
}  # fmt: skip


@given(stream=AWKWARD, key=AWKWARD, message=AWKWARD, member=st.none() | AWKWARD)
def test_every_record_is_json_with_the_contract_s_fields(
    stream: str, key: str, message: str, member: str | None
) -> None:
    encode = frame(stream=stream, object=ObjectId("sensors", key, None))
    of_row = {"member"} if member is not None else set()
    expected = {
        encode.rows(1, [b"1"], member)[0]: FIELDS - {"last", "rows"} | of_row,
        encode.last_row(1, b"1", member, 2): FIELDS | of_row,
        encode.rejected(1, 1, "bad_row", message, member)[0]: FIELDS - {"last", "rows"}
        | of_row
        | {"error"},
        encode.rejected(1, 1, "bad_row", message, member, 2)[0]: FIELDS | of_row | {"error"},
        encode.marker(0, None): FIELDS,
        encode.marker(0, ("bad_format", message)): FIELDS | {"error"},
    }
    for record, fields in expected.items():
        document = orjson.loads(record)
        assert document.keys() == fields
        assert document["stream"] == stream.encode(errors="replace").decode()
        assert document["object"]["key"] == key.encode(errors="replace").decode()


@pytest.mark.parametrize("value", [b"", b"{}", b"[]", b"\xff", b"[" * 100_000])
def test_what_is_no_prediction_is_refused(value: bytes) -> None:
    with pytest.raises(SchemaError, match="not a prediction"):
        decode_prediction(value)
