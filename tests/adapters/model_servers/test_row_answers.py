"""How answers are cut into predictions, and what each refusal means."""

import json
import sys
from collections import Counter
from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.adapters.model_servers.row_answers import parse
from penstock.adapters.model_servers.torchserve import refusal
from penstock.errors import (
    Poison,
    Rejected,
)

# Text full of what separates elements, so that a careless cut falls into it.
TEXT = st.text(st.sampled_from('},{][":, \\\n\'a"é'), max_size=12)
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | TEXT,
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(TEXT.filter(lambda key: key != "error"), inner, max_size=3)
    ),
    max_leaves=8,
)
ENCODERS = [
    orjson.dumps,
    lambda document: json.dumps(document).encode(),
    lambda document: json.dumps(document, indent=2, ensure_ascii=False).encode(),
    lambda document: json.dumps(document, separators=(",", ": ")).encode(),
]


@given(
    values=st.lists(VALUES.filter(lambda value: value is not None), max_size=6),
    encode=st.sampled_from(ENCODERS),
    wrapped=st.booleans(),
)
def test_every_prediction_is_cut_whole_whatever_it_holds(
    values: list[Any], encode: Any, *, wrapped: bool
) -> None:
    answers = parse(encode({"predictions": values} if wrapped else values), len(values))
    assert [orjson.loads(text) for text in answers.values] == values
    assert answers.errors == {}


@given(st.lists(TEXT.map(lambda text: {"a": text}) | st.just({}), min_size=1, max_size=6))
def test_objects_of_compact_answers_are_cut_from_the_text_as_it_stands(values: list[Any]) -> None:
    raw = orjson.dumps(values)
    assert b"[" + b",".join(parse(raw, len(values)).values) + b"]" == raw


@pytest.mark.parametrize("again", [b"predictions", b"predict\\u0069ons"])
def test_predictions_that_stand_twice_are_json_and_the_last_count(again: bytes) -> None:
    answers = parse(b'{"predictions":[{"a":1}],"%b":[{"b":2}]}' % again, 1)
    assert [orjson.loads(text) for text in answers.values] == [{"b": 2}]


def test_other_members_beside_the_predictions_are_left_out() -> None:
    raw = b'{"predictions":[{"a":1},{"b":2}],"took_ms":3}'
    assert parse(raw, 2).values == [b'{"a":1}', b'{"b":2}']


def test_an_element_with_an_error_rejects_its_row_alone() -> None:
    raw = b'[{"a":1},{"error":"too cold"},{"error":{"code":7}},{"a":2}]'
    answers = parse(raw, 4)
    assert answers.values == [b'{"a":1}', b"null", b"null", b'{"a":2}']
    assert answers.errors == {1: "too cold", 2: '{"code":7}'}


@pytest.mark.parametrize("raw", [b"[]", b"[1]", b"[1,2,3]", b"{}", b'"text"', b'{"predictions":1}'])
def test_anything_but_one_element_for_each_row_is_a_mismatch(raw: bytes) -> None:
    with pytest.raises(Poison, match="2 rows") as caught:
        parse(raw, 2)
    assert caught.value.code == "model_mismatch"


ODD_NUMBERS = [b"18446744073709551617", b"4006566546179.24230", b"-0", b"1E5", b"0.1" + b"0" * 40]
ENVELOPES = [
    (b"[%b]", ""),
    (b"[ %b ]\n", ""),
    (b'{"predictions":[%b]}', ""),
    (b'{"took": 1.50, "predictions": [%b]}', ""),
    (b'{"model": "a", "out": [{"rows": [%b]}]}', "/out/0/rows"),
    (b'{"out":{"predictions":[%b]}}', "/out"),
    (b'{"cost": NaN, "rows": [%b]}', "/rows"),
]


@pytest.mark.parametrize(("envelope", "pointer"), ENVELOPES)
@pytest.mark.parametrize("inside", [b"%b", b'{"id": %b}', b'[{"n":%b}, "a , \\u00e9"]'])
def test_a_number_keeps_its_digits_whatever_blanks_or_envelope_are_around_it(
    envelope: bytes, pointer: str, inside: bytes
) -> None:
    raw = envelope % b",".join([inside % number for number in ODD_NUMBERS])
    answers = parse(raw, len(ODD_NUMBERS), pointer)
    assert answers.errors == {}
    for number, text in zip(ODD_NUMBERS, answers.values, strict=True):
        assert number in text
        assert json.loads(text) == json.loads(inside % number)
        assert b"\n" not in text


def test_numbers_beside_one_that_is_none_keep_their_digits() -> None:
    answers = parse(b"[%b, NaN]" % b", ".join(ODD_NUMBERS), len(ODD_NUMBERS) + 1)
    assert answers.values == [*ODD_NUMBERS, b"null"]
    assert list(answers.errors) == [len(ODD_NUMBERS)]


def test_blanks_between_tokens_are_left_out_and_those_in_texts_stay() -> None:
    raw = b'[\n {\r\n\t"a b" : [ 1 , 2 ] } , "c  d" ]'
    assert parse(raw, 2).values == [b'{"a b":[1,2]}', b'"c  d"']


