"""What a format of a user's package may give, and what is refused before it reaches a model."""

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from penstock.core.rows.payload import BytesRows, JsonRows, Matrix
from penstock.errors import ErrorCode, Fatal, Poison
from penstock.formats.format import Format, makes
from penstock.formats.parser_chain import Parser
from penstock.formats.plugins_checked import checked, guarded
from penstock.formats.runs import RowOptions, Run
from penstock.formats.source import AtHand

ROWS = np.array([[1, 2, 3], [4, 5, 6]], "<f4")


@pytest.mark.parametrize(
    "values",
    [
        ROWS,
        np.asfortranarray(ROWS),
        np.array([[1, 4], [2, 5], [3, 6]], "<f4").T,
        np.repeat(ROWS, 2, axis=0)[::2],
        np.repeat(ROWS, 2, axis=1)[:, ::2],
        ROWS.astype(">f4"),
    ],
)
def test_order_in_memory_is_put_right(values: Any) -> None:
    found = checked(Run(2, Matrix(values)), "matrix").payload
    assert isinstance(found, Matrix)
    assert bytes(found.values.data) == ROWS.tobytes()


@pytest.mark.parametrize(
    ("flaw", "says"),
    [
        ({"looks": None}, "its looks is None, and must be called"),
        ({"makes": ("matrix",)}, r"its makes is \('matrix',\)"),
        ({"is_plain": True}, "its is_plain is True"),
        ({"open": b"csv"}, "its open is b'csv'"),
        ({"open": None}, "neither open nor ranged"),
        ({"extensions": ("abc",)}, "its extension 'abc' is not like"),
        ({"extensions": (".ABC",)}, "its extension '.ABC'"),
    ],
)
def test_a_format_that_could_only_fail_at_each_object_is_refused_at_the_start(
    flaw: dict[str, Any], says: str
) -> None:
    parts: dict[str, Any] = {"name": "mine", "makes": makes("matrix"), "open": lambda _: None}
    guarded(Format(**parts))
    with pytest.raises(Fatal, match=f"the format 'mine' cannot be used: .*{says}"):
        guarded(Format(**parts | flaw))


def test_what_is_right_is_handed_on_as_it_is() -> None:
    run = Run(2, Matrix(ROWS))
    assert checked(run, "matrix") is run
    assert checked(run, "columns") is run
    refused = Run(3, None, "why")
    assert checked(refused, "matrix") is refused
    unread = Run(3, None)
    assert checked(unread, "matrix") is unread


@pytest.mark.parametrize(
    ("given", "says"),
    [
        (Run(2, Matrix(ROWS.astype("<f8"))), r'float64; give float32, by astype\("<f4"\)'),
        (Run(2, Matrix(ROWS.astype("<i4"))), "int32"),
        (Run(3, Matrix(ROWS[0])), r"shape \[3\]"),
        (Run(2, Matrix(ROWS[:, :0])), r"shape \[2, 0\]"),
        (Run(2, Matrix(ROWS[None])), r"shape \[1, 2, 3\]"),
        (Run(2, Matrix(ROWS.tolist())), "shape"),
        (Run(1, Matrix(ROWS)), "2 rows in a Run of 1"),
        (Run(5, Matrix(ROWS)), "2 rows in a Run of 5"),
        (Run(0, Matrix(ROWS[:0])), "0 rows"),
        (Run(-3, None, "why"), "-3 rows"),
        (Run(1, None, 5), "the error 5"),  # type: ignore[arg-type]
        (Run(1, JsonRows.of([b"1"])), "JsonRows for a request that takes matrix"),
        (Run(1, BytesRows.of([b"1"])), "BytesRows"),
        (Run(1, ROWS), "ndarray"),  # type: ignore[arg-type]
        ("hello", "str, no Run"),
        (None, "NoneType, no Run"),
    ],
)
def test_what_would_be_other_rows_is_refused_with_what_to_give(given: Any, says: str) -> None:
    with pytest.raises(Poison, match=says) as caught:
        checked(given, "matrix")
    assert caught.value.code == "bad_format"


def test_rows_that_end_elsewhere_than_their_bytes_are_refused() -> None:
    with pytest.raises(Poison, match="rows that end at 3 in 5 bytes"):
        checked(Run(1, JsonRows(b"[1,2]", np.array([3]))), "json")


class Wide(Parser):
    """A parser of a package that gives numbers of twice the width."""

    step_bytes = 100
    damage: ErrorCode = "bad_format"

    def feed(self, data: bytes) -> Iterator[Run]:
        yield Run(len(data), Matrix(np.zeros((len(data), 1), "<f8")))

    def close(self) -> Iterator[Run]:
        return self.feed(b"x")


def test_all_that_a_guarded_format_gives_is_looked_at() -> None:
    wide = guarded(
        Format(
            "wide",
            makes("matrix"),
            open=lambda _options: Wide(),
            ranged=lambda source, _options, _wanted: Wide().feed(source.read(0, 1)),
        )
    )
    options = RowOptions()
    assert wide.open is not None
    assert wide.ranged is not None
    parser = wide.open(options)
    assert parser is not None
    for runs in (
        parser.feed(b"x"),
        parser.whole(b"x"),
        parser.close(),
        wide.ranged(AtHand(b"x", 1), options, lambda _start, _stop: True),
    ):
        with pytest.raises(Poison, match="float64"):
            list(runs)
