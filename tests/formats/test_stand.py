"""Small objects are read in short turns, whatever is in them: between two, others go on.

Counted are the calls of a turn, of Python's functions and of the interpreter's. What one of them
does is linear (`tests/formats/test_work.py`, `tests/test_patterns.py`).
"""

from collections import deque
from collections.abc import Iterator
from contextlib import suppress
from typing import Final

import pytest

from penstock.errors import Poison
from penstock.formats.reading import TURN_BYTES, Turn, open_inline
from penstock.formats.registry import claim_of
from penstock.formats.runs import RowOptions
from penstock.formats.text.csv_dialect import CsvOptions
from tests.formats.test_work import HOSTILE, counted_calls

# The worst of the texts below, lines of five bytes that may be comments, takes 2.5 a byte, which is
# some 11 ms a turn; others take a quarter of it.
_CALLS_PER_BYTE: Final = 4
JSON = RowOptions(form="json")
COSTLY: dict[str, tuple[str, RowOptions, bytes, bytes, bytes]] = HOSTILE | {
    "quoted numbers": ("x.csv", RowOptions(), b"a,b\n", b'"1","2"\n', b""),
    "quoted texts": ("x.csv", JSON, b"a,b\n1,2\n", b'"","x"\n', b""),
    "rows of no cells": (
        "x.csv",
        RowOptions(form="json", own=(CsvOptions(header="no"),)),
        b"",
        b",\n",
        b"",
    ),
    "wide rows": (
        "x.csv",
        RowOptions(form="json", own=(CsvOptions(header="no"),)),
        b"",
        b"," * 2_000 + b"\n",
        b"",
    ),
    "bad rows": ("x.csv", RowOptions(), b"a,b\n", b"x,y\n", b""),
    "every second row is bad": ("x.csv", RowOptions(), b"a\n", b"1\nx\n", b""),
    "many columns by name": (
        "x.csv",
        RowOptions(columns=[f"c{number}" for number in range(1_500)]),
        b",".join(b"c%d" % number for number in range(1_500)) + b"\n",
        b",".join([b"1"] * 1_500) + b"\n",
        b"",
    ),
    "many columns kept": (
        "x.csv",
        RowOptions(keep=[f"c{number}" for number in range(500)]),
        b",".join(b"c%d" % number for number in range(501)) + b"\n",
        b",".join([b"1"] * 501) + b"\n",
        b"",
    ),
    "many members kept": (
        "x.ndjson",
        RowOptions(keep=[f"c{number}" for number in range(100)]),
        b"",
        b'{"a":1}\n',
        b"",
    ),
    "rows of one line": ("x.json", JSON, b"[1", b",1", b"]"),
    "numbers beyond a float": ("x.json", RowOptions(), b"[[1]", b",[1e999]", b"]"),
    "halves of surrogates": ("x.ndjson", JSON, b"", b'["\\ud800"]\n', b""),
}


def turns_of(options: RowOptions, key: str, data: bytes) -> Iterator[Turn]:
    """Of an object that is read here; none of one that a decoder reads."""
    claim = claim_of(key, None if options.format == "auto" else options.format)
    turns = open_inline(options, data, len(data), claim)
    turn = None
    while turns is not None and not (turn and turn.is_last):
        turn = next(turns)
        yield turn


def calls_by_turn(options: RowOptions, key: str, data: bytes) -> Iterator[int]:
    turns = turns_of(options, key, data)
    more: object = True
    while more:
        with counted_calls() as counted, suppress(Poison):
            more = next(turns, None)
        yield counted.calls


@pytest.mark.parametrize("name", COSTLY)
@pytest.mark.parametrize("nbytes", [TURN_BYTES, 4 * TURN_BYTES])
def test_no_turn_is_long(name: str, nbytes: int) -> None:
    key, options, begin, piece, end = COSTLY[name]
    data = begin + piece * ((nbytes - len(begin) - len(end)) // len(piece)) + end
    with suppress(Poison):  # what is loaded once is no work of a turn
        deque(turns_of(options, key, data), maxlen=0)
    assert max(calls_by_turn(options, key, data)) <= _CALLS_PER_BYTE * TURN_BYTES
