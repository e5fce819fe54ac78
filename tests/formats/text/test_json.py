"""JSON: arrays, lines, one value, values one after the other; bad rows, broken values, paths."""

import json

import pytest

from penstock.errors import Poison
from penstock.formats.runs import RowOptions
from penstock.formats.text.json_layout import JsonOptions
from tests.formats.support import decode, decode_until_failure, elements, errors, matrix, rows_of

JSON = RowOptions(form="json")
A = RowOptions(columns=["a"])


def test_lines_of_arrays_are_a_matrix() -> None:
    rows = [[i, i + 0.5, -i] for i in range(300)]
    data = "\n".join(map(json.dumps, rows)).encode() + b"\n"
    [run] = decode(data, "x.ndjson")
    assert matrix([run]) == rows


@pytest.mark.parametrize("key", ["x.ndjson", "x.json"])
def test_objects_give_their_values_in_the_order_of_the_first_rows_keys(key: str) -> None:
    rows = [b'{"a":1,"b":2}', b'{"b":4,"x":"y","a":3}']
    data = b"\n".join(rows) if key == "x.ndjson" else b"[" + b",".join(rows) + b"]"
    assert matrix(decode(data, key)) == [[1, 2], [3, 4]]


def test_columns_choose_keys_of_objects_and_places_of_arrays() -> None:
    objects = b'{"a":1,"b":2,"c":"x"}\n' * 2
    assert matrix(decode(objects, "x.ndjson", RowOptions(columns=["b", "a"]))) == [[2, 1]] * 2
    for text in (b"[1,2,3]\n", b'[1,2,"x"]\n'):
        options = RowOptions(columns=[1, 0])
        assert matrix(decode(text * 100, "x.ndjson", options)) == [[2, 1]] * 100


@pytest.mark.parametrize(
    ("line", "error"),
    [
        (b"[1,2,3]", "row has 3 values, expected 2"),
        (b"[]", "row has 0 values, expected 2"),
        (b'[1,"2"]', 'value "2" is not a number'),
        (b"[1,true]", "value true is not a number"),
        (b"[1,[2]]", "value [2] is not a number"),
        (b"5", "row is 5, expected an array or an object"),
        (b'{"a":1}', "row is an object, expected an array"),
    ],
)
@pytest.mark.parametrize("rows", [1, 100])
def test_a_bad_line_says_what_is_wrong_and_the_next_lines_are_read(
    line: bytes, error: str, rows: int
) -> None:
    good = b"[1,2]\n" * rows
    runs = decode(good + line + b"\n" + good, "x.ndjson")
    expected = [*[[1, 2]] * rows, error, *[[1, 2]] * rows]
    assert [row for _, row in rows_of(runs)] == expected


@pytest.mark.parametrize("line", [b"[]", b"[ ]"])
def test_an_empty_array_is_no_row_of_one_number(line: bytes) -> None:
    assert (
        errors(decode(b"[1]\n" + line + b"\n" + line, "x.ndjson"))
        == ["row has 0 values, expected 1"] * 2
    )


def test_an_object_without_a_key_names_it() -> None:
    assert errors(decode(b'{"a":1,"b":2}\n{"a":1}\n', "x.ndjson")) == ['row has no "b"']


@pytest.mark.parametrize("line", [b"[1,NaN]", b"[1,2", b"\xff", b"[1] [2]", b"[" * 2000])
@pytest.mark.parametrize("options", [RowOptions(), JSON])
def test_a_line_that_is_not_json_is_one_bad_row(line: bytes, options: RowOptions) -> None:
    runs = decode(b"[1,2]\n" + line + b"\n[3,4]\n", "x.ndjson", options)
    assert len(rows_of(runs)) == 3
    assert errors(runs)[0].startswith("row is not JSON: ")


def test_json_rows_are_handed_on_as_they_came() -> None:
    lines = [b'{"a": [1.50, "x,y]"]}', b"7", b'"\xc3\xbc\\""', b"null"]
    expected = [(None, line) for line in lines]
    assert rows_of(decode(b"\n".join(lines), "x.ndjson", JSON)) == expected
    assert rows_of(decode(b"[" + b" ,\n".join(lines) + b"]", "x.json", JSON)) == expected


