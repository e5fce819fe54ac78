"""Small objects are read in short turns, whatever is in them: between two, others go on.

The one measure of time among the tests (`tests/support/stand.py`). A turn that is too long is asked
for twice more: a collection of garbage, or what is loaded once, may have fallen into it.
"""

import time
from collections.abc import Iterator

import pytest

from penstock.errors import Poison
from penstock.formats.base.reading import TURN_BYTES, open_inline
from penstock.formats.base.runs import RowOptions
from penstock.formats.csv.dialect import CsvOptions
from penstock.formats.registry import claim_of
from tests.formats.test_work import HOSTILE
from tests.support.stand import is_too_long

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


def turns_s(options: RowOptions, key: str, data: bytes) -> Iterator[float]:
    """How long each takes."""
    format = None if options.format == "auto" else options.format
    began_s = time.thread_time()
    turns = open_inline(options, data, len(data), claim_of(key, format))
    yield time.thread_time() - began_s
    turn = None
    while turns is not None and not (turn and turn.is_last):
        began_s = time.thread_time()
        turn = next(turns)
        yield time.thread_time() - began_s


def longest_s(options: RowOptions, key: str, data: bytes) -> float:
    longest_s = 0.0
    try:
        for turn_s in turns_s(options, key, data):
            longest_s = max(longest_s, turn_s)
    except Poison:
        pass
    return longest_s


@pytest.mark.parametrize("name", COSTLY)
@pytest.mark.parametrize("nbytes", [TURN_BYTES, 4 * TURN_BYTES])
def test_no_turn_is_long(name: str, nbytes: int) -> None:
    key, options, begin, piece, end = COSTLY[name]
    data = begin + piece * ((nbytes - len(begin) - len(end)) // len(piece)) + end
    found_s: list[float] = []
    while len(found_s) < 3 and (not found_s or is_too_long(found_s[-1])):
        found_s.append(longest_s(options, key, data))
    assert not is_too_long(min(found_s)), found_s
