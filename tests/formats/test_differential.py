"""CSV and JSON against readers that are not ours: as many rows, the same values, the same bad rows.

The seed is fixed; `PENSTOCK_DIFFERENTIAL_SECONDS=600` goes on with others for so long.
"""

import csv as stdlib_csv
import io
import json
import math
import os
import random
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Literal

import numpy as np
import orjson
import pytest
from pyarrow import csv as arrow_csv

from penstock.formats.runs import RowOptions
from penstock.formats.text.csv_dialect import CsvOptions
from tests.formats.support import decode_until_failure, rows_of

SECONDS = float(os.environ.get("PENSTOCK_DIFFERENTIAL_SECONDS", "0"))
FILES = 40
CELLS = [
    *("1", "2.5", "-3e4", " 7", "7 ", "+5", ".5", "5.", "007", "0x10", "nan", "-inf", "Infinity"),
    *("1e999", "1e-400", "NA", "", "null", "N/A", "1,2", "a\nb", 'a"b', '"', "abc", "é", "1_0"),
    *("\t1", "12345678901234567890", "9007199254740993", "0.1000000000000000055511151231257827"),
    *("1E+05", "true", "1;2", "[1", "{", "--1", "1 2", "\x1f", "nan(1)", "1\r2", "\r", "x\r\ny"),
]
NUMBERS = ["1", "2.5", "-3e4", "7", "0.25", "1e300", "-0"]


def draws() -> Iterator[random.Random]:
    for seed in range(FILES):
        yield random.Random(seed)
    until, seed = time.monotonic() + SECONDS, FILES
    while time.monotonic() < until:
        yield random.Random(seed)
        seed += 1


def table_of(draw: random.Random, width: int) -> list[list[str]]:
    """Mostly numbers; now and then a row of another width. No row is blank."""
    odd = draw.sample(CELLS, draw.choice([1, 3, 20]))
    share = draw.choice([0.003, 0.05, 0.4])
    rows = []
    for _ in range(draw.choice([3, 70, 300])):
        cells = width + (draw.random() < 0.005)
        row = [draw.choice(odd if draw.random() < share else NUMBERS) for _ in range(cells)]
        rows.append(row if any(cell.strip(" \t\r\n") for cell in row) else [*row[:-1], "1"])
    return rows


def written(draw: random.Random, table: Sequence[Sequence[str]], sign: str) -> bytes:
    """By Python's own writer; always quoted where the separator could be mistaken."""
    out = io.StringIO()
    quoting: Literal[0, 1] = draw.choice([stdlib_csv.QUOTE_MINIMAL, stdlib_csv.QUOTE_ALL])
    end = draw.choice(["\n", "\r\n"])
    stdlib_csv.writer(out, delimiter=sign, lineterminator=end, quoting=quoting).writerows(table)
    text = out.getvalue()
    return (text if draw.random() < 0.7 else text.removesuffix(end)).encode()


def number_of(cell: str) -> float | None:
    """As the documents say: what Python's `float` takes, but for underscores."""
    try:
        return None if "_" in cell or not cell.isascii() else float(cell)
    except ValueError:
        return None


def row_of(cells: Sequence[str], width: int, sign: str) -> list[object] | None:
    """The numbers of float32; None: it is bad. No number has the separator in it, be it a tab."""
    values = [None if sign in cell else number_of(cell) for cell in cells]
    if len(values) != width or None in values:
        return None
    with np.errstate(over="ignore"):
        rounded = np.array(values, np.float64).astype(np.float32).tolist()
    return ["nan" if math.isnan(value) else value for value in rounded]


def cuts_of(draw: random.Random, data: bytes) -> list[Sequence[int]]:
    few = sorted(draw.sample(range(1, len(data)), min(len(data) - 1, draw.choice([1, 3, 30]))))
    return [(), few, range(1, len(data), 1 if len(data) < 1_000 else 41)]


