"""What every `Model` adapter promises; the model behind it is the example of rows of 16 numbers.

Rule: a subclass gives the fixture `model`, an adapter that sends what `form` says, and is
parametrized by the forms that the adapter has. A model that takes one row a request is asked for
each row by itself.
"""

from collections.abc import Sequence

import numpy as np
import orjson
import pytest

from penstock.core.rows.payload import BytesRows, JsonRows, Matrix, Payload
from penstock.ports import Answers, Model
from tests.support.reference_model import Rows, numpy_answers, random_rows


def payload(rows: Rows, form: str) -> Payload:
    if form == "float32":
        return Matrix(rows)
    if form == "raw":
        return BytesRows.of([orjson.dumps(row) for row in rows.tolist()])
    return JsonRows.of([orjson.dumps(row) for row in rows.tolist()])


async def ask(model: Model, payloads: Sequence[Payload]) -> Answers:
    if model.most_rows != 1:
        return await model.predict(payloads)
    values: list[bytes] = []
    errors: dict[int, str] = {}
    for one in (payload.cut(row, row + 1) for payload in payloads for row in range(payload.rows)):
        answers = await model.predict([one])
        errors |= {len(values) + row: error for row, error in answers.errors.items()}
        values += answers.values
    return Answers(values, errors)


def expect(answers: Answers, rows: Rows) -> None:
    assert len(answers.values) == len(rows)
    for value, expected in zip(answers.values, numpy_answers(rows), strict=True):
        answer = orjson.loads(value)
        assert answer["label"] == expected["label"]
        assert answer["score"] == pytest.approx(expected["score"], abs=1e-5)


class ModelContract:
    @pytest.mark.parametrize("count", [1, 2, 512])
    async def test_each_row_gets_its_own_answer_in_order(
        self, model: Model, form: str, count: int
    ) -> None:
        rows = random_rows(count)
        answers = await ask(model, [payload(rows, form)])
        expect(answers, rows)
        assert answers.errors == {}

    async def test_payloads_are_joined_in_order(self, model: Model, form: str) -> None:
        rows = random_rows(60)
        whole = payload(rows, form)
        pieces: Sequence[Payload] = [whole.cut(0, 7), whole.cut(7, 8), whole.cut(8, 60)]
        expect(await ask(model, pieces), rows)

    async def test_a_row_the_model_rejects_is_an_error_among_answers(
        self, model: Model, form: str
    ) -> None:
        rows = random_rows(5)
        if form == "float32":
            rows[3, 4] = np.nan
            bad = payload(rows, form)
        else:
            elements = [orjson.dumps(row) for row in rows.tolist()]
            elements[3] = b'"no row"'
            bad = BytesRows.of(elements) if form == "raw" else JsonRows.of(elements)
        answers = await ask(model, [bad])
        assert list(answers.errors) == [3]
        assert answers.errors[3]
        assert answers.values[3] == b"null"
        kept = [0, 1, 2, 4]
        expect(Answers([answers.values[row] for row in kept], {}), rows[kept])

    async def test_a_model_that_is_there_is_ready(self, model: Model) -> None:
        assert await model.ready()

    async def test_closing_twice_does_no_harm(self, model: Model) -> None:
        await model.ready()
        await model.aclose()
        await model.aclose()
