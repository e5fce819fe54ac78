"""Rows as tensors and outputs as predictions: what fits, what is refused, and for which row."""

from typing import Any

import numpy as np
import orjson
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock import config
from penstock.adapters.model_servers.oip.inputs import fill
from penstock.adapters.model_servers.oip.outputs import OutputTensor, answers, from_list, from_raw
from penstock.adapters.model_servers.oip.signature import (
    DTYPES,
    Signature,
    Tensor,
    fit_for_json,
    signature,
    written,
)
from penstock.adapters.model_servers.row_answers import spread
from penstock.core.rows.payload import BytesRows, Columns, JsonRows, Matrix
from penstock.errors import Fatal, Poison, Rejected
from tests.support.oip_models import binary


def wants(*tensors: Tensor) -> Signature:
    return Signature(tensors)


def matrix(*rows: list[float]) -> Matrix:
    return Matrix(np.array(rows, np.float32))


@pytest.mark.parametrize("datatype", [name for name in DTYPES if name != "BOOL"])
def test_numbers_become_what_the_model_declares(datatype: str) -> None:
    filled = fill(wants(Tensor("x", datatype, (2,))), [matrix([1, 2]), matrix([3, 4], [5, 6])])
    [column] = filled.columns
    expected = np.array([[1, 2], [3, 4], [5, 6]], DTYPES[datatype])
    assert bytes(column.raw()) == expected.tobytes()
    assert (column.shape, filled.refused) == ((3, 2), {})


@pytest.mark.parametrize(
    ("datatype", "value"),
    [
        ("UINT8", 256),
        ("UINT8", -1),
        ("INT64", 0.5),
        ("INT64", 1e30),
        ("INT32", float("nan")),
        ("UINT64", float("inf")),
        ("FP16", 1e6),
        ("BOOL", 2),
    ],
)
@pytest.mark.parametrize("is_json", [False, True])
def test_a_number_that_the_datatype_does_not_have_refuses_its_row(
    datatype: str, value: float, *, is_json: bool
) -> None:
    rows = [[1.0, 0.0], [0.0, value], [1.0, 1.0]]
    if is_json and not np.isfinite(value):
        return
    payload = JsonRows.of([orjson.dumps(row) for row in rows]) if is_json else matrix(*rows)
    filled = fill(wants(Tensor("x", datatype, (2,))), [payload])
    assert list(filled.refused) == [1]
    assert f"does not fit {datatype}" in filled.refused[1]
    assert bytes(filled.columns[0].raw()) == np.array([[1, 0], [1, 1]], DTYPES[datatype]).tobytes()


def test_whole_numbers_keep_their_digits_whatever_else_is_in_the_batch() -> None:
    large = 9_007_199_254_740_993
    payload = JsonRows.of([b"[%d]" % large, b"[0.5]"])
    filled = fill(wants(Tensor("x", "INT64", (1,))), [payload])
    assert list(filled.refused) == [1]
    values: Any = filled.columns[0].values
    assert values.tolist() == [[large]]


@pytest.mark.parametrize(
    ("shape", "numbers", "expected"),
    [((16,), 16, (16,)), ((-1,), 5, (5,)), ((-1, 4), 12, (3, 4)), ((2, 3), 6, (2, 3))],
)
def test_a_dimension_that_may_vary_takes_what_there_is(
    shape: tuple[int, ...], numbers: int, expected: tuple[int, ...]
) -> None:
    filled = fill(wants(Tensor("x", "FP32", shape)), [Matrix(np.ones((2, numbers), np.float32))])
    assert filled.columns[0].shape == (2, *expected)


@pytest.mark.parametrize(("shape", "numbers"), [((12,), 16), ((-1, 4), 6), ((-1, -1), 4)])
def test_rows_that_fit_no_shape_are_refused_together(shape: tuple[int, ...], numbers: int) -> None:
    with pytest.raises(Rejected, match=f"the rows have {numbers} numbers"):
        fill(wants(Tensor("x", "FP32", shape)), [Matrix(np.ones((2, numbers), np.float32))])


