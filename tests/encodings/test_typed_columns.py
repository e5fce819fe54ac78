"""Typed columns of Parquet results: what fits is typed, what does not is kept as it is."""

import io
import json
from collections.abc import Sequence
from typing import Any

import orjson
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from penstock.core.rows.payload import Kept
from penstock.core.rows.rejections import Rejection
from penstock.encodings.base import AnsweredRows
from penstock.encodings.columns import GROUP_ROWS, ParquetRows
from penstock.encodings.typed_columns import MOST_FIELDS
from penstock.tools.verify.result_objects import rows_of

WHY = Rejection("model_rejected", "refused", "predict")


def written(
    answers: Sequence[Any],
    kept: Sequence[Any] | None = None,
    failed: Sequence[int] = (),
    step: int = 0,
) -> bytes:
    """The result of these answers, which come `step` rows at a time."""
    encoding, parts = ParquetRows("columns"), list[bytes]()
    texts = [
        answer if isinstance(answer, bytes) else json.dumps(answer, separators=(",", ":")).encode()
        for answer in answers
    ]
    step = step or max(1, len(texts))
    for at in range(0, len(texts), step):
        own = range(at, min(at + step, len(texts)))
        columns = None if kept is None else Kept.of([orjson.dumps(kept[n]) for n in own], None)
        errors = {n - at: WHY for n in own if n in failed}
        encoding.add(AnsweredRows(at, texts[at : own.stop], None, errors, columns))
        if encoding.is_due:
            parts.append(encoding.take())
    return b"".join([*parts, encoding.close()])


def typed(data: bytes) -> dict[str, Any]:
    """The types of the typed columns."""
    schema = pq.read_schema(io.BytesIO(data))
    plain = pq.read_schema(io.BytesIO(written([])))
    return {field.name: field.type for field in schema if field.name not in plain.names}


def column(data: bytes, name: str) -> list[Any]:
    values: list[Any] = pq.read_table(io.BytesIO(data)).column(name).to_pylist()
    return values


def read_back(data: bytes) -> list[Any]:
    """The answers as `penstock replay --diff` reads them."""
    rows = rows_of("s3://b/x.parquet", io.BytesIO(data), predictions=True)
    return [json.loads(row.prediction) for row in rows]


@pytest.mark.parametrize("depth", [1, 2, 300, 600, 900, 950, 975, 1_000, 2_000])
def test_lists_may_nest_as_deep_as_they_like(depth: int) -> None:
    deep = [b'{"a":%b,"b":1}' % (b"[" * depth + b"7.5" + b"]" * depth), b'{"a":[[1]],"b":2}']
    rows = rows_of("s3://b/x.parquet", io.BytesIO(written(deep)), predictions=True)
    assert [row.prediction for row in rows] == deep


def test_the_fields_of_flat_answers_and_kept_columns_are_typed() -> None:
    answers = [{"label": 1, "score": 0.5, "sure": True, "class": "cat", "probs": [0.5, 1]}] * 2
    data = written(answers, [{"order_id": "A", "n": 7}] * 2)
    assert typed(data) == {
        "prediction.label": pa.int64(),
        "prediction.score": pa.float64(),
        "prediction.sure": pa.bool_(),
        "prediction.class": pa.string(),
        "prediction.probs": pa.list_(pa.field("element", pa.float64())),
        "order_id": pa.string(),
        "n": pa.int64(),
    }
    assert column(data, "prediction.probs") == [[0.5, 1.0]] * 2
    assert column(data, "order_id") == ["A", "A"]
    assert column(data, "prediction") == column(data, "columns") == [None, None]


@pytest.mark.parametrize(
    "answers",
    [
        [{"label": 1, "score": 0.5}, {"label": 2, "score": "n/a"}, {"label": 3, "score": 1}],
        [{"a": 1}, {"a": None}, {}, {"a": 2, "b": 1}],
        [{"a": None}, {"a": None}],
        [{"boxes": [{"x": 1}]}, {"boxes": []}, {"boxes": None}],
        [{"big": 2**70, "x": 1.5}, {"big": 2**53 + 1, "x": 2**53 + 1}, {"big": 1, "x": 2}],
        [1, 2.5, None, "three", [1], {"four": 4}],
        [[0.5, 1], [2, 3], ["a"]],
        [{"a": True}, {"a": 1}, {"a": 0.0}],
        [{}, {}],
        [{"a.b": 1, "a": {"b": 1}, "": 2}],
        [{str(number): number for number in range(MOST_FIELDS + 1)}] * 2,
    ],
)
def test_no_answer_is_lost_or_changed(answers: list[Any]) -> None:
    assert read_back(written(answers)) == answers


def test_what_does_not_fit_keeps_its_text_and_the_others_their_types() -> None:
    data = written([{"score": 0.5}] * 3 + [{"score": "n/a"}, {"other": 1}])
    assert typed(data) == {"prediction.score": pa.float64(), "prediction.other": pa.int64()}
    assert column(data, "prediction") == [None, None, None, '{"score":"n/a"}', None]
    assert column(data, "prediction.score") == [0.5, 0.5, 0.5, None, None]


def test_texts_are_kept_digit_by_digit() -> None:
    data = written([b'{"a": [ {"x":1.10} ], "b":1}'])
    assert column(data, "prediction.a") == ['[ {"x":1.10} ]']


def test_an_answer_that_cannot_be_decoded_stays_text() -> None:
    deep = b"[" * 5_000 + b"]" * 5_000
    data = written([{"a": 1}, b'{"a":%b}' % deep, {"a": 2}])
    assert column(data, "prediction.a") == [1, None, 2]
    assert column(data, "prediction")[1].encode() == b'{"a":%b}' % deep


def test_failed_rows_have_no_answer_and_decide_nothing() -> None:
    data = written([None, {"a": 1}, None], failed=[0, 2])
    assert typed(data) == {"prediction.a": pa.int64()}
    assert column(data, "prediction.a") == [None, 1, None]
    assert [row.error for row in rows_of("x.parquet", io.BytesIO(data), predictions=True)] == [
        "model_rejected",
        None,
        "model_rejected",
    ]
    assert typed(written([None], failed=[0])) == {}


def test_the_first_group_decides_and_a_later_type_stays_text() -> None:
    rows = GROUP_ROWS + 2
    answers = [{"a": 1}] * GROUP_ROWS + [{"a": 0.5}, {"a": 2}]
    data = written(answers, step=2_500)
    assert typed(data) == {"prediction.a": pa.int64()}
    assert column(data, "prediction")[-2:] == ['{"a":0.5}', None]
    assert read_back(data) == answers
    assert written(answers, step=rows) == data


def test_names_that_clash_are_told_apart_as_databases_do() -> None:
    data = written([{"a": 1, "A": 2}], [{"Row": 1, "prediction": 2, "prediction.x": 3}])
    assert typed(data) == {
        "columns.Row": pa.int64(),
        "columns.prediction": pa.int64(),
        "prediction.x": pa.int64(),
    }
    assert read_back(data) == [{"a": 1, "A": 2}]
