"""What a caller is told of the results of one call."""

import logging

import pytest

from penstock.errors import Fatal
from penstock.library.python_api import PredictSummary
from penstock.messages.prediction import Failure
from tests.library.test_predict import record


def lacking(name: str) -> object:
    error = Failure(
        "bad_format", f'file:///d/a.csv: no column "{name}" in the CSV: its header has a, b'
    )
    return record(row=None, prediction=None, last=True, error=error)


def told(*results: object, keep: tuple[str, ...] = ("idd",)) -> PredictSummary:
    summary = PredictSummary(keep)
    for result in results:
        summary.add(result)  # type: ignore[arg-type]
    summary.end()
    return summary


def test_errors_are_told_once_at_the_end(caplog: pytest.LogCaptureFixture) -> None:
    bad = record(row=7, prediction=None, error=Failure("bad_row", "no number"))
    text = "3 results, 2 errors (the first: s row 7: bad_row: no number)"
    assert str(told(record(), bad, bad)) == text
    assert [(each.levelno, each.getMessage()) for each in caplog.records] == [
        (logging.WARNING, text)
    ]
    caplog.clear()
    told(record(), record())
    assert not caplog.records


def test_one_is_no_plural_and_what_a_record_lacks_is_not_shown() -> None:
    bad = record(row=7, prediction=None, error=Failure("bad_row", "no number"))
    assert str(told(bad)).startswith("1 result, 1 error (")
    assert "columns" not in repr(bad)
    assert "no number" in repr(bad)


@pytest.mark.parametrize("objects", [1, 2, 3])
def test_a_kept_column_that_no_object_has_ends_the_call(objects: int) -> None:
    text = 'keep: file:///d/a.csv: no column "idd" in the CSV: its header has a, b'
    with pytest.raises(Fatal, match=text):
        told(*[lacking("idd")] * objects)


def test_it_ends_at_once_if_the_first_objects_have_no_such_column() -> None:
    summary, third = PredictSummary(["idd"]), lacking("idd")
    for _ in range(2):
        summary.add(lacking("idd"))  # type: ignore[arg-type]
    with pytest.raises(Fatal):
        summary.add(third)  # type: ignore[arg-type]


def test_a_column_that_some_objects_have_is_an_error_of_the_others_alone() -> None:
    told(record(last=True), *[lacking("idd")] * 5)
    told(lacking("idd"), record(last=True), *[lacking("idd")] * 5)
    told(*[lacking("other")] * 5)
