"""CSV: cells, quotes, headers, columns, and what a bad row says."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.core.rows.payload import Form
from penstock.errors import Poison
from penstock.formats.runs import RowOptions
from penstock.formats.text.csv_dialect import CsvOptions
from penstock.formats.text.lines import parse_columns, parse_table
from tests.formats.support import decode, elements, errors, matrix, rows_of

JSON = RowOptions(form="json")


@pytest.mark.parametrize("newline", [b"\n", b"\r\n"])
@pytest.mark.parametrize("last", [b"", b"\n", b"\r\n", b"\n\n\r\n"])
def test_newlines_of_all_kinds_end_rows_and_blank_lines_are_none(
    newline: bytes, last: bytes
) -> None:
    assert matrix(decode(b"1,2" + newline + newline + b"3,4" + last)) == [[1, 2], [3, 4]]


def test_a_byte_order_mark_is_no_part_of_the_first_cell() -> None:
    assert matrix(decode(b"\xef\xbb\xbf1,2\n")) == [[1, 2]]


def test_quoted_cells_may_hold_commas_newlines_and_doubled_quotes() -> None:
    data = b'"a, b","c\n\r\nd","say ""x""",1\n"","plain",5" pipe,2\n'
    assert elements(decode(data, options=JSON)) == [
        ["a, b", "c\n\r\nd", 'say "x"', 1],
        [None, "plain", '5" pipe', 2],
    ]


def test_quoted_numbers_are_numbers() -> None:
    rows = b'"1.5","-2"\n' * 200
    assert matrix(decode(rows)) == [[1.5, -2]] * 200
    assert elements(decode(rows, options=JSON)) == [[1.5, -2]] * 200


def test_a_bad_row_says_what_is_wrong_and_its_neighbours_are_read() -> None:
    good = [b"%d,%d" % (i, i) for i in range(500)]
    lines = [*good]
    lines[250:250] = [b"1", b"1,abc", b"1,", b"1,2,3"]
    runs = decode(b"\n".join(lines))
    assert errors(runs) == [
        "row has 1 cells, expected 2",
        'cell 1 "abc" is not a number',
        'cell 1 "" is not a number (see rows.missing)',
        "row has 3 cells, expected 2",
    ]
    rows = rows_of(runs)
    assert [row for _, row in rows[:250] + rows[254:]] == [[i, i] for i in range(500)]


def test_cell_counts_that_add_up_over_two_rows_are_still_two_bad_rows() -> None:
    assert errors(decode(b"1,2\n1\n1,2,3\n")) == [
        "row has 1 cells, expected 2",
        "row has 3 cells, expected 2",
    ]


@pytest.mark.parametrize("cell", [b"1_0", b"0x10", b"true", b"\xd9\xa1", b"[1]", b'"', b"1 2"])
def test_what_is_no_number_is_never_taken_for_one(cell: bytes) -> None:
    [error] = errors(decode(b"1,1\n1," + cell + b"\n"))
    assert "cell 1" in error


@pytest.mark.parametrize("cell", [b"+1", b".5", b"1.", b"007", b" 1 ", b"nan", b"-inf", b"1e400"])
def test_every_usual_spelling_of_a_number_is_one(cell: bytes) -> None:
    np.testing.assert_equal(matrix(decode(b"1\n" + cell)), [[1], [float(cell)]])


def test_a_row_above_the_limit_is_one_bad_row_and_reading_goes_on() -> None:
    options = RowOptions(row_bytes=10)
    runs = decode(
        b"1,2\n" + b"9" * 50 + b"\n3,4\n" + b'"' + b"9" * 20 + b"\n5,6\n", options=options
    )
    too_long = "row is longer than 10 bytes (limits.row_bytes)"
    assert [row for _, row in rows_of(runs)] == [[1, 2], too_long, [3, 4], too_long, [5, 6]]


def test_a_first_row_above_the_limit_is_too_large() -> None:
    with pytest.raises(Poison, match="is this CSV") as failure:
        decode(b"9" * 50, options=RowOptions(row_bytes=10))
    assert failure.value.code == "too_large"


@pytest.mark.parametrize(
    ("data", "rows"),
    [
        (b"a,b\n1,2\n", [[1, 2]]),
        (b"a,1\n1,2\n", [["a", 1], [1, 2]]),
        (b"a,b\nc,d\n", [["a", "b"], ["c", "d"]]),
        (b"a,b\n", []),
    ],
)
def test_json_rows_have_a_header_if_only_the_second_line_has_numbers(
    data: bytes, rows: list[object]
) -> None:
    assert elements(decode(data, options=JSON)) == rows


def test_a_first_line_of_texts_heads_a_matrix() -> None:
    assert matrix(decode(b"a,b\n1,2\n")) == [[1, 2]]
    assert matrix(decode(b"a,b\n")) == []


def test_header_yes_and_no_overrule_what_the_line_looks_like() -> None:
    assert matrix(decode(b"1,2\n3,4\n", options=RowOptions(own=(CsvOptions(header="yes"),)))) == [
        [3, 4]
    ]
    assert errors(decode(b"a,b\n3,4\n", options=RowOptions(own=(CsvOptions(header="no"),)))) == [
        'cell 0 "a" is not a number'
    ]


@pytest.mark.parametrize("rows", [1, 300])
def test_columns_are_chosen_by_name_or_index_in_their_own_order(rows: int) -> None:
    data = b"id,x,y,note\n" + b'k7,1.5,2.5,"a, ""b"""\n' * rows
    assert matrix(decode(data, options=RowOptions(columns=["y", "x"]))) == [[2.5, 1.5]] * rows
    assert matrix(decode(data, options=RowOptions(columns=[2, 2, 1]))) == [[2.5, 2.5, 1.5]] * rows
    assert (
        elements(decode(data, options=RowOptions(form="json", columns=["note", "id"])))
        == [['a, "b"', "k7"]] * rows
    )