@pytest.mark.parametrize(
    ("element", "why"),
    [
        (b"[1]", "has 1 numbers"),
        (b'["a","b"]', "is not what the model wants"),
        (b"null", "is not what the model wants"),
        (b"[[1],[2,3]]", "is not what the model wants"),
        (b'{"y":[1,2]}', "the row has no x"),
    ],
)
def test_a_json_row_that_does_not_fit_is_refused_alone(element: bytes, why: str) -> None:
    payload = JsonRows.of([b"[1,2]", element, b'{"x":[3,4]}'])
    filled = fill(wants(Tensor("x", "FP32", (2,))), [payload])
    assert list(filled.refused) == [1]
    assert why in filled.refused[1]
    assert bytes(filled.columns[0].raw()) == np.array([1, 2, 3, 4], "<f4").tobytes()


def test_json_rows_of_different_shapes_are_taken_apart_before_they_are_sent() -> None:
    with pytest.raises(Poison) as caught:
        fill(wants(Tensor("x", "FP32", (-1,))), [JsonRows.of([b"[1]", b"[1,2]"])])
    assert caught.value.code == "too_large"


def test_what_json_cannot_carry_is_left_out_for_servers_that_take_nothing_else() -> None:
    numbers = fill(
        wants(Tensor("x", "FP32", (2,))), [matrix([1, 2], [3, float("nan")], [float("inf"), 0])]
    )
    assert list(fit_for_json(numbers).refused) == [1, 2]
    assert fit_for_json(numbers).sent == 1


ROW_VALUES = st.floats(allow_nan=False, allow_infinity=False, width=32)


@given(st.lists(st.tuples(ROW_VALUES, ROW_VALUES), min_size=1, max_size=20), st.booleans())
def test_predictions_are_the_rows_slices_of_the_outputs(
    rows: list[tuple[float, float]], as_list: bool
) -> None:
    values = np.array(rows, np.float32)
    labels = np.arange(len(rows), dtype=np.int64)
    if as_list:
        outputs = [
            from_list("pair", "FP32", values.shape, values.tolist()),
            from_list("label", "INT64", [len(rows), 1], labels.tolist()),
        ]
    else:
        outputs = [
            from_raw("pair", "FP32", values.shape, values.tobytes()),
            from_raw("label", "INT64", [len(rows), 1], labels.tobytes()),
        ]
    documents = [orjson.loads(value) for value in answers(outputs, len(rows)).values]
    assert documents == [
        {"pair": [pytest.approx(a, rel=1e-6), pytest.approx(b, rel=1e-6)], "label": index}
        for index, (a, b) in enumerate(rows)
    ]


@given(st.lists(st.text(), min_size=1, max_size=20))
def test_texts_come_out_as_they_are(texts: list[str]) -> None:
    raw = binary(np.array([text.encode() for text in texts] + [b""], object)[:-1])
    found = answers([from_raw("t", "BYTES", [len(texts)], raw)], len(texts))
    assert [orjson.loads(value) for value in found.values] == [{"t": text} for text in texts]


@pytest.mark.parametrize("shape", [(2, 2, 2), (2, 1, 4), (2, 8), (2, 0), (2, 2, 0)])
def test_an_output_of_any_shape_is_cut_by_row(shape: tuple[int, ...]) -> None:
    values = np.arange(np.prod(shape), dtype=np.int32).reshape(shape)
    found = answers([from_raw("x", "INT32", shape, values.tobytes())], 2)
    assert [orjson.loads(value)["x"] for value in found.values] == values.tolist()


def test_a_text_in_the_output_error_rejects_its_row_alone() -> None:
    outputs = [
        from_list("y", "FP32", [3], [1, 2, 3]),
        from_list("error", "BYTES", [3, 1], ["", "too\ncold", ""]),
    ]
    assert answers(outputs, 3)[:2] == ([b'{"y":1.0}', b"null", b'{"y":3.0}'], {1: "too cold"})


@pytest.mark.parametrize("nothing", [None, float("nan"), float("inf")])
def test_a_number_that_is_none_rejects_its_row_alone(nothing: float | None) -> None:
    found = answers([from_list("y", "FP64", [2, 2], [[1, 2], [nothing, 3]])], 2)
    assert found.values == [b'{"y":[1.0,2.0]}', b"null"]
    assert list(found.errors) == [1]


