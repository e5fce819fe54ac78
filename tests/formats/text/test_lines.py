"""What ends a row of text: one rule, in bulk and alone, however the bytes are cut."""

import csv as stdlib_csv
import io
import json
import random
from functools import partial

import pytest

from penstock.core.rows.payload import Form
from penstock.formats.runs import RowOptions
from penstock.formats.text.csv_dialect import CsvOptions
from penstock.formats.text.csv_row_ends import DOUBLED, ESCAPED, EscapedLineEnds, RowEnds
from penstock.formats.text.lines import LineEnds, RowSplitter
from penstock.formats.text.lines import rows_of as lines_of
from tests.formats.support import decode, elements, errors, matrix, rows_of

LONE = b"100,5,6\r100,5,6"
OPTIONS = [
    RowOptions(),
    RowOptions(columns=["a", "b"]),
    RowOptions(missing=0.5),
    RowOptions(keep=["id"]),
    RowOptions(form="json"),
    RowOptions(form="json", keep=["id"]),
]


def of_200(line: bytes) -> bytes:
    lines = [b"%d,%d,%d" % (row, row, row) for row in range(200)]
    lines[100] = line
    return b"id,a,b\n" + b"\n".join(lines) + b"\n"


@pytest.mark.parametrize("options", OPTIONS)
@pytest.mark.parametrize("quote", [b"", b'"7"'])
@pytest.mark.parametrize("line", [LONE, b"\r1,2,3", b"1,2,3\r\r", b"1,\r\r,\r", b"1\r2,3\r,4,5"])
def test_a_carriage_return_alone_ends_no_row(
    options: RowOptions, quote: bytes, line: bytes
) -> None:
    data = of_200(line) + (quote + b",8,9\n" if quote else b"")
    rows = rows_of(decode(data, options=options))
    assert len(rows) == 200 + bool(quote)
    for cuts in ((900,), (300, 600, 900, 1200), range(1, len(data), 7)):
        assert rows_of(decode(data, options=options, cuts=cuts)) == rows


@pytest.mark.parametrize("options", [option for option in OPTIONS if option.keep])
def test_what_is_kept_is_that_of_its_own_row(options: RowOptions) -> None:
    kept = [
        json.loads(bytes(run.kept.columns.cut(row, row + 1).body))
        for run in decode(of_200(LONE), options=options)
        if run.kept is not None and run.kept.columns is not None
        for row in range(run.rows)
    ]
    assert kept == [{"id": row} for row in range(200) if row != 100]


@pytest.mark.parametrize("form", ["matrix", "json"])
@pytest.mark.parametrize("sign", [";", "\t", "|", ","])
@pytest.mark.parametrize("name", ["Temp\n[C]", "Temp, in\r\n[C]", 'a ""\n"|;"', "x\n\n\ny"])
@pytest.mark.parametrize("place", [0, 1])
def test_a_line_break_in_a_header_is_part_of_its_name(
    form: Form, sign: str, name: str, place: int
) -> None:
    out = io.StringIO()
    header = ["u", "v"]
    header[place] = name
    writer = stdlib_csv.writer(out, delimiter=sign, lineterminator="\n")
    writer.writerows([header, *([row, row + 0.5] for row in range(100))])
    data = out.getvalue().encode()
    expected = [[row, row + 0.5] for row in range(100)]
    read = matrix if form == "matrix" else elements
    for cuts in ((), range(len(data)), (5,)):
        assert read(decode(data, options=RowOptions(form=form), cuts=cuts)) == expected


def test_marks_of_inches_are_no_quotes_to_the_separator() -> None:
    data = b'size;pipe\n5" pipe;3"\n'
    found = elements(decode(data, options=RowOptions(form="json", own=(CsvOptions(header="yes"),))))
    assert found == [['5" pipe', '3"']]


def test_a_decimal_comma_is_told_and_other_texts_are_not() -> None:
    assert "see rows.decimal" in errors(decode(b'a,b\n1,2\n3,"1,5"\n'))[0]
    for text in (b'"1,5,2"', b'"1,x"', b'","', b'"1_0,5"'):
        assert "see rows.decimal" not in errors(decode(b"a,b\n1,2\n3," + text + b"\n"))[0]


PIECES = [b'"', b'""', b",", b"\n", b"a", b"\r\n", b'"x', b'y"', b';"', b"1", b"\\", b'\\"']
# None of these breaks the grammar.
CELLS = [b"", b"a", b'""', b'"x,\n"', b'"a""b"', b'5" pipe', b"1\r", b'"\r\n"']