def read(data: bytes, key: str, options: RowOptions, cuts: Sequence[int]) -> list[object]:
    runs, failure = decode_until_failure(data, key, options, cuts=cuts)
    assert failure is None, failure
    return [row for _, row in rows_of(runs)]


def good(rows: Sequence[object]) -> list[object]:
    """None for a bad one."""
    return [None if isinstance(row, str) else row for row in rows]


def test_csv_is_what_another_reader_says() -> None:
    for draw in draws():
        width = draw.choice([2, 3])
        sign = draw.choice([",", ",", ";", "\t", "|"])
        table = table_of(draw, width)
        header = draw.choice([["a", "b", "c"], ["x\ny", "b", 'c"'], ["T, C", "u;v", "w"]])[:width]
        data = written(draw, [header, *table], sign)
        names = {",": "comma", ";": "semicolon", "\t": "tab", "|": "pipe"}
        options = RowOptions(own=(CsvOptions(header="yes", delimiter=names[sign]),))  # type: ignore[arg-type]
        again = list(stdlib_csv.reader(io.StringIO(data.decode(), newline=""), delimiter=sign))
        if b"\r" not in data.replace(b"\r\n", b""):  # for that reader it ends a row
            assert [row for row in again if row] == [header, *table]
        expected = [row_of(row, width, sign) for row in table]
        chosen = [None if row is None else [row[1], row[0]] for row in expected]
        loose = [row_of(row[:2], 2, sign) if len(row) == width else None for row in table]
        for cuts in cuts_of(draw, data):
            assert good(read(data, "x.csv", options, cuts)) == expected
            if width == 2:
                swapped = replace(options, columns=[1, 0])
                assert good(read(data, "x.csv", swapped, cuts)) == chosen
            else:
                assert good(read(data, "x.csv", replace(options, columns=[0, 1]), cuts)) == loose
            kept = decode_until_failure(
                data, "x.csv", replace(options, keep=[header[0]], columns=[0, 1]), cuts=cuts
            )[0]
            assert sum(run.rows for run in kept) == len(table)


def test_texts_of_csv_are_what_another_reader_says() -> None:
    for draw in draws():
        table = [[f"r{number}", *row[:2]] for number, row in enumerate(table_of(draw, 2))]
        sign = draw.choice([",", ";", "\t"])
        data = written(draw, [["id", "a", "b"], *table], sign)
        for cuts in cuts_of(draw, data):
            rows = read(
                data, "x.csv", RowOptions(form="json", own=(CsvOptions(header="yes"),)), cuts
            )
            assert len(rows) == len(table)
            for row, cells in zip(rows, table, strict=True):
                if isinstance(row, bytes):
                    values = json.loads(row, parse_int=str, parse_float=str)
                    assert ["" if value is None else value for value in values] == [
                        cell.strip(" \t\r") if value not in (None, cell) else cell
                        for value, cell in zip(values, cells, strict=True)
                    ]
                else:
                    assert any(number_of(cell) in (math.inf, -math.inf) for cell in cells)


def test_tables_of_numbers_are_what_arrow_says() -> None:
    for draw in draws():
        rows = draw.choice([5, 65, 400])
        table = [[repr(draw.uniform(-1e9, 1e9)), draw.choice(NUMBERS)] for _ in range(rows)]
        data = written(draw, [["a", "b"], *table], ",")
        found = arrow_csv.read_csv(io.BytesIO(data))
        columns = [found.column(name).cast("float64").to_numpy() for name in ("a", "b")]
        with np.errstate(over="ignore"):
            expected = np.stack(columns, axis=1).astype(np.float32).tolist()
        for cuts in cuts_of(draw, data):
            assert read(data, "x.csv", RowOptions(), cuts) == expected


