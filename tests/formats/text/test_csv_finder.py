"""Which grammar a CSV has: found by its whole head alone, or configured; Excel's first line."""

from dataclasses import replace

import pytest

from penstock.errors import Poison
from penstock.formats.runs import RowOptions
from penstock.formats.text.csv_dialect import HEAD_BYTES, CsvOptions
from tests.formats.support import decode, decode_until_failure, elements, errors, gzipped, rows_of

JSON = RowOptions(form="json", own=(CsvOptions(header="yes"),))

# As Spark 3.5.9 wrote a table with these texts: a backslash escapes inside quotes alone.
SPARK = rb"""text,n
plain,1
"x,\"",2
"y\"",3
C:\new,4
"C:\\new, x",5
"a\\\"b",6
"line1
line2",7
,8
"end,\\",13
"\"q\"",20
"""
SPARK_TEXTS = [
    "plain", 'x,"', 'y"', "C:\\new", "C:\\new, x", 'a\\"b', "line1\nline2", None, "end,\\", '"q"',
]  # fmt: skip
# As MariaDB 10.11's INTO OUTFILE wrote a table, by default and with fields enclosed by quotes.
MARIADB = (
    b'1\tplain\n2\tsay "hi"\n3\tC:\\\\new\n4\tl1\\\nl2\n5\t\\N\n6\ttab\\\tx\n7\t\\\\N\n8\tz\\0x\n'
)
MARIADB_QUOTED = (
    b'"1","plain"\n"2","say \\"hi\\""\n"3","C:\\\\new"\n"4","l1\\\nl2"\n"5",\\N\n"6","tab\tx"\n'
    b'"7","\\\\N"\n"8","z\\0x"\n'
)
MARIADB_TEXTS = [
    "plain", 'say "hi"', "C:\\new", "l1\nl2", None, "tab\tx", "\\N", "z\0x"
]  # fmt: skip
# As COPY of PostgreSQL 15 wrote it.
POSTGRES = b'1\tplain\n2\tsay "hi"\n3\tC:\\\\new\n4\tl1\\nl2\n5\t\\N\n6\ttab\\tx\n7\t\\\\N\n8\t"x\n'
POSTGRES_TEXTS = [*MARIADB_TEXTS[:7], '"x']
NO_HEADER = RowOptions(form="json", own=(CsvOptions(header="no"),))