@pytest.mark.parametrize(
    "output",
    [
        OutputTensor("y", (2,), np.ones(2)),
        OutputTensor("y", (3, 2), np.ones(3)),
        OutputTensor("y", (), np.ones(1)),
        OutputTensor("y", (4,), np.ones(4)),
    ],
)
def test_anything_but_one_slice_for_each_row_is_a_mismatch(output: OutputTensor) -> None:
    with pytest.raises(Poison) as caught:
        answers([output], 3)
    assert caught.value.code == "model_mismatch"


def test_an_answer_without_outputs_is_a_mismatch() -> None:
    with pytest.raises(Poison, match="no outputs"):
        answers([], 1)


@pytest.mark.parametrize(
    ("datatype", "raw"), [("BYTES", b"\x05\0\0\0ab"), ("BYTES", b"\x01"), ("FP32", b"abc")]
)
def test_a_binary_tensor_that_is_cut_is_a_mismatch(datatype: str, raw: bytes) -> None:
    with pytest.raises(Poison) as caught:
        from_raw("y", datatype, [1], raw)
    assert caught.value.code == "model_mismatch"


@pytest.mark.parametrize(
    ("datatype", "shape", "data"),
    [
        ("FP32", [2, 3], [[1, 2], [3, 4], [5, 6]]),
        ("FP32", [3], [[1, 2, 3]]),
        ("FP32", [2], [[1], 2]),
        ("FP32", [2], ["1", "2"]),
        ("FP32", [2], [True, 2]),
        ("INT64", [2], [1.7, 2]),
        ("INT64", [2], [1.0, 2]),
        ("INT64", [2], [True, 2]),
        ("INT64", [2], [1, None]),
        ("UINT8", [1], [300]),
        ("UINT8", [1], [-1]),
        ("BOOL", [1], ["false"]),
        ("BOOL", [2], [True, 1]),
        ("BYTES", [2], ["a", None]),
        ("BYTES", [1], [7]),
        ("BYTES", [2], [["a", "b"]]),
        ("BYTES", [1], "a"),
        ("FP32", [1], {"0": 1}),
        ("BF16", [1], [1]),
    ],
)
def test_an_output_that_contradicts_itself_is_a_mismatch(
    datatype: str, shape: list[int], data: Any
) -> None:
    with pytest.raises(Poison, match="output y") as caught:
        from_list("y", datatype, shape, data)
    assert caught.value.code == "model_mismatch"


def test_a_byte_that_is_neither_true_nor_false_is_a_mismatch() -> None:
    with pytest.raises(Poison, match="not a BOOL"):
        from_raw("y", "BOOL", [2], b"\x02\x00")


@pytest.mark.parametrize("data", [[1, 2, 3, 4], [[1, 2], [3, 4]]])
def test_values_may_be_flat_or_nested_as_the_shape_is(data: Any) -> None:
    found = answers([from_list("y", "INT64", [2, 2], data)], 2)
    assert found.values == [b'{"y":[1,2]}', b'{"y":[3,4]}']


def test_rows_that_were_not_sent_keep_their_places() -> None:
    answered = spread(answers([from_list("y", "INT8", [2], [7, 8])], 2), 4, {0: "no", 2: "never"})
    assert answered[:2] == ([b"null", b'{"y":7}', b"null", b'{"y":8}'], {0: "no", 2: "never"})


def described(*inputs: tuple[str, str, list[int]]) -> dict[str, Any]:
    return {
        "inputs": [dict(zip(("name", "datatype", "shape"), one, strict=True)) for one in inputs]
    }


def test_a_server_tells_names_types_shapes_and_limits() -> None:
    metadata = described(("a", "FP32", [-1, 3, -1]), ("b", "BYTES", [-1]))
    known = signature(metadata, {"max_batch_size": 64}, config.Model())
    assert known.inputs == (Tensor("a", "FP32", (3, -1)), Tensor("b", "BYTES", ()))
    assert known.most_rows == 64
    assert str(known) == "a: FP32 [-1, 3, -1], b: BYTES [-1]"


