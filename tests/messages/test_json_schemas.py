"""The JSON Schemas in the repository are those of the types, and real messages satisfy them."""

from pathlib import Path
from typing import Any

import orjson
import pytest
from jsonschema import Draft202012Validator

from penstock.messages.codec import decode, encode_reference
from penstock.messages.dead_letter import Unanswered, dead_letter
from penstock.messages.json_schemas import FOLDER, documents, text, write
from penstock.messages.prediction import Constants, ObjectId, RecordFrame, Source
from penstock.messages.reference import MAX_INTEGER, Reference, SchemaError


def validator(name: str) -> Any:
    document = orjson.loads((FOLDER / f"{name}.v1.schema.json").read_bytes())
    Draft202012Validator.check_schema(document)
    return Draft202012Validator(document)


@pytest.mark.parametrize("name", documents())
def test_the_file_equals_the_type(name: str) -> None:
    assert (FOLDER / name).read_bytes() == text(documents()[name]), (
        "run python -m penstock.messages.json_schemas"
    )


def test_the_generator_writes_every_file(tmp_path: Path) -> None:
    write(tmp_path)
    assert {path.name for path in tmp_path.iterdir()} == {
        path.name for path in FOLDER.glob("*.schema.json")
    }


REFERENCES: list[Any] = [
    {"bucket": "b", "key": "k"},
    {"url": "s3://b/k"},
    {"bucket": "b", "key": "k", "event_time": "2026-11-21", "rows": [[0, 5], [7, None]]},
    {"objects": [{"bucket": "b", "key": "k"}, {"url": "s3://b/k"}]},
    {"stream": "s", "inline": [[1, 2], {"a": 1}], "event_time": 7},
]
NO_REFERENCES: list[Any] = [
    {},
    [],
    {"bucket": "b"},
    {"bucket": "", "key": "k"},
    {"url": "http://b/k"},
    {"bucket": "b", "key": "k", "url": "s3://b/k"},
    {"objects": []},
    {"inline": 1},
    {"bucket": "b", "key": "k", "rows": [[1]]},
    {"bucket": "b", "key": "k", "rows": []},
    {"bucket": "b", "key": "k", "rows": [[-1, 3]]},
    {"bucket": "b", "key": "k", "rows": [[0, 0]]},
    {"bucket": "b", "key": "k", "rows": [[1 << 63, None]]},
    {"bucket": "b", "key": "k", "size": -1},
    {"bucket": "b", "key": "k", "size": 1 << 63},
    {"bucket": "b", "key": "k", "event_time": 1795208217412000},
    {"bucket": "b", "key": "k", "event_time": 1.5},
    {"bucket": "b", "key": "k", "attributes": [1]},
    {"inline": [1], "event_time": 1795208217412000},
    {"inline": [1], "bucket": "b", "key": "k"},
    {"objects": [{"bucket": "b", "key": "k"}], "inline": []},
]


@pytest.mark.parametrize("document", REFERENCES)
def test_what_the_codec_takes_is_valid(document: Any) -> None:
    decode(orjson.dumps(document))
    validator("reference").validate(document)


@pytest.mark.parametrize("document", NO_REFERENCES)
def test_what_the_codec_refuses_is_invalid(document: Any) -> None:
    with pytest.raises(SchemaError):
        decode(orjson.dumps(document))
    assert not validator("reference").is_valid(document)


def frames() -> list[RecordFrame]:
    most: dict[str, Any] = {
        "source": Source("refs", 0, 1, "uO1aXwY9RzqUP5RlAPIyJw"),
        "object_index": 0,
        "stream": "s",
        "object": ObjectId("b", "k", "v"),
        "event_time": 7,
        "attributes": {"a": 1},
        "model": "m",
        "model_version": "1.0",
    }
    least = most | dict.fromkeys(("object", "event_time", "attributes", "model_version"))
    least["source"] = Source("refs", 0, 1)
    return [RecordFrame(Constants(**most)), RecordFrame(Constants(**least))]