@pytest.mark.parametrize("indent", [None, 2])
@pytest.mark.parametrize("rows", [0, 1, 200])
def test_an_array_is_split_into_its_rows_however_it_is_laid_out(
    rows: int, indent: int | None
) -> None:
    values = [[i, 0.5] for i in range(rows)]
    texts: list[object] = [["a]", '\\"[', {"k": [{"]": "}"}]}, "\\"], "x,y"] * rows
    laid_out = json.dumps(values, indent=indent).encode()
    assert matrix(decode(laid_out, "x.json")) == values
    assert elements(decode(json.dumps(texts, indent=indent).encode(), "x.json", JSON)) == texts


def test_a_row_of_an_array_that_is_no_row_of_numbers_is_one_bad_row() -> None:
    runs = decode(b'[[1,2],["x",2],[3,4]]', "x.json")
    assert [row for _, row in rows_of(runs)] == [[1, 2], 'value "x" is not a number', [3, 4]]
    runs = decode(b'[{"a":1,"b":"x"}]', "x.json")
    assert errors(runs) == ['value "x" of "b" is not a number; choose keys by rows.columns']


@pytest.mark.parametrize(
    "data",
    [
        b"[[1,2],,[3,4]]",
        b"[[1,2],]",
        b"[[1,2]",
        b"[[1,2]}",
        b"[[1,2}]",
        b"[[1,2]] x",
        b"5 6",
        b'["x]',
    ],
)
def test_broken_syntax_in_an_array_is_a_bad_format(data: bytes) -> None:
    for options in (RowOptions(), JSON):
        with pytest.raises(Poison) as failure:
            decode(data, "x", options, format="json")
        assert failure.value.code == "bad_format"


def test_a_line_above_the_limit_is_a_bad_row_but_in_an_array_too_large() -> None:
    options = RowOptions(row_bytes=20)
    long = b"[" + b"1," * 30 + b"1]"
    runs = decode(b"[1,2]\n" + long + b"\n[3,4]", "x.ndjson", options)
    assert len(rows_of(runs)) == 3
    assert errors(runs) == ["row is longer than 20 bytes (limits.row_bytes)"]
    with pytest.raises(Poison, match="row 1 is longer") as failure:
        decode(b"[[1,2]," + long + b",[3,4]]", "x", options, format="json")
    assert failure.value.code == "too_large"


BEYOND = [
    b"1e309",
    b"1" + b"0" * 400,
    b'"\\ud83d"',
    b'"\\ude00x"',
    b'"\xff"',
    b"[" * 1100 + b"]" * 1100,
]


@pytest.mark.parametrize("options", [RowOptions(), JSON])
@pytest.mark.parametrize("value", BEYOND)
def test_json_that_no_reader_holds_is_the_same_bad_row_in_both_forms(
    value: bytes, options: RowOptions
) -> None:
    rows = [b"[1,2]", b"[%b, 2]" % value, b"[3,4]"]
    lines = rows_of(decode(b"\n".join(rows), "x.ndjson", options))
    assert [isinstance(row, str) for _, row in lines] == [False, True, False]
    for separator in (b",", b" ,\n  "):
        array = b"[" + separator.join(rows) + b"]"
        for cuts in ((), range(len(array))):
            assert rows_of(decode(array, "x.json", options, cuts=cuts)) == lines


def test_a_number_that_is_no_json_breaks_an_array() -> None:
    for value in (b"NaN", b"-Infinity", b"01", b"1.", b".5", b"'a'", b"[1,]"):
        with pytest.raises(Poison, match="row is not JSON") as failure:
            decode(b"[[1,2],[%b,2],[3,4]]" % value, "x.json")
        assert failure.value.code == "bad_format"


TEXTS = ["a", "b,]", 'c"[', "", "\u2028"]
NESTED = [[[1, 2], [3, 4]], [[5, 6]], [], [{"a": "]"}]]


