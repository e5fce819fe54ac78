"""Work grows with the bytes and not with their square, whatever they are and however they are cut.

Counted are calls, of Python's functions and of the interpreter's, and the bytes that are copied:
what a call holds at its peak beyond what was held before it. What regular expressions do is
counted by `tests/test_patterns.py`.
"""

import sys
import tracemalloc
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from types import FrameType

import pytest

from penstock.errors import Poison
from penstock.formats.reading import Turn, turns
from penstock.formats.registry import claim_of, open_parser
from penstock.formats.runs import RowOptions
from penstock.formats.text.csv_dialect import CsvOptions

JSON = RowOptions(form="json")
# By how many of the piece: the same text, longer.
HOSTILE: dict[str, tuple[str, RowOptions, bytes, bytes, bytes]] = {
    "lone carriage returns": ("x.csv", RowOptions(), b"a,b\n", b"1,2\r", b"\n"),
    "an open quote": ("x.csv", RowOptions(), b'a,b\n1,"', b"x,\n", b""),
    "an open quote in the header": ("x.csv", RowOptions(), b'a;"', b"x;\n", b""),
    "doubled quotes": ("x.csv", JSON, b'a,b\n1,"', b'""', b'"\n'),
    "quoted cells in one row": ("x.csv", JSON, b"a", b',"x"', b"\n1\n"),
    "a long header": ("x.csv", RowOptions(), b"a", b";b", b"\n"),
    "comments": ("x.csv", RowOptions(own=(CsvOptions(comment="#"),)), b"", b'# "a\n', b"1;2\n"),
    "blank lines": ("x.csv", RowOptions(), b"", b" \n\r\n", b"1,2\n"),
    "a long number": ("x.csv", RowOptions(), b"a,b\n1,", b"1", b"\n"),
    "digits, a comma and a letter": ("x.csv", RowOptions(), b'a,b\n1,2\n3,"', b"1", b',x"\n'),
    "kept columns": ("x.csv", RowOptions(keep=["a"]), b"a,b\n", b"1\r,2\n", b""),
    "missing cells": ("x.csv", RowOptions(missing=0.0), b"a,b\n", b"NA,x\n", b""),
    "deep arrays": ("x.json", JSON, b"[", b"[", b""),
    "deep rows": ("x.ndjson", JSON, b"", b"[", b"\n"),
    "an array in one line": ("x.json", JSON, b"[1", b",[2]", b"]"),
    "blanks in an array": ("x.json", JSON, b"[1", b" \n", b"]"),
    "a long number in JSON": ("x.json", RowOptions(), b"[[1", b"1", b"]]"),
    "an open string": ("x.json", JSON, b'["', b"\\\\", b""),
    "rows that are no JSON": ("x.ndjson", RowOptions(), b"[1,2]\n", b"[1,NaN]\n", b""),
    "lines": ("x", RowOptions(form="bytes", format="text"), b"", b"a\r", b"\n"),
}
PIECES = 100


class Counted:
    """Of what is done in the block of `counted_calls`."""

    def __init__(self) -> None:
        self.calls = 0
        self.copied = 0

    def count(self, _frame: FrameType, event: str, _what: object) -> None:
        self.calls += event in ("call", "c_call")

    def all(self, turns: Iterator[Turn]) -> None:
        more: object = True
        while more:
            held = tracemalloc.get_traced_memory()[0]
            tracemalloc.reset_peak()
            more = next(turns, None)
            self.copied += tracemalloc.get_traced_memory()[1] - held


@contextmanager
def counted_calls() -> Iterator[Counted]:
    counted = Counted()
    sys.setprofile(counted.count)
    try:
        yield counted
    finally:
        sys.setprofile(None)


def work(name: str, pieces: int, chunk_bytes: int) -> Counted:
    key, options, begin, piece, end = HOSTILE[name]
    data = begin + piece * pieces + end
    format = None if options.format == "auto" else options.format
    tracemalloc.start()
    try:
        with counted_calls() as counted:
            parser = open_parser(options, claim_of(key, format))
            chunks = [data[at : at + chunk_bytes] for at in range(0, len(data), chunk_bytes)]
            with suppress(Poison):
                counted.all(turns(parser, chunks, options))
    finally:
        tracemalloc.stop()
    return counted


@pytest.mark.parametrize("name", HOSTILE)
@pytest.mark.parametrize("chunk_bytes", [1, 1 << 20])
def test_work_grows_with_the_bytes(name: str, chunk_bytes: int) -> None:
    work(name, PIECES, chunk_bytes)  # what is done once, by whoever comes first
    seen: list[object] = []
    # What other threads of the process hold counts, too, so some counts are too large.
    for _ in range(3):
        works = [work(name, PIECES * times, chunk_bytes) for times in (1, 2, 4)]
        calls, copied = [one.calls for one in works], [one.copied for one in works]
        if grows_at_most_linearly(calls, 1_000) and grows_at_most_linearly(copied, 40_000):
            return
        seen.append((calls, copied))
    pytest.fail(f"grows faster than the bytes: {seen}")


def grows_at_most_linearly(counts: Iterable[int], slack: int) -> bool:
    once, twice, four = counts
    return four - twice <= 2.5 * max(twice - once, 0) + slack


def test_a_square_is_told_from_a_line() -> None:
    assert grows_at_most_linearly([500_000, 1_000_000, 2_000_000], 1_000)
    assert not grows_at_most_linearly([250_000, 1_000_000, 4_000_000], 100_000)
