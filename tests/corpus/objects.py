"""Hostile objects: text of all kinds. Archives are in `archives.py`.

Where rows go to the model as JSON (`texts`), a cell may hold anything and a row be any element.
"""

import gzip

from penstock.formats.runs import RowOptions
from penstock.formats.text.csv_dialect import CsvOptions
from tests.corpus.cases import Stored

_ROWS_BAD = "row bad_row row"
_SHORT = RowOptions(row_bytes=100)
_NARROW = RowOptions(max_columns=4)
_NO_HEADER = RowOptions(own=(CsvOptions(header="no"),))


def _between(row: bytes) -> bytes:
    """In the middle of a good CSV."""
    return b"1,2\n" + row + b"\n3,4\n"


def _line(element: bytes) -> bytes:
    """In the middle of good NDJSON."""
    return b"[1,2]\n" + element + b"\n[3,4]\n"


def _element(element: bytes) -> bytes:
    """In the middle of a good array, behind what is looked at to tell the format."""
    return b" " * 600 + b"[[1,2]," + element + b",[3,4]]"


_CSV = [
    Stored("nothing", "x.csv", b"", "end"),
    Stored("a line feed", "x.csv", b"\n", "end"),
    Stored("a thousand line ends", "x.csv", b"\r\n" * 1000, "end"),
    Stored("a header and nothing else", "x.csv", b"a,b\n", "end"),
    Stored("a file of NULs", "x.csv", b"\0" * 4096, "end:bad_format"),
    Stored("a picture", "x.csv", b"\x89PNG\r\n\x1a\n" + bytes(range(14)), "end:bad_format"),
    Stored("a program", "x.csv", b"\x7fELF\2\1\1" + bytes(40), "end:bad_format"),
    Stored("a zip archive", "x.csv", b"PK\3\4" + bytes(40), "end:bad_format"),
    Stored("UTF-16", "x.csv", "1,2\n3,4\n".encode("utf-16"), "end:bad_format"),
    Stored("UTF-16, big end first", "x.csv", b"\xfe\xff" + "1,2\n".encode("utf-16-be"),
           "end:bad_format"),
    Stored("UTF-32", "x.csv", "1,2\n".encode("utf-32"), "end:bad_format"),
    Stored("a byte order mark", "x.csv", b"\xef\xbb\xbf1,2\n3,4\n", "row row"),
    Stored("two byte order marks", "x.csv", b"\xef\xbb\xbf" * 2 + b"1,2\n3,4\n", "bad_row row",
           "row row"),
    Stored("a byte order mark and nothing else", "x.csv", b"\xef\xbb\xbf", "end"),
    Stored("a NUL in a cell", "x.csv", _between(b"1\0,2"), _ROWS_BAD),
    Stored("an escape sequence in a cell", "x.csv", _between(b"\x1b[2J,2"), _ROWS_BAD, "row*3"),
    Stored("invalid UTF-8 in a cell", "x.csv", _between(b"\xff,2"), _ROWS_BAD),
    Stored("a surrogate in a cell", "x.csv", _between(b"\xed\xa0\x80,2"), _ROWS_BAD),
    Stored("Arabic digits", "x.csv", _between("\u0661,2".encode()), _ROWS_BAD, "row*3"),
    Stored("a formula", "x.csv", _between(b"=cmd|'/c calc'!A1,2"), _ROWS_BAD, "row*3"),
    Stored("too few cells", "x.csv", _between(b"1"), _ROWS_BAD),
    Stored("too many cells", "x.csv", _between(b"1,2,3"), _ROWS_BAD),
    Stored("a hundred rows a third as wide", "x.csv", b"1,2,3\n" + b"1\n" * 100,
           "row bad_row*100"),
    Stored("a hundred rows of a third, as JSON", "x.ndjson", b"[1,2,3]\n" + b"[1]\n" * 100,
           "row bad_row*100", "row*101"),
    Stored("empty cells", "x.csv", _between(b","), _ROWS_BAD, "row*3"),
    Stored("commas and nothing else", "x.csv", b",,,\n,,,\n", "bad_row", "row*2"),
    Stored("a quote that never closes", "x.csv", b'1,2\n"3,4\n5,6\n', "row bad_row row",
           "row*3"),
    Stored("a quote that never closes, at the start", "x.csv", b'"1,2\n3,4\n', "bad_row row",
           "row*2"),
    Stored("a quote that closes too late", "x.csv", b'1,2\n"' + b"9,9\n" * 100 + b"3,4\n",
           "row bad_row row*100", "row*102", RowOptions(row_bytes=100)),
    Stored("a quote in the middle of a cell", "x.csv", _between(b'1"5,2'), _ROWS_BAD, "row*3"),
    Stored("text behind a quote", "x.csv", _between(b'"1"2,2'), _ROWS_BAD, "row*3"),
    Stored("text behind a quote, beside quoted cells", "x.csv", b'"1","2"\n' + _between(b'"1"2,2'),
           "row " + _ROWS_BAD),
    Stored("three quotes", "x.csv", b'1,2\n""",4\n5,6\n', "row bad_row row"),
    Stored("line ends of DOS and Unix", "x.csv", b"1,2\r\n3,4\n5,6\r\n", "row*3"),
    Stored("line ends of an old Mac", "x.csv", b"1,2\r3,4\r", "end:bad_format"),
    Stored("one line end of an old Mac", "x.csv", b"1,2\n3,4\r5,6\n7,8\n", _ROWS_BAD),
    Stored("carriage returns at the end", "x.csv", b"1,2\r\r\n3,4\n", "row row"),
    Stored("nan and inf", "x.csv", _between(b"nan,-inf"), "row*3"),
    Stored("nan with a payload", "x.csv", _between(b"nan(1),2"), _ROWS_BAD, "row*3"),
    Stored("a number beyond float32", "x.csv", _between(b"1e300,2"), "row*3"),
    Stored("a number beyond float64", "x.csv", _between(b"1e999,2"), "row*3", _ROWS_BAD),
    Stored("a number of 5,000 digits", "x.csv", _between(b"9" * 5000 + b",2"), "row*3", _ROWS_BAD),
    Stored("a fraction of 5,000 digits", "x.csv", _between(b"0." + b"1" * 5000 + b",2"), "row*3"),
    Stored("an exponent of 5,000 digits", "x.csv", _between(b"1e" + b"9" * 5000 + b",2"), "row*3",
           _ROWS_BAD),
    Stored("an underscore in a number", "x.csv", _between(b"1_0,2"), _ROWS_BAD, "row*3"),
    Stored("a hexadecimal number", "x.csv", _between(b"0x10,2"), _ROWS_BAD, "row*3"),
    Stored("brackets in a cell", "x.csv", _between(b"[1],2"), _ROWS_BAD, "row*3"),
    Stored("a row above the limit", "x.csv", _between(b"1," + b"2" * 200), _ROWS_BAD, None, _SHORT),
    Stored("a first row above the limit", "x.csv", b"1" * 200 + b"\n1,2\n", "end:too_large", None,
           _SHORT),
    Stored("a header above the limit", "x.csv", b"a," * 100 + b"\n1,2\n", "end:too_large", None,
           _SHORT),
    Stored("a last row above the limit", "x.csv", b"1,2\n" + b"3" * 200, "row bad_row", None,
           _SHORT),
    Stored("more columns than allowed", "x.csv", b"1,2,3,4,5\n1,2,3,4,5\n", "end:too_large", None,
           _NARROW),
    Stored("a row of more columns than allowed", "x.csv", _between(b"1,2,3,4,5"), _ROWS_BAD, None,
           _NARROW),
    Stored("three million columns", "x.csv", lambda: b"1," * 2_999_999 + b"1\n", "end:too_large"),
    Stored("a bad row, where that ends the object", "x.csv", _between(b"1"), "row end:bad_row",
           None, RowOptions(fail_on_bad_row=True)),
    Stored("no header, and texts", "x.csv", b"a,b\n1,2\n", "bad_row row", "row row", _NO_HEADER),
    Stored("nothing but bad rows", "x.csv", b"1,2\n" + b"x\n" * 500, "row bad_row*500"),
    Stored("JSON named CSV", "x.csv", b"[1,2]\n[3,4]\n", "bad_row", "row row"),
    Stored("HTML named CSV", "x.csv", b"<html>\n<b>404</b>\n</html>\n", "end:bad_format"),
]  # fmt: skip