def test_a_first_dimension_of_one_is_one_row_a_request() -> None:
    assert signature(described(("a", "FP32", [1, 3])), {}, config.Model()).most_rows == 1


@pytest.mark.parametrize(
    "metadata",
    [{}, described(("a", "FP32", [8, 3])), described(("a", "BF16", [-1])), {"inputs": [7]}],
)
def test_a_description_that_cannot_be_served_is_a_usage_error(metadata: dict[str, Any]) -> None:
    with pytest.raises(Fatal, match=r"model\.inputs|not supported"):
        signature(metadata, {}, config.Model())


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("x:FP32:16", Tensor("x", "FP32", (16,))),
        ("image:0:UINT8:224x224x3", Tensor("image:0", "UINT8", (224, 224, 3))),
        ("text:BYTES", Tensor("text", "BYTES", ())),
        ("x:FP32:-1x4", Tensor("x", "FP32", (-1, 4))),
    ],
)
def test_an_input_can_be_written(text: str, expected: Tensor) -> None:
    assert written(text) == expected


@pytest.mark.parametrize("text", ["x", "x:fp32", "x:FP32:", "x:FP32:4x", ""])
def test_a_written_input_that_is_none_is_told_with_examples(text: str) -> None:
    with pytest.raises(Fatal, match="x:FP32:16"):
        written(text)


def test_opaque_rows_are_texts_as_they_are() -> None:
    rows = [b"\xff\xd8", b"", b"\0" * 5]
    filled = fill(
        wants(Tensor("image", "BYTES", (1,))), [BytesRows.of(rows[:1]), BytesRows.of(rows[1:])]
    )
    assert bytes(filled.columns[0].raw()) == bytes(BytesRows.of(rows).body)
    assert filled.columns[0].shape == (3, 1)
    assert list(fit_for_json(filled).refused) == [0]


def arrow(**columns: Any) -> Columns:
    return Columns(pa.record_batch(columns), "a schema")


def test_typed_columns_are_inputs_by_name() -> None:
    wanted = wants(Tensor("age", "INT32", (1,)), Tensor("name", "BYTES", ()))
    payloads = [
        arrow(name=["a", None], age=[1, 2], other=[0, 0]),
        arrow(name=["c"], age=pa.array([None], pa.int64()), other=[0]),
    ]
    filled = fill(wanted, payloads)
    assert sorted(filled.refused) == [1, 2]
    assert bytes(filled.columns[0].raw()) == np.array([1], "<i4").tobytes()
    assert bytes(filled.columns[1].raw()) == b"\1\0\0\0a"


def test_typed_columns_of_numbers_fill_one_input_and_keep_their_digits() -> None:
    large = 9_007_199_254_740_993
    filled = fill(wants(Tensor("x", "INT64", (2,))), [arrow(a=[large, 1], b=[2, 3])])
    values: Any = filled.columns[0].values
    assert values.tolist() == [[large, 2], [1, 3]]


@pytest.mark.parametrize("shape", [(3,), (-1,)])
def test_a_column_of_lists_fills_one_input_together_with_the_others(shape: tuple[int, ...]) -> None:
    rows = arrow(a=[[1.0, 2.0], [4.0, 5.0]], b=[3.0, 6.0])
    filled = fill(wants(Tensor("x", "FP32", shape)), [rows])
    values: Any = filled.columns[0].values
    assert values.tolist() == [[1, 2, 3], [4, 5, 6]]


@pytest.mark.parametrize("shape", [(1,), (2, -1)])
def test_a_column_of_lists_that_does_not_fit_is_refused(shape: tuple[int, ...]) -> None:
    rows = arrow(a=[[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]])
    with pytest.raises(Rejected, match="the rows have 1 columns with 3 numbers"):
        fill(wants(Tensor("x", "FP32", shape)), [rows])


def test_columns_that_are_not_there_are_named() -> None:
    wanted = wants(Tensor("age", "INT32", ()), Tensor("size", "FP32", ()))
    with pytest.raises(Rejected, match="no size but age, weight"):
        fill(wanted, [arrow(age=[1], weight=[2.0])])