def test_a_bad_cell_is_named_by_its_place_in_the_file() -> None:
    options = RowOptions(columns=[3, 1], own=(CsvOptions(header="no"),))
    assert errors(decode(b"a,1,b,x\n", options=options)) == ['cell 3 "x" is not a number']


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (RowOptions(columns=["z"]), 'no column "z" in the CSV: its header has a, b'),
        (
            RowOptions(columns=["a"], own=(CsvOptions(header="no"),)),
            'no column "a" in the CSV: it has no header',
        ),
        (RowOptions(columns=[2]), "no column 2 in the CSV: it has 2"),
    ],
)
def test_a_column_that_is_not_there_is_a_bad_format(options: RowOptions, message: str) -> None:
    with pytest.raises(Poison) as failure:
        decode(b"a,b\n1,2\n", options=options)
    assert (failure.value.code, str(failure.value)) == ("bad_format", message)


@pytest.mark.parametrize("rows", [1, 300])
def test_json_rows_keep_numbers_as_written_and_other_cells_as_strings(rows: int) -> None:
    data = b'1.50,-2e3,007,,x"y,\xc3\xbc\\\n' * rows
    [run] = decode(data, options=RowOptions(form="json", own=(CsvOptions(header="no"),)))
    assert rows_of([run])[0] == (None, '[1.50,-2e3,"007",null,"x\\"y","ü\\\\"]'.encode())
    assert run.rows == rows


def test_json_rows_of_numbers_are_cut_exactly() -> None:
    runs = decode(b"1.50,2\n-3,4e1\n", options=JSON)
    assert [row for _, row in rows_of(runs)] == [b"[1.50,2]", b"[-3,4e1]"]


def test_text_that_is_not_utf8_is_a_bad_json_row() -> None:
    assert errors(decode(b"1,a\n2,\xff\n", options=JSON)) == [
        "row is not UTF-8 text; write the file as UTF-8"
    ]


_numbers = st.floats(width=64).map(repr) | st.integers().map(str) | st.decimals().map(str)
_cells = (
    _numbers
    | st.text(alphabet="0123456789+-.eE_ xnaif()", max_size=12)
    | st.sampled_from(["1e39", "-0", "1e-46", "16777217", "nan(1)", "infinity", "1\t", "0.1f"])
)


@settings(max_examples=300)
@given(st.lists(_cells, min_size=1, max_size=6))
def test_the_fast_ways_read_a_number_as_python_does_or_not_at_all(cells: list[str]) -> None:
    text = "".join(f"{cell},1\n" for cell in cells).encode()
    expected = _as_python_reads(cells)
    for fast in (parse_table(text, 2), parse_columns(text, 2, [0])):
        if fast is not None:
            assert expected is not None
            np.testing.assert_array_equal(fast[:, 0], expected)


def _as_python_reads(cells: list[str]) -> np.typing.NDArray[np.float32] | None:
    try:
        with np.errstate(over="ignore"):
            return np.array([np.float32(float(cell)) for cell in cells])
    except ValueError:
        return None


@pytest.mark.parametrize(
    "text", [b"1,2,3\n4\n", b"1\n2,3,4\n", b"1,2\n3\n4,5,6\n", b"1,2\n\n3,4\n"]
)
def test_rows_of_uneven_length_are_never_taken_for_a_table(text: bytes) -> None:
    assert parse_table(text, 2) is None


def test_plain_json_numbers_are_read_the_fast_way() -> None:
    table = parse_table(b"1,2.5\n-3e2,0\n", 2)
    assert table is not None
    assert table.tolist() == [[1, 2.5], [-300, 0]]
    assert parse_columns(b'a,"2.5"\nb,1\n', 2, [1]) is not None


@pytest.mark.parametrize("form", ["matrix", "json"])
@pytest.mark.parametrize("key", ["x.csv", "x.ndjson"])
@pytest.mark.parametrize("quote", [b"", b'"7"'])
def test_lines_of_nothing_but_blanks_are_no_rows(key: str, form: Form, quote: bytes) -> None:
    first, last = (b"1,2", b"3,4") if key == "x.csv" else (b"[1,2]", b"[3,4]")
    data = b"  \n" + first + b"\n   \n\t\r\n \n" + last + b"\n \t"
    if quote and key == "x.csv":
        data += b"\n" + quote + b",8\n"
    options = RowOptions(form=form)
    rows = rows_of(decode(data, key, options))
    assert len(rows) == 2 + (bool(quote) and key == "x.csv")
    assert rows_of(decode(data, key, options, cuts=range(len(data)))) == rows


@pytest.mark.parametrize("form", ["matrix", "json"])
@pytest.mark.parametrize("data", [b"a,b\r1,2\r3,4\r", b"1;2\r3;4", b'"a",b\r1,2\r'])
def test_line_ends_of_an_old_mac_are_told(form: Form, data: bytes) -> None:
    with pytest.raises(Poison, match="carriage returns alone"):
        decode(data, "x.csv", RowOptions(form=form))


def test_a_carriage_return_in_quotes_is_text() -> None:
    data = b'"a\rb",2\n"c",3\n'
    assert (
        len(rows_of(decode(data, "x.csv", RowOptions(form="json", own=(CsvOptions(header="no"),)))))
        == 2
    )
