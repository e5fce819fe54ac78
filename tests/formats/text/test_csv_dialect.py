"""CSV as people have it: separators, decimal commas, comments, cells without a value."""

import csv as stdlib_csv
import io
import logging
from dataclasses import replace
from math import isnan
from typing import Literal

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.errors import Poison
from penstock.formats.runs import RowOptions
from penstock.formats.text.csv_dialect import COUNTED, TEXTS_ONLY, CsvOptions, Decimal, Delimiter
from penstock.formats.text.csv_finder import DELIMITERS
from tests.formats.support import decode, elements, errors, matrix, rows_of

JSON = RowOptions(form="json")
GERMAN = RowOptions(own=(CsvOptions(decimal=","),))


@pytest.mark.parametrize("sign", [b",", b";", b"\t", b"|"])
@pytest.mark.parametrize("rows", [3, 300])
def test_the_separator_is_found_by_the_first_line(sign: bytes, rows: int) -> None:
    lines = [sign.join((b"%d" % row, b"-1.5", b"2e3")) for row in range(rows)]
    text = b"\n".join([sign.join((b"a", b"b", b"c")), *lines])
    assert matrix(decode(text)) == [[row, -1.5, 2000] for row in range(rows)]
    assert elements(decode(text, options=JSON))[1] == [1, -1.5, 2000]


def test_a_comma_wins_unless_only_another_sign_leaves_numbers() -> None:
    assert elements(decode(b"a;b,1\nc|d,2\n", options=JSON)) == [["a;b", 1], ["c|d", 2]]
    assert matrix(decode(b"1;2\n", options=GERMAN)) == [[1, 2]]
    (error,) = errors(decode(b"x;y\n1,5;2\n"))
    assert error == 'cell 0 of column "x" "1,5" is not a number (see rows.decimal)'
    (error,) = errors(decode(b"1;2\n1,5;2,5\n"))
    assert "see rows.decimal" in error
    assert "see rows.decimal" in errors(decode(b"1,5;2,5\n3,5;4,5\n"))[0]


def test_a_first_line_of_one_long_cell_is_not_waited_for_without_end() -> None:
    wide = b";".join(b"%d" % cell for cell in range(50_000))
    (row,) = matrix(decode(wide, cuts=range(0, len(wide), 10_000)))
    assert row == list(range(50_000))


@pytest.mark.parametrize("rows", [3, 300])
@pytest.mark.parametrize("sign", [b";", b"\t", b"|"])
def test_a_decimal_comma_is_read(sign: bytes, rows: int) -> None:
    lines = [sign.join((b"%d,25" % row, b"-,5")) for row in range(rows)]
    assert matrix(decode(b"\n".join(lines), options=GERMAN)) == [
        [row + 0.25, -0.5] for row in range(rows)
    ]
    as_json = decode(b"1,5;text, with comma.\n", options=replace(GERMAN, form="json"))
    assert elements(as_json) == [[1.5, "text, with comma."]]


@pytest.mark.parametrize("cell", [b",5", b"5,", b"1,5", b" 5, "])
@pytest.mark.parametrize("sign", ["semicolon", "tab", "pipe"])
@pytest.mark.parametrize("rows", [3, 300])
def test_a_sign_that_means_nothing_is_no_part_of_a_number(
    cell: bytes, sign: Delimiter, rows: int
) -> None:
    """`,5` beside a decimal point, and `.5` beside a decimal comma, are neither 5 nor 0.5."""
    good = DELIMITERS[sign].join((b"1", b"2"))
    for text, options in (
        (DELIMITERS[sign].join((b"1", cell)), RowOptions(own=(CsvOptions(delimiter=sign),))),
        (
            DELIMITERS[sign].join((b"1", cell.replace(b",", b"."))),
            RowOptions(own=(CsvOptions(delimiter=sign, decimal=","),)),
        ),
    ):
        runs = decode(b"\n".join([good] * rows + [text]), options=options)
        assert len(errors(runs)) == 1
        assert "is not a number" in errors(runs)[0]


@pytest.mark.parametrize("rows", [2, 300])
@pytest.mark.parametrize("quote", ['"', "'"])
def test_a_comma_may_separate_cells_and_decimals_if_numbers_are_quoted(
    rows: int, quote: str
) -> None:
    text = f"a,b\n{quote}1,5{quote},3\n".encode() + f"{quote}-2,25{quote},4\n".encode() * rows
    assert matrix(decode(text, options=GERMAN)) == [[1.5, 3]] + [[-2.25, 4]] * rows
    assert elements(decode(text, options=replace(GERMAN, form="json")))[:2] == [
        [1.5, 3],
        [-2.25, 4],
    ]
    assert errors(decode(b'a,b\n"1,5",1.5\n', options=GERMAN)) == [
        'cell 1 of column "b" "1.5" is not a number'
    ]


