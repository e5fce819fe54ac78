"""The row of `model.canary`."""

import numpy as np
import pytest

from consumers import config
from consumers.core.payload import JsonRows, Matrix
from consumers.errors import EXIT_USAGE, Fatal
from consumers.services.canary import canary_of


def test_the_canary_is_a_row_in_the_form_that_is_sent() -> None:
    matrix = canary_of(config.Model(request="float32", canary="[1.5, 2]"))
    assert isinstance(matrix, Matrix)
    np.testing.assert_array_equal(matrix.values, np.array([[1.5, 2]], "<f4"))
    rows = canary_of(config.Model(request="json", canary='{"a": 1}'))
    assert isinstance(rows, JsonRows)
    assert (rows.body, rows.rows) == (b'{"a":1}', 1)
    assert canary_of(config.Model()) is None


@pytest.mark.parametrize(
    ("request_form", "text"),
    [
        ("float32", "[]"),
        ("float32", "7"),
        ("float32", "[[1], [2]]"),
        ("float32", '["a"]'),
        ("float32", "[null]"),
        ("float32", "[1e39]"),
        ("float32", "[[1], 2]"),
        ("json", "[1"),
        ("instances", ""),
    ],
)
def test_a_canary_that_is_no_row_is_a_usage_error(request_form: str, text: str) -> None:
    settings = {"request": request_form, "canary": text}
    with pytest.raises(Fatal, match=r"model\.canary") as caught:
        canary_of(config.Model(**settings))  # type: ignore[arg-type]
    assert caught.value.exit_code == EXIT_USAGE
