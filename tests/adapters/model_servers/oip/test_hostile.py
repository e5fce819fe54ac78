"""A server of the Open Inference Protocol that answers anything: it ends as one of our errors, or
as an answer for each row.
"""

import json
import tracemalloc
from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock import config
from penstock.adapters.model_servers.http_calls import JSON_LENGTH, Reply
from penstock.adapters.model_servers.oip.outputs import answers, from_list, from_raw
from penstock.adapters.model_servers.oip.rest_calls import read_outputs, refusal
from penstock.adapters.model_servers.oip.signature import DTYPES, signature
from penstock.errors import Fatal, PenstockError, Poison
from penstock.ports import Answers

ROWS = 3
SCALARS = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5)
ANYTHING = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner),
    max_leaves=9,
)
OUTPUT = st.fixed_dictionaries(
    {
        "name": st.sampled_from(["y", "error", "\ud800", ""]) | ANYTHING,
        "datatype": st.sampled_from([*DTYPES, "BYTES", "BF16"]) | ANYTHING,
        "shape": st.lists(st.sampled_from([-1, 0, 1, 2, 3, 10**12]), max_size=4) | ANYTHING,
    },
    optional={
        "data": ANYTHING | st.lists(SCALARS, min_size=3, max_size=6),
        "parameters": st.fixed_dictionaries({"binary_data_size": st.integers(-9, 40)}) | ANYTHING,
    },
)


def taken(body: bytes, length: str | None) -> None:
    """What the adapter does with a body."""
    headers = {} if length is None else {JSON_LENGTH: length}
    try:
        found = answers(read_outputs(Reply(200, headers, body)), ROWS)
    except Poison:
        return
    assert len(found.values) == ROWS
    for value in found.values:
        orjson.loads(value)


@given(st.lists(OUTPUT, max_size=3), st.binary(max_size=50))
def test_outputs_of_any_kind_are_answers_or_an_error_of_ours(
    outputs: list[Any], tail: bytes
) -> None:
    head = json.dumps({"outputs": outputs}).encode()
    taken(head, None)
    taken(head + tail, str(len(head)))


@given(st.binary(max_size=80), st.none() | st.text(max_size=8) | st.integers().map(str))
def test_bytes_of_any_kind_are_an_error_of_ours(body: bytes, length: str | None) -> None:
    taken(body, length)


@pytest.mark.parametrize("depth", [200, 1_000, 100_000])
def test_an_answer_nested_too_deep_is_refused(depth: int) -> None:
    nested = b"[" * depth + b"]" * depth
    shape = b'{"outputs":[{"name":"y","datatype":"FP32","shape":[3],"data":%b}]}' % nested
    with pytest.raises(Poison):
        answers(read_outputs(Reply(200, {}, shape)), ROWS)


@given(ANYTHING, ANYTHING)
def test_a_description_of_any_kind_is_a_usage_error_at_worst(inputs: Any, limits: Any) -> None:
    for metadata in (
        {"inputs": inputs},
        {"inputs": [{"name": "x", "datatype": "FP32", "shape": inputs}]},
    ):
        try:
            signature(metadata, limits, config.Model())
        except Fatal:
            continue


@given(st.integers(100, 599), st.binary(max_size=60) | ANYTHING.map(json.dumps).map(str.encode))
def test_a_complaint_of_any_kind_is_told_on_one_short_line(status: int, body: bytes) -> None:
    error = refusal(Reply(status, {}, body), "http://model", 1)
    assert isinstance(error, PenstockError)
    assert len(str(error)) < 700
    assert str(error).isprintable()


def test_an_endless_shape_costs_no_memory() -> None:
    document = {"name": "y", "datatype": "FP32", "shape": [3, 10**12], "data": [1, 2, 3]}
    with pytest.raises(Poison):
        answers(read_outputs(Reply(200, {}, orjson.dumps({"outputs": [document]}))), ROWS)


def answered(shape: list[Any], name: str = "y", rows: int = ROWS, **more: Any) -> Answers:
    one = {"name": name, "datatype": "FP32", "shape": shape, "data": []} | more
    return answers(read_outputs(Reply(200, {}, orjson.dumps({"outputs": [one]}))), rows)


def test_what_has_no_numbers_is_not_large() -> None:
    assert answered([3, 0]).values == [b'{"y":[]}'] * 3
    assert answered([3, 2, 0, 4]).values == [b'{"y":[[],[]]}'] * 3
    assert answered([3, 0, 10**18, 10**18]).values == [b'{"y":[]}'] * 3
    assert answered([0, 10**9], rows=0).values == []
    with pytest.raises(Poison, match="lists"):
        answered([3, 10**9, 0])


def test_a_dimension_of_one_does_not_make_lists_without_end() -> None:
    """A list takes orjson more than a hundred bytes, and each byte here is in 28 of its own."""
    rows, ones = 1 << 11, [1] * 28
    assert len(answered([rows, *ones], rows=rows, data=[0] * rows).values) == rows
    outputs = [from_raw(f"{at}", "UINT8", [rows, 2, *ones], bytes(2 * rows)) for at in range(40)]
    assert len(answers(outputs[:1], rows).values) == rows
    with pytest.raises(Poison, match="lists"):
        answers(outputs, rows)


@pytest.mark.parametrize(
    ("outputs", "shape"), [(100, [512, 2048, 0]), (10_000, [512, 0]), (40_000, [512, 0])]
)
def test_outputs_without_numbers_are_bounded_together_before_one_is_made(
    outputs: int, shape: list[int]
) -> None:
    found = [from_list(f"{at:x}", "INT8", shape, []) for at in range(outputs)]
    assert len(answers(found[:1], 512).values) == 512
    tracemalloc.start()
    try:
        with pytest.raises(Poison, match=r"lists|names"):
            answers(found, 512)
        assert tracemalloc.get_traced_memory()[1] < 16 << 20
    finally:
        tracemalloc.stop()


def test_many_short_texts_take_no_more_than_their_bytes() -> None:
    rows = 10_000
    outputs = [from_raw("y", "BYTES", [rows], bytes(4 * rows))]
    tracemalloc.start()
    try:
        assert answers(outputs, rows).values == [b'{"y":""}'] * rows
        assert tracemalloc.get_traced_memory()[1] < 4 << 20
    finally:
        tracemalloc.stop()


def test_bytes_that_no_output_claims_are_a_mismatch() -> None:
    one = {"name": "y", "datatype": "UINT8", "shape": [ROWS]}
    head = orjson.dumps({"outputs": [one | {"parameters": {"binary_data_size": ROWS}}]})
    headers = {JSON_LENGTH: str(len(head))}
    assert len(read_outputs(Reply(200, headers, head + bytes(ROWS)))) == 1
    with pytest.raises(Poison, match="1 bytes are left over"):
        read_outputs(Reply(200, headers, head + bytes(ROWS + 1)))


def test_more_dimensions_than_arrays_have_are_refused_before_they_are_multiplied() -> None:
    with pytest.raises(Poison, match="100001 dimensions"):
        answered([3, *[1e308] * 100_000])


def test_a_name_that_each_row_repeats_may_not_be_long() -> None:
    assert len(answered([3], "y" * 1_000, data=[1, 2, 3]).values[0]) == 1_008
    with pytest.raises(Poison, match="in each row"):
        answered([1_000], "y" * 100_000, rows=1_000, data=[0] * 1_000)