_NDJSON = [
    Stored("a line that is no JSON", "x.ndjson", _line(b"hello"), _ROWS_BAD),
    Stored("a line that breaks off", "x.ndjson", _line(b"[1,"), _ROWS_BAD),
    Stored("two elements in a line", "x.ndjson", _line(b"[1,2][3,4]"), _ROWS_BAD),
    Stored("a comma behind an element", "x.ndjson", _line(b"[1,2],"), _ROWS_BAD),
    Stored("NaN", "x.ndjson", _line(b"[NaN,2]"), _ROWS_BAD),
    Stored("Infinity", "x.ndjson", _line(b"[-Infinity,2]"), _ROWS_BAD),
    Stored("a JSON number beyond float64", "x.ndjson", _line(b"[1e999,2]"), _ROWS_BAD),
    Stored("an integer of 5,000 digits", "x.ndjson", _line(b"[%b,2]" % (b"9" * 5000)), _ROWS_BAD),
    Stored("an integer beyond 64 bits", "x.ndjson", _line(b"[123456789012345678901234567890,2]"),
           "row*3"),
    Stored("a zero in front", "x.ndjson", _line(b"[01,2]"), _ROWS_BAD),
    Stored("true for a number", "x.ndjson", _line(b"[true,2]"), _ROWS_BAD, "row*3"),
    Stored("null for a number", "x.ndjson", _line(b"[null,2]"), _ROWS_BAD, "row*3"),
    Stored("a nested array", "x.ndjson", _line(b"[1,[2]]"), _ROWS_BAD, "row*3"),
    Stored("2,000 levels", "x.ndjson", _line(b"[" * 2000 + b"]" * 2000), _ROWS_BAD),
    Stored("a million brackets", "x.ndjson", _line(b"[" * 1_000_000), _ROWS_BAD),
    Stored("a million empty arrays", "x.ndjson", _line(b"[%b[]]" % (b"[]," * 1_000_000)),
           _ROWS_BAD),
    Stored("more values than allowed", "x.ndjson", _line(b"[1,2,3,4,5]"), _ROWS_BAD, None, _NARROW),
    Stored("a lone surrogate", "x.ndjson", _line(rb'["\ud800",2]'), _ROWS_BAD),
    Stored("invalid UTF-8", "x.ndjson", _line(b'["\xff",2]'), _ROWS_BAD),
    Stored("a NUL in a line", "x.ndjson", _line(b"[1,\x002]"), _ROWS_BAD),
    Stored("an escaped NUL", "x.ndjson", _line(rb'["\u0000",2]'), _ROWS_BAD, "row*3"),
    Stored("a control character in a string", "x.ndjson", _line(b'["\x01",2]'), _ROWS_BAD),
    Stored("a comment", "x.ndjson", _line(b"// [1,2]"), _ROWS_BAD),
    Stored("a line above the limit", "x.ndjson", _line(b"[%b]" % (b"1" * 200)), _ROWS_BAD, None,
           _SHORT),
    Stored("a file without a line end above the limit", "x.ndjson", b"[1,2]\n[" + b"1," * 500,
           "row bad_row", None, _SHORT),
    Stored("an object among arrays", "x.ndjson", _line(b'{"a":1,"b":2}'), _ROWS_BAD, "row*3"),
    Stored("an object without a key", "x.ndjson", b'{"a":1,"b":2}\n{"a":1}\n{"b":3,"a":4}\n',
           _ROWS_BAD, "row*3"),
    Stored("an object with a key twice", "x.ndjson", b'{"a":1,"a":2}\n', "bad_row", "row"),
    Stored("an empty array", "x.ndjson", _line(b"[]"), _ROWS_BAD, "row*3"),
    Stored("scalars", "x.ndjson", b'1\n"x"\nnull\ntrue\n', "bad_row*4", "row*4"),
    Stored("a byte order mark before NDJSON", "x.ndjson", b"\xef\xbb\xbf[1,2]\n", "row"),
    Stored("a byte order mark in the middle", "x.ndjson", _line(b"\xef\xbb\xbf[1,2]"), _ROWS_BAD),
    Stored("line ends of DOS in NDJSON", "x.ndjson", b"[1,2]\r\n\r\n[3,4]\r\n", "row row"),
    Stored("no line end at the end", "x.ndjson", b"[1,2]\n[3,4]", "row row"),
    Stored("binary data named NDJSON", "x.ndjson", bytes(range(256)), "end:bad_format"),
]  # fmt: skip