@pytest.mark.parametrize("end", ["", "\n", "\r\n\r\n "])
@pytest.mark.parametrize("key", ["x.json", "x"])
@pytest.mark.parametrize("pieces", [1, 7, 10_000])
def test_the_grammar_tells_an_array_from_rows_in_lines(key: str, end: str, pieces: int) -> None:
    def read(text: str) -> list[object]:
        data = text.encode()
        return elements(decode(data, key, JSON, cuts=range(pieces, len(data), pieces)))

    if key == "x.json":
        assert read(json.dumps(TEXTS) + end) == TEXTS
        assert read("[1]" + end) == [1]
    assert read(json.dumps(TEXTS, indent=1) + end) == TEXTS
    assert read(json.dumps(TEXTS).replace(", ", ",\n", 1) + end) == TEXTS
    assert read("\n ".join(map(json.dumps, NESTED)) + end) == NESTED
    assert read("\n".join(map(json.dumps, [TEXTS, 5, None])) + end) == [TEXTS, 5, None]
    assert read(json.dumps(NESTED) + end) == NESTED
    assert read("[]" + end) == []


def test_a_first_line_too_long_for_a_row_is_not_held() -> None:
    options = RowOptions(form="json", row_bytes=100)
    data = json.dumps([[number] for number in range(500)]).encode()
    cuts = range(50, len(data), 50)
    runs = decode(data, "x.json", options, cuts=cuts)
    assert elements(runs) == [[number] for number in range(500)]
    assert len(runs) > 10


def read(text: str, key: str, pieces: int, options: RowOptions = JSON) -> list[object]:
    data = text.encode()
    return elements(decode(data, key, options, cuts=range(pieces, len(data), pieces)))


VALUES: list[object] = [{"a": [1, {"b": "}{"}], "c": '\\"{'}, {}, {"a": None}]


@pytest.mark.parametrize("key", ["x.json", "x.geojson", "x.ndjson", "x"])
@pytest.mark.parametrize("pieces", [1, 7, 10_000])
def test_one_value_is_one_row_however_it_is_laid_out(key: str, pieces: int) -> None:
    for indent in (None, 0, 2, "\t"):
        for end in ("", "\n", "\r\n\n"):
            assert read(json.dumps(VALUES[0], indent=indent) + end, key, pieces) == VALUES[:1]


@pytest.mark.parametrize("key", ["x.json", "x.ndjson", "x"])
@pytest.mark.parametrize("pieces", [1, 7, 10_000])
@pytest.mark.parametrize("between", ["", " ", "\n", "\n\x1e"])
@pytest.mark.parametrize("indent", [None, 2])
def test_values_that_follow_each_other_are_the_rows(
    key: str, pieces: int, between: str, indent: int | None
) -> None:
    for values in (VALUES, [[1, [2]], [3]]):
        text = between.join(json.dumps(value, indent=indent) for value in values)
        assert read(between.lstrip("\n ") + text, key, pieces) == values


@pytest.mark.parametrize("text", ["5", '"x"', "null", "-0.0", "true\n", "1\n2\n\n3"])
def test_a_scalar_is_a_row(text: str) -> None:
    assert read(text, "x.json", 1) == [json.loads(line) for line in text.split()]


def test_lines_that_a_value_over_several_lines_follows_are_refused_there() -> None:
    runs, failure = decode_until_failure(b'{}\n{\n"a": [\n3\n]\n}\n', "x.ndjson", JSON)
    assert elements(runs) == [{}]
    assert "over several lines" in str(failure)


@pytest.mark.parametrize(
    "text", [b'{"a":1},{"b":2}', b'{"a":1,\n{"b":2}\n', b'{"a": 1}}\n{"b": 2}', b"{\\rtf1}", b"{"]
)
def test_what_is_no_layout_of_json_is_refused(text: bytes) -> None:
    _, failure = decode_until_failure(text, "x.json", JSON)
    assert failure is not None
    assert failure.code == "bad_format"


def test_a_damaged_first_line_of_ndjson_is_one_bad_row() -> None:
    for line in (b'{"a":1,', b'{"a":1}}', b'{"a":"x}', b'"b":2}', b"[1,2"):
        rows = rows_of(decode(line + b'\n{"b":2}\n{"b":3}\n', "x.ndjson", JSON))
        assert [value for _, value in rows[1:]] == [b'{"b":2}', b'{"b":3}']
        assert "row is not JSON" in str(rows[0][1])


