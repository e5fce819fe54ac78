"""What ends a row of text: one rule, in bulk and alone, however the bytes are cut."""

import csv as stdlib_csv
import io
import json
import random

import pytest

from penstock.core.rows.payload import Form
from penstock.formats.base.runs import RowOptions
from penstock.formats.csv.dialect import CsvOptions
from penstock.formats.text.lines import LineEnds, RowEnds
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


PIECES = [b'"', b'""', b",", b"\n", b"a", b"\r\n", b'"x', b'y"', b';"', b"1"]


@pytest.mark.parametrize("seed", range(40))
@pytest.mark.parametrize("kind", [RowEnds, LineEnds])
def test_no_byte_of_an_unfinished_row_is_looked_at_twice(
    seed: int, kind: type[RowEnds] | type[LineEnds]
) -> None:
    """What was seen is replaced by newlines and quotes: only a second look would find them. The
    last byte seen may be half of a doubled quote.
    """
    draw = random.Random(seed)
    text = b"".join(draw.choices(PIECES, k=60)) + b'"\n\n'
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