@pytest.mark.parametrize("pointer", ["/absent", "/rows/0/x", "/rows/9", "/rows/x"])
@pytest.mark.parametrize("raw", [b'{"rows": [1]}', b'{"rows": [1], "x": NaN}'])
def test_an_answer_that_has_nothing_where_the_settings_say_is_rejected(
    raw: bytes, pointer: str
) -> None:
    with pytest.raises(Rejected, match="has no /"):
        parse(raw, 1, pointer)


@pytest.mark.parametrize("raw", [b"", b"[1", b"<html>", b"[" * 100_000])
def test_an_answer_that_is_no_json_is_rejected(raw: bytes) -> None:
    with pytest.raises(Rejected, match="JSON") as caught:
        parse(raw, 1)
    assert caught.value.code == "model_rejected"


@pytest.mark.parametrize("encode", [orjson.dumps, lambda values: json.dumps(values).encode()])
def test_a_number_that_is_none_rejects_its_row_alone(encode: Any) -> None:
    answers = parse(encode([1.5, float("nan"), 2.5]), 3)
    assert list(answers.errors) == [1]
    assert answers.values == [b"1.5", b"null", b"2.5"]


def test_an_integer_that_no_float64_holds_rejects_its_row_alone() -> None:
    answers = parse(b"[%b,2]" % (b"1" * 5_000), 2)
    assert list(answers.errors) == [0]
    assert answers.values[1] == b"2"


def test_nan_inside_a_prediction_is_told_from_its_neighbours() -> None:
    raw = b'[{"a": 1}, {"a": [NaN]}, {"a": -Infinity}, {"a": 1e999}, {"error": "cold"}, {"a": 2}]'
    answers = parse(raw, 6)
    assert list(answers.errors) == [1, 2, 3, 4]
    assert answers.errors[4] == "cold"
    assert [answers.values[row] for row in (0, 5)] == [b'{"a":1}', b'{"a":2}']


def test_numbers_beside_nan_are_read_without_a_function_of_ours_for_each() -> None:
    raw = b"[[NaN],[%b]]" % b",".join([b"0.25", b"3"] * 50_000)
    calls = Counter[str]()
    sys.setprofile(lambda frame, event, _: calls.update([event]))
    try:
        answers = parse(raw, 2)
    finally:
        sys.setprofile(None)
    assert list(answers.errors) == [0]
    assert answers.values[1] == raw[7:-1]
    assert calls["call"] < 100


def test_of_a_long_answer_with_nan_the_caller_finds_the_rows() -> None:
    row = b"[%b]" % b",".join([b"0.5"] * 1_000)
    with pytest.raises(Rejected, match="is not JSON"):
        parse(b"[%b,[NaN]]" % b",".join([row] * 200), 201)
    assert list(parse(b"[%b,[NaN]]" % b",".join([row] * 100), 101).errors) == [100]


@pytest.mark.parametrize(("word", "is_told"), [(b"NaN", True), (b"-Infinity", True), (b"x", False)])
def test_a_long_answer_of_one_row_tells_that_nan_is_in_it(word: bytes, is_told: bool) -> None:
    with pytest.raises(Rejected, match="is not JSON") as caught:
        parse(b"[[%b%b]]" % (b"0.5," * 140_000, word), 1)
    assert ("NaN or Infinity is in it" in str(caught.value)) == is_told


@pytest.mark.parametrize("depth", [256, 1_000, 1_023, 50_000])
@pytest.mark.parametrize(("opening", "closing"), [(b"[", b"]"), (b'{"a":', b"}")])
def test_an_answer_nested_too_deep_is_refused(depth: int, opening: bytes, closing: bytes) -> None:
    with pytest.raises(Rejected, match="answer"):
        parse(b"[%b1%b,1]" % (opening * depth, closing * depth), 2)


def test_a_lone_surrogate_in_an_error_harms_nobody() -> None:
    answers = parse(b'[{"error": "\\ud800\\u0007"}, {"a": NaN}]', 2)
    assert orjson.dumps(answers.errors[0])


@pytest.mark.parametrize(
    "raw",
    [
        b'{"message":%b}' % (b"[" * 900 + b"]" * 900),
        b'{"type":%b,"message":"x"}' % (b"[" * 900 + b"]" * 900),
        b'{"type":"%b","message":"%b"}' % (b"t" * 60_000, b"m" * 60_000),
        b"\x1b[31m\x00\xff" * 50,
        b"[" * 60_000,
    ],
)
def test_a_hostile_refusal_is_told_on_one_short_line(raw: bytes) -> None:
    message = str(refusal(400, {}, raw, "http://model", 1))
    assert len(message) < 700
    assert message.isprintable()


def test_a_request_that_was_too_large_is_told_with_its_size() -> None:
    assert "7000002 bytes" in str(refusal(413, {}, b"", "http://model", 7_000_002))


def test_a_long_refusal_is_shortened_for_the_reader() -> None:
    assert len(str(refusal(400, {}, b"x" * 100_000, "http://model", 1))) < 500