def at(path: str) -> RowOptions:
    return RowOptions(form="json", own=(JsonOptions(path),))


def test_beside_the_rows_a_number_may_have_any_length() -> None:
    data = b'{"meta":' + b"1" * 5_000 + b',"rows":[[1,2]]}'
    assert [run.rows for run in decode(data, "x.json", at("/rows"))] == [1]


@pytest.mark.parametrize("key", ["x.json", "x.ndjson", "x"])
@pytest.mark.parametrize("pieces", [1, 7, 10_000])
@pytest.mark.parametrize("indent", [None, 1])
@pytest.mark.parametrize(
    ("path", "document"),
    [
        ("/features", {"n": {"features": [9]}, "s": '"features":[8]', "features": VALUES}),
        ("/hits/hits", {"hits": {"total": [1], "hits": VALUES}, "z": [{"q": 1}]}),
        ("/1/a", [{"a": [5]}, {"b": 1, "a": VALUES}, 7]),
        ("/~1~0/\u00fc", {"/~": {"\u00fc": VALUES}}),
        ("", VALUES),
    ],
)
def test_a_path_leads_to_the_array_of_rows(
    key: str, pieces: int, indent: int | None, path: str, document: object
) -> None:
    text = json.dumps(document, indent=indent)
    assert read(text, key, pieces, at(path)) == VALUES
    assert read(text + text, key, pieces, at(path)) == VALUES * 2


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (b'{"b": [1]}', "is not there"),
        (b'{"a": "[1]"}', "is no array"),
        (b'{"a": {"a": [1]}}', "is an object"),
        (b'{"a": [1, 2', "ends early, in row 1"),
        (b'{"a": [1, 2]', "ends early, in row 2"),
        (b'{"a": [1, 2] x}', "around the array"),
        (b'{"a" [', "ends"),
        (b'{"a": [1]} x', "ends"),
        (b"5", "ends"),
    ],
)
def test_a_path_that_leads_nowhere_is_refused(text: bytes, words: str) -> None:
    for cuts in ((), range(1, len(text))):
        _, failure = decode_until_failure(text, "x.json", at("/a"), cuts=cuts)
        assert words in str(failure)


@pytest.mark.parametrize(
    ("text", "path", "key"),
    [
        (b'{"a":[1],"a":[2]}', "/a", "a"),
        (b'{"a":[1],"\\u0061":7}', "/a", "a"),
        (b'{"b":{"a":[1]},"c":0,"b":0}', "/b/a", "b"),
        (b'{"b":[0,{"a":[1],"a":0}]}', "/b/1/a", "a"),
    ],
)
def test_a_key_twice_on_the_way_of_a_path_is_refused(text: bytes, path: str, key: str) -> None:
    for cuts in ((), range(1, len(text))):
        runs, failure = decode_until_failure(text, "x.json", at(path), cuts=cuts)
        assert elements(runs) == [1]
        assert f'"{key}" comes twice' in str(failure)
    beside = b'{"x":1,"a":[1],"x":{"a":0,"a":1}}'
    assert elements(decode(beside, "x.json", at("/a"))) == [1]


def test_what_is_around_the_array_of_a_path_is_held_up_to_the_limit() -> None:
    rows = json.dumps([[number] for number in range(500)])
    options = RowOptions(row_bytes=100, own=(JsonOptions("/a"),))
    data = b'{"a": %b, "b": 1}' % rows.encode()
    assert len(matrix(decode(data, "x.json", options, cuts=range(50, len(data), 50)))) == 500
    with pytest.raises(Poison, match=r"limits\.row_bytes"):
        decode(b'{"b": "%b", "a": []}' % (b"x" * 200), "x.json", options)


def test_a_name_twice_is_a_bad_row_of_numbers() -> None:
    for row in (b'{"a":1,"a":2}', b'{"a" : 1, "b" : 2, "a" : 3}'):
        assert errors(decode(b'{"a":1,"t":"12:30"}\n' + row, "x.ndjson", A)) == [
            'row has "a" twice'
        ]
    assert matrix(decode(b'{"a":1,"b":{"a":2}}\n', "x.ndjson", A)) == [[1]]