def text_of(draw: random.Random, kind: type[LineEnds]) -> bytes:
    if kind is not RowEnds:
        return b"".join(draw.choices(PIECES, k=60)) + b'"\n\n'
    cells = [draw.choice(CELLS) + draw.choice([b",", b",", b"\n", b"\r\n"]) for _ in range(40)]
    return b"".join(cells) + b"\n\n"


@pytest.mark.parametrize("seed", range(40))
@pytest.mark.parametrize("kind", [RowEnds, LineEnds, EscapedLineEnds])
def test_no_byte_of_an_unfinished_row_is_looked_at_twice(seed: int, kind: type[LineEnds]) -> None:
    """What was seen is replaced by newlines and quotes: only a second look would find them. The
    last byte seen may be half of a doubled quote.
    """
    draw = random.Random(seed)
    text = text_of(draw, kind)
    whole = kind()
    start, expected = 0, []
    while (end := whole.find(text, start)) >= 0:
        expected.append(end)
        start = end + 1
    ends, found = kind(), []
    start, seen = 0, 0
    blotted = bytearray()
    while seen < len(text):
        more = draw.randrange(1, 4)
        for at in range(start, len(blotted) - 1):
            blotted[at : at + 1] = draw.choice([b"\n", b'"', b","])
        blotted += text[seen : seen + more]
        seen += more
        while (end := ends.find(blotted, start)) >= 0:
            found.append(end)
            start = end + 1
    assert found == expected


def by_hand(text: bytes, *, escapes: bool) -> list[bytes]:
    """The rows, each byte looked at alone and each row for itself."""
    rows, start = [], 0
    while start < len(text):
        end = _end_by_hand(text, start, escapes=escapes) or text.index(b"\n", start)
        rows.append(text[start:end].removesuffix(b"\r"))
        start = end + 1
    return [row for row in rows if row.strip(b" \t")]


def _end_by_hand(text: bytes, start: int, *, escapes: bool) -> int | None:
    """None: the row breaks the grammar, or its quote is never closed."""
    at, is_open, is_cell = start, False, True
    while at < len(text):
        sign = text[at : at + 1]
        if is_open:
            if text[at : at + 2] == b'""' or (escapes and sign == b"\\"):
                at += 1
            elif sign == b'"':
                is_open = False
                behind = text[at + 1 : at + 3]
                if not (behind.startswith((b",", b"\n")) or behind == b"\r\n"):
                    return None
        elif sign == b"\n":
            return at
        elif is_cell and sign == b'"':
            is_open = True
        is_cell = sign == b"," and not is_open
        at += 1
    return None


@pytest.mark.parametrize("seed", range(200))
@pytest.mark.parametrize("inside", [DOUBLED, ESCAPED])
def test_a_broken_row_ends_at_its_line_and_swallows_no_other(seed: int, inside: bytes) -> None:
    draw = random.Random(seed)
    text = b"".join(draw.choices(PIECES, k=draw.choice([10, 60, 300]))) + b"\n"
    expected = by_hand(text, escapes=inside == ESCAPED)
    for steps in (len(text), 1, 7):
        splitter = RowSplitter(10_000, sign=ord('"'), ends=partial(RowEnds, inside))
        found: list[bytes] = []
        for start in range(0, len(text), steps):
            for block in splitter.feed(text[start : start + steps]):
                assert block is not None
                found += lines_of(block)
        for block in splitter.close():
            assert block is not None
            found += lines_of(block)
        assert found == expected


def test_a_quote_that_is_never_closed_costs_its_own_row() -> None:
    """Whether the file ends, or the limit of a row comes first."""
    rows = [b"%d,%d" % (row, row) for row in range(2_000)]
    rows[700] = b'700,"x'
    text = b'a,b\n"1",2\n' + b"\n".join(rows) + b"\n"
    for limit_bytes in (6_000_000, 1_000):
        options = RowOptions(row_bytes=limit_bytes, own=(CsvOptions(quote='"'),))
        for cuts in ((), range(0, len(text), 333)):
            found = [row for _, row in rows_of(decode(text, options=options, cuts=cuts))]
            assert len(found) == 2_001
            (bad,) = (row for row in found if isinstance(row, str))
            assert found.index(bad) == 701
            assert bad.startswith("cell 1 opens a quote that is never closed (see rows.quote")