def test_a_comma_that_may_be_both_is_refused_without_a_delimiter() -> None:
    text = b"a,b\n1,5\n"
    with pytest.raises(Poison, match=r"set rows\.delimiter"):
        decode(text, options=GERMAN)
    told = CsvOptions(delimiter="comma", decimal=",")
    assert matrix(decode(text, options=RowOptions(own=(told,)))) == [[1, 5]]


@pytest.mark.parametrize("comment", ["#", "//", ";"])
@pytest.mark.parametrize("rows", [2, 300])
def test_lines_of_comment_are_no_rows(comment: str, rows: int) -> None:
    options = RowOptions(own=(CsvOptions(comment=comment),))
    lines = [b"%d,%d" % (row, row) for row in range(rows)]
    said = comment.encode() + b" made by x, y and; z"
    text = b"\n".join([said, b"", b"a,b", said, *lines[:1], said, *lines[1:], said])
    for cuts in ((), range(0, len(text), 7)):
        assert matrix(decode(text, options=options, cuts=cuts)) == [[n, n] for n in range(rows)]
    quoted = text + b'\n"7",8\n'
    assert matrix(decode(quoted, options=options))[-1] == [7, 8]


def test_without_the_option_a_comment_is_a_bad_row() -> None:
    assert len(errors(decode(b"1,2\n# x\n"))) == 1


@pytest.mark.parametrize("cell", [b"", b"NA", b"N/A", b"null", b"NULL", b" "])
@pytest.mark.parametrize("rows", [3, 300])
def test_a_cell_without_a_value_is_what_rows_missing_says(cell: bytes, rows: int) -> None:
    good = [b"1,2"] * rows
    text = b"\n".join([*good, b"3," + cell])
    assert len(errors(decode(text))) == 1
    assert matrix(decode(text, options=RowOptions(missing=-1.0)))[-1] == [3, -1]
    assert isnan(matrix(decode(text, options=RowOptions(missing=float("nan"))))[-1][1])
    chosen = RowOptions(missing=0.5, columns=[1])
    assert matrix(decode(text, options=chosen)) == [[2]] * rows + [[0.5]]
    number = RowOptions(form="json", missing=-1.0)
    assert elements(decode(text, options=number))[-1] == [3, -1]
    null = RowOptions(form="json", missing=float("nan"))
    assert elements(decode(text, options=null))[-1] == [3, None]


def test_a_file_with_many_missing_values_is_still_read_in_bulk() -> None:
    """Row by row would be a hundred times the work; the runs tell how it was read."""
    text = b"".join(b"%d,\n" % row for row in range(5_000))
    runs = decode(text, options=RowOptions(missing=0.0))
    assert [run.rows for run in runs] == [5_000]
    assert matrix(runs)[-1] == [4_999, 0]


def test_with_a_number_for_missing_values_nan_is_missing_too() -> None:
    for rows in (2, 300):
        text = b"nan,1\n" + b"2,NaN\n" * rows
        assert matrix(decode(text, options=RowOptions(missing=7.0)))[:2] == [[7, 1], [2, 7]]


def test_an_error_names_the_column() -> None:
    text = b"time;temp, C\n1;2\n1;x,y\n1;\n"
    assert errors(decode(text, options=RowOptions(own=(CsvOptions(delimiter="semicolon"),)))) == [
        'cell 1 of column "temp, C" "x,y" is not a number',
        'cell 1 of column "temp, C" "" is not a number (see rows.missing)',
    ]
    assert errors(decode(b"a,b\n1,1e999\n", options=JSON)) == [
        'cell 1 of column "b" "1e999" is beyond the range of a number'
    ]
    with pytest.raises(Poison, match='no column "x" in the CSV: its header has time, temp, C'):
        decode(text, options=RowOptions(columns=["x"], own=(CsvOptions(delimiter="semicolon"),)))


def test_a_number_with_a_decimal_comma_shows_that_the_line_before_is_a_header() -> None:
    for data in (b"x;y\n1,5;2,5\n", b'"x";"y"\n"1,5";"2,5"\n'):
        assert elements(decode(data, options=JSON)) == [["1,5", "2,5"]]


def ours(caplog: pytest.LogCaptureFixture) -> list[logging.LogRecord]:
    """Without what others log meanwhile, as threads of earlier tests may."""
    return [record for record in caplog.records if record.name.startswith("penstock")]


@pytest.mark.parametrize("digits", [4_300, 4_301, 50_000])
def test_a_number_of_any_length_may_be_first(digits: int) -> None:
    data = b"1" * digits + b",2\n3,4\n"
    assert elements(decode(data, options=RowOptions(form="json"))[1:]) == [[3, 4]]


def test_a_first_line_that_counts_may_be_a_header_which_is_said_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.WARNING)
    frame = pd.DataFrame(np.array([[1.5, 2.5], [3.5, 4.5]]))
    data = frame.to_csv(index=False).encode()
    options = RowOptions(form="json")
    for _ in range(2):
        assert elements(decode(data, options=options))[0] == [0, 1]
    assert [record.message for record in ours(caplog)] == [COUNTED]
    assert 'rows.header = "yes"' in COUNTED
    own = (CsvOptions(header="yes"),)
    told = RowOptions(form="json", own=own)
    assert elements(decode(data, options=told)) == frame.to_numpy().tolist()
    assert elements(decode(b"0\n1\n", options=RowOptions(form="json"))) == [[0], [1]]
    assert len(ours(caplog)) == 1