def texts_of(data: bytes, options: RowOptions, column: int) -> list[object]:
    """However the bytes come."""
    found = [
        row[column] for row in elements(decode(data, options=options)) if isinstance(row, list)
    ]
    for cuts in (range(0, len(data), 7), (len(data) // 2,)):
        assert [
            row[column]
            for row in elements(decode(data, options=options, cuts=cuts))
            if isinstance(row, list)
        ] == found
    return found


@pytest.mark.parametrize("escape", ["auto", "backslash"])
def test_backslashes_of_spark(escape: str) -> None:
    options = replace(JSON, own=(CsvOptions(header="yes", escape=escape),))  # type: ignore[arg-type]
    assert texts_of(SPARK, options, 0) == SPARK_TEXTS
    single = SPARK.replace(b"'", b"").replace(b'"', b"'")
    assert texts_of(single, options, 0) == [
        None if text is None else text.replace('"', "'") for text in SPARK_TEXTS
    ]


@pytest.mark.parametrize("quote", ["auto", '"', "none"])
def test_texts_of_databases(quote: str) -> None:
    for data, texts, sign in (
        (MARIADB, MARIADB_TEXTS, "none"),
        (MARIADB_QUOTED, MARIADB_TEXTS, '"'),
        (POSTGRES, POSTGRES_TEXTS, "none"),
    ):
        if quote in ("auto", sign):
            for escape in ("auto", "backslash"):
                own = CsvOptions(header="no", quote=quote, escape=escape)  # type: ignore[arg-type]
                assert texts_of(data, replace(NO_HEADER, own=(own,)), 1) == texts


def test_what_is_missing_in_a_database_is_missing() -> None:
    for options, value in ((RowOptions(missing=-1.0), [2, -1]), (RowOptions(), None)):
        rows = [row for _, row in rows_of(decode(b"1\t5\n2\t\\N\n", options=options))]
        assert rows[0] == [1, 5]
        assert rows[1] == value or "(see rows.missing)" in str(rows[1])


def test_stray_quotes_are_text_if_no_row_is_a_row_otherwise() -> None:
    lone = b'id\ttext\n1\t"x\n2\ty\n3\tz\n'
    assert texts_of(lone, JSON, 1) == ['"x', "y", "z"]
    assert texts_of(b'id\ttext\n1\t"x\n2\ty\n3\tz"\n4\t"Lorem" ipsum\n', JSON, 1) == [
        '"x', "y", 'z"', '"Lorem" ipsum'
    ]  # fmt: skip


def test_a_quoted_cell_shows_that_there_are_quotes() -> None:
    """So a stray quote in the same head is an error of its row."""
    data = b'id,t\n1,"foo (\\"foo\\")"\n2,"Half" quoted\n3,"a, b"\n'
    message = "cell 1 has text behind its closing quote (see rows.quote and rows.escape)"
    assert [row for _, row in rows_of(decode(data, options=JSON))] == [
        message,
        message,
        b'[3,"a, b"]',
    ]
    none = replace(JSON, own=(CsvOptions(header="yes", quote="none"),))
    assert elements(decode(data.removesuffix(b'3,"a, b"\n'), options=none)) == [
        [1, '"foo (\\"foo\\")"'], [2, '"Half" quoted']
    ]  # fmt: skip


def test_blanks_behind_a_closing_quote_do_not_make_it_a_text() -> None:
    runs = decode(b'text,n\n"a" ,1\n"b" ,2\n', options=JSON)
    assert [error.partition(" (")[0] for error in errors(runs)] == [
        "cell 0 has text behind its closing quote"
    ] * 2


def test_rows_of_another_width_do_not_make_quotes_a_text() -> None:
    """Divided at all commas, the rows would be as wide as the header."""
    assert errors(decode(b'x,y,z\n"a,b",1\n', options=JSON)) == ["row has 2 cells, expected 3"]


def test_single_quotes_are_found_if_double_quotes_do_not_fit() -> None:
    assert texts_of(b"t,n\n'a, b',1\n'it''s',2\n'\"',3\n", JSON, 0) == ["a, b", "it's", '"']
    assert texts_of(b"t,n\n'a',1\nit's,2\n", JSON, 0) == ["'a'", "it's"]
    told = replace(JSON, own=(CsvOptions(header="yes", quote="'"),))
    assert texts_of(b"t,n\n'a',1\nit's,2\n", told, 0) == ["a", "it's"]


def test_quotes_of_a_tsv_that_can_be_read_in_two_ways_are_refused() -> None:
    data = b'id\ttext\n1\t"x\n2\ty\n3\tz"\n'
    with pytest.raises(Poison, match=r"rows\.quote"):
        decode(data, options=JSON)
    for quote, texts in (("none", ['"x', "y", 'z"']), ('"', ["x\n2\ty\n3\tz"])):
        own = CsvOptions(header="yes", quote=quote)  # type: ignore[arg-type]
        assert texts_of(data, replace(JSON, own=(own,)), 1) == texts


@pytest.mark.parametrize("form", ["json", "matrix"])
def test_a_tsv_whose_first_quotes_come_late_does_not_merge_rows(form: str) -> None:
    """As IMDb's tables: quotes are rare parts of titles."""
    head = b"id\ttext\tn\n" + b"".join(b"%d\tplain\t%d\n" % (n, n) for n in range(3_000))
    assert len(head) > HEAD_BYTES
    tail = b'1\t"x\t2\n3\ty"\t4\n5\tz\t6\n'
    chosen = ["id", "n"]
    options = RowOptions(form=form, columns=chosen)  # type: ignore[arg-type]
    runs = decode(head + tail, options=options)
    assert len(errors(runs)) == 1
    assert "rows.quote" in errors(runs)[0]
    assert sum(run.rows for run in runs) == 3_002
    none = replace(options, own=(CsvOptions(quote="none"),))
    runs = decode(head + tail, options=none)
    assert errors(runs) == []
    assert sum(run.rows for run in runs) == 3_003
    whole = b'1\t"x\ny"\t2\n3\tz\t4\n'  # only one of both ways gives rows
    runs = decode(head + whole, options=options)
    assert errors(runs) == []
    assert sum(run.rows for run in runs) == 3_002


def test_one_row_that_does_not_fit_leaves_rfc_4180() -> None:
    data = SPARK.replace(b"plain,1\n", b"plain,1,1\n")
    assert errors(decode(data, options=JSON))[:2] == [
        "row has 3 cells, expected 2",
        "cell 0 opens a quote that is never closed (see rows.quote and rows.escape)",
    ]


@pytest.mark.parametrize("end", [b"\n", b"\r\n"])
def test_the_head_may_be_cut_in_any_place(end: bytes) -> None:
    row = SPARK.partition(b"\n")[2].replace(b"\n", end)
    texts = SPARK_TEXTS * (2 * HEAD_BYTES // len(row))
    texts = [None if text is None else text.replace("\n", end.decode()) for text in texts]
    for shift in range(40):
        data = b"#" * shift + end + b"text,n" + end + row * (2 * HEAD_BYTES // len(row))
        own = CsvOptions(header="yes", comment="#")
        found = elements(decode(data, options=replace(JSON, own=(own,)), cuts=[HEAD_BYTES]))
        assert [row[0] for row in found if isinstance(row, list)] == texts


def test_rows_before_the_first_quote_do_not_wait_for_the_head() -> None:
    """If the bytes break off, the complete rows before are there."""
    runs, failure = decode_until_failure(gzipped(b"1,2\n" * 9 + b'"3",4\n')[:-9], "x.csv.gz")
    assert failure is not None
    assert rows_of(runs)[:9] == [(None, [1, 2])] * 9


@pytest.mark.parametrize("form", ["matrix", "json"])
@pytest.mark.parametrize(
    "data",
    [
        b"sep=;\na;b\n1;2\n",
        b"sep=,\r\na,b\r\n1,2\r\n",
        b'"sep=\t"\r\na\tb\r\n1\t2\r\n',
        b"\xef\xbb\xbfSEP=|\na|b\n1|2\n",
        b'sep=;\n"a,b";c\n1;2\n',
    ],
)
def test_the_line_sep_of_excel_is_no_row_and_gives_the_separator(form: str, data: bytes) -> None:
    options = RowOptions(form=form)  # type: ignore[arg-type]
    for cuts in ((), range(len(data))):
        rows = [row for _, row in rows_of(decode(data, options=options, cuts=cuts))]
        assert rows == [[1, 2]] or rows == [b"[1,2]"]


def test_a_line_sep_that_says_something_else_is_refused() -> None:
    with pytest.raises(Poison, match=r"begins with sep=\^, which is not comma, semicolon"):
        decode(b"sep=^\na^b\n1^2\n")
    with pytest.raises(Poison, match=r"begins with sep=;, which is not rows\.delimiter"):
        decode(b"sep=;\na;b\n", options=RowOptions(own=(CsvOptions(delimiter="comma"),)))


@pytest.mark.parametrize("keep", [(), ("id",)])
def test_two_columns_of_one_name_are_refused(keep: tuple[str, ...]) -> None:
    for header in (b"id,x,x", b'id,"x", x', b"id;x;x"):
        with pytest.raises(Poison, match='two columns of the CSV have the name "x"'):
            decode(header + b"\n1,2,3\n", options=RowOptions(keep=keep))
    assert [row for _, row in rows_of(decode(b"id,,\n1,2,3\n"))] == [[1, 2, 3]]
