"""The row of `model.canary`."""

import numpy as np
import pytest

from penstock.asking.model_calls import canary_of
from penstock.core.rows.payload import Form, JsonRows, Matrix
from penstock.errors import EXIT_USAGE, Fatal


def test_the_canary_is_a_row_in_the_form_that_is_sent() -> None:
    matrix = canary_of("[1.5, 2]", "matrix")
    assert isinstance(matrix, Matrix)
    np.testing.assert_array_equal(matrix.values, np.array([[1.5, 2]], "<f4"))
    rows = canary_of('{"a": 1}', "json")
    assert isinstance(rows, JsonRows)
    assert (rows.body, rows.rows) == (b'{"a":1}', 1)
    assert canary_of(None, "json") is None


@pytest.mark.parametrize(
    ("form", "text"),
    [
        ("matrix", "[]"),
        ("matrix", "7"),
        ("matrix", "[[1], [2]]"),
        ("matrix", '["a"]'),
        ("matrix", "[null]"),
        ("matrix", "[1e39]"),
        ("matrix", "[[1], 2]"),
        ("json", "[1"),
        ("json", ""),
    ],
)
def test_a_canary_that_is_no_row_is_a_usage_error(form: Form, text: str) -> None:
    with pytest.raises(Fatal, match=r"model\.canary") as caught:
        canary_of(text, form)
    assert caught.value.exit_code == EXIT_USAGE