@pytest.mark.parametrize("form", ["json", "matrix"])
@pytest.mark.parametrize(
    "data",
    [b"# by it\na,b\n1,2\n", b"# by it\n# unit m\na\n1\n", b"# x\n1;2\n", b"#x\n1,2\n"],
)
def test_comments_before_the_header_are_refused_unless_they_are_told(
    data: bytes, form: Literal["json", "matrix"]
) -> None:
    for cuts in (range(0), range(1, len(data))):
        with pytest.raises(Poison, match=r"set rows\.comment = "):
            decode(data, options=RowOptions(form=form), cuts=cuts)
    told = RowOptions(form=form, own=(CsvOptions(comment="#"),))
    assert len(rows_of(decode(data, options=told))) == 1


@pytest.mark.parametrize("data", [b"#id,b\n1,2\n", b"# a\n1\n", b"#a\n#b\n", b"# a\n"])
def test_a_header_or_text_that_begins_like_a_comment_is_read(data: bytes) -> None:
    assert decode(data, options=RowOptions(form="json")) or data == b"# a\n"


@pytest.mark.parametrize(
    ("first", "is_said"),
    [("2019,2020,2021", True), ("country,2019,2020", True), ("country,2019", False),
     ("1,2", False), ("2019,2021", False), ("2019.5,2020", False), ("x,0,1", False)],
)  # fmt: skip
def test_a_first_line_of_years_may_be_a_header_which_is_said(
    first: str, is_said: bool, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING)
    data = f"{first}\n{first}\n".encode()
    assert len(elements(decode(data, options=RowOptions(form="json")))) == 2
    assert [record.message for record in ours(caplog)] == [COUNTED] * is_said


def test_what_texts_alone_leave_open_is_decided_and_said_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.WARNING)
    options = RowOptions(form="json")
    for _ in range(3):
        assert elements(decode(b"name,town\nAda,London\n", options=options))[0] == ["name", "town"]
    assert [record.message for record in ours(caplog)] == [TEXTS_ONLY]
    assert 'rows.header = "yes"' in TEXTS_ONLY
    caplog.clear()
    assert rows_of(decode(b"name,town\n", options=options)) == []
    assert "only line" in caplog.text
    caplog.clear()
    decode(
        b"name,town\nAda,London\n", options=RowOptions(form="json", own=(CsvOptions(header="yes"),))
    )
    decode(b"name,age\nAda,36\n", options=RowOptions(form="json"))
    assert not ours(caplog)


@pytest.mark.parametrize(
    ("head", "name"),
    [
        (b"\x89HDF\r\n\x1a\n", "HDF5"),
        (b"SQLite format 3\x00", "SQLite"),
        (b"%PDF-1.7\n", "PDF"),
    ],
)
def test_a_format_that_is_not_read_is_named(head: bytes, name: str) -> None:
    with pytest.raises(Poison, match=name) as caught:
        decode(head + bytes(600), key="x")
    assert caught.value.code == "bad_format"


def test_a_text_that_begins_like_another_format_is_text() -> None:
    assert elements(decode(b"PAR1,1\nORC,2\n", key="x", options=JSON)) == [["PAR1", 1], ["ORC", 2]]


TEXTS = st.text(st.sampled_from('ab.,;|\t\x1f"\n é1'), max_size=6)


@settings(max_examples=150)
@given(
    table=st.lists(st.tuples(TEXTS, TEXTS), min_size=1, max_size=6),
    sign=st.sampled_from(["semicolon", "tab", "pipe"]),
    decimal=st.sampled_from([".", ","]),
    step=st.integers(1, 9),
)
def test_texts_come_out_as_they_were(
    table: list[tuple[str, str]], sign: Delimiter, decimal: Decimal, step: int
) -> None:
    out = io.StringIO()
    separator = DELIMITERS[sign].decode()
    writer = stdlib_csv.writer(out, delimiter=separator, lineterminator="\n", quoting=1)
    writer.writerows([["head", "line"], *table])
    text = out.getvalue().encode()
    options = RowOptions(
        form="json", own=(CsvOptions(header="yes", delimiter=sign, decimal=decimal),)
    )
    found = elements(decode(text, options=options, cuts=range(0, len(text), step)))
    for texts, row in zip(table, found, strict=True):
        assert isinstance(row, list)
        assert [_same(*pair) for pair in zip(texts, row, strict=True)] == [True, True]


def _same(text: str, cell: object) -> bool:
    """A text, or the number or null that stands for it; white space around a number (Python counts
    \\x1f as such) is not part of it.
    """
    if isinstance(cell, str):
        return cell == text
    return not text if cell is None else set(text) <= set("1., \t\x1f")
