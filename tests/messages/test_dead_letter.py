"""A dead letter says what failed, and its reference asks for exactly that again."""

from typing import Any

import orjson
import pytest

from penstock.messages.codec import References, decode, encode_reference
from penstock.messages.dead_letter import Unanswered, dead_letter, decode_dead_letter
from penstock.messages.prediction import ObjectId, Source
from penstock.messages.reference import Reference, SchemaError

REFERENCE = Reference(bucket="b", key="k", event_time=7, rows=((0, 100),), attributes={"a": 1})


def letter(**changes: Any) -> bytes:
    arguments: dict[str, Any] = {
        "code": "model_rejected",
        "stage": "predict",
        "message": "no",
        "attempts": 3,
        "stream": "s",
        "source": Source("refs", 0, 1042),
        "object_index": 0,
        "reference": REFERENCE,
        "version": '"e"',
        "member": None,
        "rows": ((17, 18),),
        "event_time": 7,
        "failed_at": 1795208217999,
        "model": "rows",
        "value": b"the original",
    }
    return dead_letter(Unanswered(**arguments | changes))


def test_a_letter_reads_as_in_the_contract() -> None:
    assert orjson.loads(letter()) == {
        "v": 1,
        "code": "model_rejected",
        "stage": "predict",
        "message": "no",
        "attempts": 3,
        "stream": "s",
        "source": {"topic": "refs", "partition": 0, "offset": 1042},
        "object_index": 0,
        "object": {"bucket": "b", "key": "k", "version": '"e"'},
        "member": None,
        "rows": [[17, 18]],
        "event_time": 7,
        "failed_at": 1795208217999,
        "model": "rows",
        "reference": {
            "bucket": "b",
            "key": "k",
            "stream": "s",
            "event_time": 7,
            "rows": [[17, 18]],
            "attributes": {"a": 1},
        },
    }


@pytest.mark.parametrize("rows", [((17, 18),), ((3, 5), (9, None)), None])
def test_its_reference_is_publishable_and_asks_for_what_failed(rows: Any) -> None:
    decoded = decode_dead_letter(letter(rows=rows))
    assert decoded.reference is not None
    (again,) = decode_references(encode_reference(decoded.reference))
    assert again.rows == decoded.rows == (rows or REFERENCE.rows)
    assert (again.key, again.stream, again.event_time) == ("k", "s", 7)


def decode_references(value: bytes) -> tuple[Reference, ...]:
    message = decode(value)
    assert isinstance(message, References)
    return message.items


def test_a_value_that_is_no_reference_keeps_its_bytes() -> None:
    decoded = decode_dead_letter(letter(reference=None, version=None, rows=None, value=b"hello"))
    assert (decoded.reference, decoded.object, decoded.value_b64) == (None, None, "aGVsbG8=")


def test_a_tombstone_has_no_bytes_to_keep() -> None:
    value = letter(reference=None, version=None, rows=None, value=None)
    assert orjson.loads(value)["value_b64"] is None


def test_an_unknown_version_is_null() -> None:
    assert decode_dead_letter(letter(version=None)).object == ObjectId("b", "k", None)


@pytest.mark.parametrize("value", [b"", b"{}", b"[]", b"\xff", b"[" * 100_000])
def test_what_is_no_letter_is_refused(value: bytes) -> None:
    with pytest.raises(SchemaError, match="not a dead letter"):
        decode_dead_letter(value)