_ARRAYS = [
    Stored("an empty array of rows", "x.json", b"[]", "end"),
    Stored("an array that breaks off", "x.json", b"[[1,2],[3,4]", "row end:bad_format"),
    Stored("an array that breaks off in a string", "x.json", b'[[1,2],"', "row end:bad_format"),
    Stored("an opening bracket", "x.json", b" " * 600 + b"[", "end:bad_format"),
    Stored("something behind the array", "x.json", b"[[1,2],[3,4]]x", "row row end:bad_format"),
    Stored("two arrays", "x.json", b"[[1,2],[3,4]][[5,6]]", "bad_row*2", "row row"),
    Stored("a brace for a bracket", "x.json", b"[[1,2],[3,4]}", "row row end:bad_format"),
    Stored("an element missing", "x.json", _element(b""), "row end:bad_format"),
    Stored("a comma at the end", "x.json", b"[[1,2],]", "row end:bad_format"),
    Stored("an element that is no JSON", "x.json", _element(b"hello"), "row end:bad_format"),
    Stored("brackets crossed", "x.json", _element(b"[1,2}"), "row end:bad_format"),
    Stored("NaN in an array", "x.json", _element(b"[NaN,2]"), "row end:bad_format"),
    Stored("a lone surrogate in an array", "x.json", _element(rb'["\udfff"]'), _ROWS_BAD),
    Stored("100,000 levels", "x.json", _element(b"[" * 100_000 + b"]" * 100_000), _ROWS_BAD),
    Stored("an element above the limit", "x.json", _element(b"[%b]" % (b"1" * 200)),
           "row end:too_large", None, _SHORT),
    Stored("more values in an element than allowed", "x.json", _element(b"[1,2,3,4,5]"), _ROWS_BAD,
           None, _NARROW),
    Stored("two million values in an element", "x.json",
           lambda: _element(b"[%b1]" % (b"1," * 2_000_000)), _ROWS_BAD),
    Stored("a string for a row", "x.json", _element(b'"],["'), _ROWS_BAD, "row*3"),
    Stored("backslashes before a quote", "x.json", _element(rb'["\\\\\"]"]'), _ROWS_BAD, "row*3"),
    Stored("an object of rows", "x.json", b'{"rows":[[1,2]]}', "bad_row", "row"),
    Stored("HTML named JSON", "x.json", b"<html></html>", "end:bad_format"),
    Stored("UTF-16 named JSON", "x.json", "[[1,2]]".encode("utf-16"), "end:bad_format"),
    Stored("nothing named JSON", "x.json", b"", "end"),
    Stored("white space named JSON", "x.json", b" " * 2000, "end"),
]  # fmt: skip

_UNNAMED = [
    Stored("binary data", "x", bytes(range(256)) * 4, "end:bad_format"),
    Stored(
        "a NUL behind what is looked at",
        "x",
        b"1,2\n" * 128 + b"3,\0\n",
        "row*128 bad_row",
    ),
    Stored("UTF-16 without a name", "x", "1,2\n".encode("utf-16"), "end:bad_format"),
    Stored("nothing, without a name", "x", b"", "end"),
    Stored("a name that is an extension", ".csv", b"1,2\n", "row"),
    Stored("a name in capitals", "X.CSV.GZ", gzip.compress(b"1,2\n"), "row"),
    Stored("a misleading name", "x.json.csv", b"1,2\n", "row"),
]

OBJECTS = [*_CSV, *_NDJSON, *_ARRAYS, *_UNNAMED]