def value_of(draw: random.Random, depth: int = 0) -> object:
    kind = draw.randrange(8 if depth < 3 else 6)
    if kind == 0:
        return draw.randrange(-(10**20), 10**20)
    if kind == 1:
        return draw.random() * 10.0 ** draw.randrange(-300, 300)
    if kind == 2:
        return draw.choice([None, True, False])
    if kind < 6:
        return "".join(draw.choice('a"\\\n\u2028,[]{}é😀\t ') for _ in range(draw.randrange(9)))
    many = [value_of(draw, depth + 1) for _ in range(draw.randrange(4))]
    return many if kind == 6 else {f"k{at}": value for at, value in enumerate(many)}


def test_json_is_what_another_reader_says_in_both_forms() -> None:
    for draw in draws():
        values = [value_of(draw) for _ in range(draw.randrange(1, 40))]
        ascii_ = draw.random() < 0.5
        lines = [json.dumps(value, ensure_ascii=ascii_) for value in values]
        array = json.dumps(values, ensure_ascii=ascii_, indent=draw.choice([None, None, 1]))
        end = draw.choice(["", "\n", "\r\n"])
        options = RowOptions(form="json")
        for key, text in (("x.ndjson", "\n".join(lines) + end), ("x.json", array + end)):
            data = text.encode()
            for cuts in cuts_of(draw, data):
                rows = read(data, key, options, cuts)
                assert [json.loads(row) for row in rows if isinstance(row, bytes)] == values


def test_a_value_is_one_row_alone_among_many_and_in_both_forms() -> None:
    """Read at once, row by row, as a line and as an element: the same rows are bad."""
    odd = [
        *('["1",2]', "[1]", "[1,2,3]", "[1e309,2]", "[true,1]", "[null,1]", '{"a":1,"b":2}', "5"),
        *("[[1],2]", "[1,[2]]", "[18446744073709551616,2]", "[1, 2 ]", " [3,4]", "[-0,1E5]"),
        *('["\\ud83d",1]', "[1,2e-400]", "[0.1,123456789012345678901234567890]", "[]", "null"),
    ]
    for draw in draws():
        share = draw.choice([0.01, 0.1, 0.5])
        rows = ["[7,8]"] + [
            draw.choice(odd) if draw.random() < share else f"[{draw.randrange(99)},0.5]"
            for _ in range(draw.choice([3, 64, 200]))
        ]
        lines, array = "\n".join(rows).encode(), f"[{','.join(rows)}]".encode()
        together = read(lines, "x.ndjson", RowOptions(), ())
        for cuts in cuts_of(draw, lines):
            assert read(lines, "x.ndjson", RowOptions(), cuts) == together
        for cuts in cuts_of(draw, array):
            assert read(array, "x.json", RowOptions(), cuts) == together
        for row, found in zip(rows, together, strict=True):
            assert [found] == read(f"[7,8]\n{row}".encode(), "x.ndjson", RowOptions(), ())[1:]
            try:
                value = orjson.loads(row)
                numbers = [type(one) in (int, float) for one in value]
            except (TypeError, orjson.JSONDecodeError):
                numbers = []
            assert isinstance(found, str) is not (numbers == [True, True])


@pytest.mark.parametrize("key", ["x.csv", "x.ndjson", "x.json"])
def test_cut_at_every_byte_is_read_as_whole(key: str) -> None:
    body = {
        "x.csv": b'"a\nx";b\r\n1;2\r3\n"4";5\n\n6;"7""\n8"\n9;1,5\n',
        "x.ndjson": b'[1,2]\r\n \n[3,"\\ud83d"]\n[1e999,2]\n[5,6',
        "x.json": b'[[1,2],\n["]",2],[3,[4]],\n\n[5e999,6],[7,8]] ',
    }[key]
    for options in (RowOptions(), RowOptions(form="json")):
        whole = decode_until_failure(body, key, options)
        for cut in range(1, len(body)):
            runs = decode_until_failure(body, key, options, cuts=[cut])
            assert rows_of(runs[0]) == rows_of(whole[0])
            assert str(runs[1]) == str(whole[1])
