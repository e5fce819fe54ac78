"""Rows that a Python program holds in memory, and names that are no text."""

import asyncio
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

from penstock import PenstockError, predict_sync
from penstock.library.python_api import Predictions
from tests.support.json_server import json_server

FRAME = pd.DataFrame({"id": ["a", "b", "c"], "x": [1.0, 3.0, 5.0], "y": [2.0, 4.0, 6.0]})
NUMBERS = FRAME[["x", "y"]]


class Older(pd.DataFrame):  # type: ignore[misc]
    """As pandas was before 2.2."""

    @property
    def __arrow_c_stream__(self) -> Any:
        raise AttributeError


def mean(rows: list[Any]) -> list[dict[str, float]]:
    """A row of a table is an object, with the names of its columns."""
    values = [list(row.values()) if isinstance(row, dict) else row for row in rows]
    return [{"mean": sum(row) / len(row)} for row in values]


async def answered(*given: Any, **more: Any) -> Predictions:
    async with json_server("/mean", mean) as server:
        return await asyncio.to_thread(
            predict_sync, *given, model=f"{server.url}/mean", protocol="http", **more
        )


@pytest.mark.parametrize(
    "rows",
    [
        NUMBERS,
        Older(NUMBERS),
        pl.from_pandas(NUMBERS),
        pa.Table.from_pandas(NUMBERS),
        pa.Table.from_pandas(NUMBERS).to_batches()[0],
        NUMBERS.to_numpy(),
        NUMBERS.to_numpy().tolist(),
        list(NUMBERS.to_numpy()),
        [tuple(row) for row in NUMBERS.to_numpy().tolist()],
    ],
    ids=[
        "pandas",
        "older",
        "polars",
        "table",
        "batch",
        "array",
        "lists",
        "arrays",
        "tuples",
    ],
)
async def test_rows_are_answered_in_their_order(rows: Any) -> None:
    answers = await answered(rows)
    assert [result.prediction["mean"] for result in answers] == [1.5, 3.5, 5.5]
    assert [result.row for result in answers] == [0, 1, 2]


async def test_an_index_with_a_name_is_no_column() -> None:
    """It would come last, whatever its place was before."""
    answers = await answered(FRAME.set_index("id"), FRAME[["x", "y"]].set_index("x"))
    assert [result.prediction["mean"] for result in answers] == [1.5, 3.5, 5.5, 2.0, 4.0, 6.0]


async def test_a_filtered_frame_has_no_column_more(tmp_path: Path) -> None:
    """Its labels are no numbers for the model."""
    answers = await answered(NUMBERS[NUMBERS["x"] > 1])
    assert [result.prediction["mean"] for result in answers] == [3.5, 5.5]


async def test_columns_of_a_frame_can_be_kept_and_settings_of_files_do_not_matter() -> None:
    config = {"rows": {"columns": ["x", "y"], "format": "csv"}}
    answers = await answered(FRAME, keep=["id"], config=config)
    assert list(answers.to_pandas()["columns.id"]) == ["a", "b", "c"]


async def test_names_rows_and_paths_come_in_the_order_in_which_they_are_given(
    tmp_path: Path,
) -> None:
    first, second = tmp_path / "1.csv", tmp_path / "2.csv"
    first.write_text("1,2\n")
    second.write_text("7,8\n")
    answers = await answered(first, [[3.0, 4.0]], [second, str(first)], np.array([[5.0, 6.0]]))
    assert [result.prediction["mean"] for result in answers] == [1.5, 3.5, 7.5, 1.5, 5.5]
    keys = [result.object.key for result in answers if result.object]
    assert keys == [str(first), "memory:rows-0.json", str(second), str(first), "memory:rows-1.npy"]


@pytest.mark.parametrize("series", [pd.Series, pl.Series, tuple, iter])
async def test_a_column_of_names_is_names(series: Any, tmp_path: Path) -> None:
    (tmp_path / "1.csv").write_text("1,2\n")
    answers = await answered(series([str(tmp_path / "1.csv")]))
    assert [result.prediction["mean"] for result in answers] == [1.5]


async def test_a_row_that_cannot_be_costs_itself_only() -> None:
    answers = await answered([[1.0, 2.0], [float("nan"), 1.0], [5.0, 6.0]])
    assert [result.error is None for result in answers] == [True, False, True]


@pytest.mark.parametrize(
    ("given", "words"),
    [
        (7, "a value of the type int is neither"),
        (b"1,2", "a value of the type bytes is neither"),
        ([1.0, object()], "a list with a value of the type object is neither"),
        (["a.csv", 3], "a list with a value of the type str is neither"),
        (np.array([object()]), "no numbers"),
        ([[1.0, object()]], "has no form in JSON"),
    ],
)
def test_what_is_neither_a_name_nor_rows_is_said(given: Any, words: str) -> None:
    with pytest.raises(PenstockError, match=words) as caught:
        predict_sync(given, model="http://127.0.0.1:9/x", protocol="http")
    assert caught.value.__context__ is None


async def test_the_results_say_how_many_there_are_and_what_failed_first() -> None:
    answers = await answered([[1.0, 2.0], [float("nan"), 1.0]])
    text = repr(answers)
    assert text.startswith("<2 results, 1 error (the first: memory:rows-0.json row 1: ")
    assert text.endswith(" s>")
    assert len(text) < 300
