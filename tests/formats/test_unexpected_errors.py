"""A decoder that falls over an object: the object is answered, and the worker goes on."""

from collections.abc import Iterator

import pytest

from penstock.errors import ErrorCode, Transient, Unforeseen
from penstock.formats.parser_chain import PLAIN_STEP_BYTES, Parser
from penstock.formats.reading import ObjectEnd, turns
from penstock.formats.runs import RowOptions, Run
from penstock.formats.source import AtHand, ObjectSource, Wanted

ROW = Run(1, None, "bad")
ERRORS: list[Exception] = [
    TypeError("no"), ValueError("no"), OverflowError("no"), LookupError("no"),
    ArithmeticError("no"), RecursionError("no"), AssertionError("no"),
    MemoryError(), RuntimeError("no"),
]  # fmt: skip
every_error = pytest.mark.parametrize("error", ERRORS, ids=lambda error: type(error).__name__)


class FallingParser(Parser):
    step_bytes = PLAIN_STEP_BYTES
    damage: ErrorCode = "bad_format"

    def __init__(self, error: Exception) -> None:
        self._error = error

    def feed(self, data: bytes) -> Iterator[Run]:
        yield ROW
        raise self._error

    def close(self) -> Iterator[Run]:
        return iter(())


@every_error
def test_an_object_that_a_parser_falls_over_is_bad_format_behind_its_rows(error: Exception) -> None:
    found = turns(FallingParser(error), [b"x"], RowOptions())
    assert next(found).runs == [ROW]
    with pytest.raises(Unforeseen, match=type(error).__name__) as caught:
        next(found)
    assert caught.value.code == "bad_format"


@every_error
def test_an_object_that_a_reader_of_parts_falls_over_is_bad_format(error: Exception) -> None:
    def read(source: ObjectSource, options: RowOptions, wanted: Wanted) -> Iterator[Run]:
        yield ROW
        raise error

    runs = ObjectEnd(RowOptions()).cut(read(AtHand(b"x"), RowOptions(), lambda start, stop: True))
    assert next(runs) == ROW
    with pytest.raises(Unforeseen, match=type(error).__name__):
        next(runs)


def test_what_is_raised_on_purpose_stays_what_it_is() -> None:
    with pytest.raises(Transient, match="later"):
        list(turns(FallingParser(Transient("later")), [b"x"], RowOptions()))