@pytest.mark.parametrize("frame", frames())
def test_every_record_of_a_frame_is_a_valid_prediction(frame: RecordFrame) -> None:
    records = [
        *frame.rows(0, [b"1", b'{"label":1}', b"null"], "m.csv"),
        frame.last_row(3, b"[1]", None, 4),
        *frame.rejected(0, 1, "bad_row", "no", None),
        *frame.rejected(3, 1, "bad_row", "no", "m.csv", 4),
        frame.marker(0, None),
        frame.marker(3, ("bad_format", "cut")),
    ]
    for record in records:
        validator("prediction").validate(orjson.loads(record))


LAST_ROW = orjson.loads(frames()[0].last_row(3, b"1", "m.csv", 4))
WRONG_FIELDS: list[dict[str, Any]] = [
    {"v": 0},
    {"id": 5},
    {"stream": None},
    {"source": {"topic": "refs", "partition": 0}},
    {"source": {"topic": "refs", "partition": 0, "offset": -1}},
    {"object": {"bucket": "b", "key": "k"}},
    {"row": -1},
    {"row": "3"},
    {"last": 1},
    {"rows": -1},
    {"member": 5},
    {"event_time": 1.5},
    {"error": {"code": "bad_row"}},
    {"attributes": []},
]


@pytest.mark.parametrize("wrong", WRONG_FIELDS, ids=str)
def test_a_prediction_with_a_wrong_field_is_invalid(wrong: dict[str, Any]) -> None:
    assert not validator("prediction").is_valid(LAST_ROW | wrong)


REQUIRED = ["v", "id", "stream", "source", "object", "row", "model", "prediction"]


@pytest.mark.parametrize("field", REQUIRED)
def test_a_prediction_without_a_field_is_invalid(field: str) -> None:
    left = {name: value for name, value in LAST_ROW.items() if name != field}
    assert not validator("prediction").is_valid(left)


@pytest.mark.parametrize("reference", [None, Reference(bucket="b", key="k", size=5)])
def test_every_letter_is_a_valid_dead_letter(reference: Reference | None) -> None:
    validator("dead_letter").validate(orjson.loads(letter(reference)))


def letter(reference: Reference | None) -> bytes:
    unanswered = Unanswered(
        code="bad_row",
        stage="expand",
        message="no",
        attempts=1,
        stream="s",
        source=Source("refs", 0, 1),
        object_index=0,
        reference=reference,
        version=None,
        member=None,
        rows=((3, 5), (7, None)),
        event_time=None,
        failed_at=1,
        model="m",
        value=b"x",
    )
    return dead_letter(unanswered)


@pytest.mark.parametrize(
    "wrong",
    [
        {"code": None},
        {"attempts": 0},
        {"rows": [[1]]},
        {"rows": 3},
        {"object": {}},
        {"failed_at": "now"},
        {"reference": {"bucket": "b"}},
        {"reference": {"bucket": "b", "key": ""}},
        {"reference": {"bucket": "b", "key": "k", "rows": []}},
        {"source": None},
    ],
    ids=str,
)
def test_a_letter_with_a_wrong_field_is_invalid(wrong: dict[str, Any]) -> None:
    sound = orjson.loads(letter(Reference(bucket="b", key="k")))
    assert validator("dead_letter").is_valid(sound)
    assert not validator("dead_letter").is_valid(sound | wrong)


@pytest.mark.parametrize(
    "reference",
    [
        Reference(bucket="b", key="k"),
        Reference(
            bucket="b", key="ü", event_time=-1, rows=((0, 1), (5, None)), attributes={"a": []}
        ),
        Reference(bucket="b", key="k", size=MAX_INTEGER, etag='"e"', version_id="v", stream=""),
    ],
)
def test_every_encoded_reference_is_valid(reference: Reference) -> None:
    validator("reference").validate(orjson.loads(encode_reference(reference)))
