"""Makes rows of JSON texts: of the lines of NDJSON, or of the elements of a JSON array.

Rule: a row of numbers is an array, or an object whose values are taken in the order of
`rows.columns`, else of the first row's keys. The first row fixes how many numbers a row has. Rows
that go as JSON are handed on unchanged, after a check (NaN, Infinity and nesting above 1024 are not
valid).
"""

import json
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from typing import Any

import numpy as np
import orjson

from penstock.core.rows.payload import JsonRows, Matrix
from penstock.errors import Poison
from penstock.formats.kept_columns import KeepRows, of_json, with_kept
from penstock.formats.runs import (
    MOST_EXACT_ROWS,
    BadRow,
    RowOptions,
    Run,
    read_rows,
    shown,
)
from penstock.formats.text.lines import RawRows, rows_of, split_first
from penstock.formats.text.numbers_in_bulk import join_floats, parse_halving, parse_table, portions
from penstock.formats.text.text_and_bytes import LinesParser

_SPACE = b" \t\r\n"
_FLAT_ARRAYS = re.compile(rb"(?:[ \t]*+\[[^\[\]\n]*+\][ \t\r]*+\n)*+")
_BRACKETS_TO_SPACES = bytes.maketrans(b"[]", b"  ")
_NUMBERS = {int, float}
# At most this many kept values are looked at in one turn. This takes 1 ms.
_MOST_KEPT = 2_048
# Only the first line of a value over several lines is one of these.
_OPENINGS = (b"{", b"[", b"[{", b"[ {")


def open_ndjson(options: RowOptions) -> LinesParser:
    """The parser of NDJSON. A line that is not JSON is one bad row, and the lines after it are
    read.
    """
    return LinesParser(options, JsonRowReader(options, broken=BadRow).read)


class JsonRowReader:
    """Reads rows of JSON, and remembers the width or the keys that the first row has fixed."""

    def __init__(self, options: RowOptions, *, broken: Callable[[str], Exception]) -> None:
        """`broken`: a function that makes the error for text that is not JSON. The error is
        `BadRow`, or `Poison` if the rest of the object cannot be read either.
        """
        self._matrix = options.as_numbers
        self._max_values = options.max_columns
        self._broken = broken
        columns = options.columns or ()
        self._keys: Sequence[str] = [name for name in columns if isinstance(name, str)]
        self._indexes = [index for index in columns if isinstance(index, int)]
        # How many values a row has if it is an array; 0 until the first such row has come.
        self._width = 0
        self._stays = options.stays
        self._keep = of_json(options) if options.stays else None

    def read(self, block: RawRows) -> Iterable[Run]:
        return self._read(block) if self._keep is None else self._read_kept(block, self._keep)

    def _read_kept(self, block: RawRows, keep: KeepRows) -> Iterator[Run]:
        """Read the block in small portions of rows, because kept values are looked at row by
        row.
        """
        most_rows = max(1, min(MOST_EXACT_ROWS, _MOST_KEPT // len(self._stays)))
        for some in portions(block, most_rows):
            yield from with_kept(self._read(some), rows_of(some), keep)

    def _read(self, block: RawRows) -> Iterable[Run]:
        if not self._matrix:
            return read_rows(rows_of(block), self._element, JsonRows.of)
        if not (self._width or self._keys):
            with suppress(BadRow):  # the same row is read again below, which reports its error
                self._numbers(split_first(block)[0])
        if self._keys:
            return self._exact(rows_of(block))
        return parse_halving(block, self._bulk, self._exact)

    def _bulk(self, block: RawRows) -> Run | None:
        """The run of lines that are arrays of numbers and all as wide as the first row. None: some
        lines are something else.
        """
        if not (self._width and isinstance(block, bytes) and _FLAT_ARRAYS.fullmatch(block)):
            return None
        values = parse_table(block.translate(_BRACKETS_TO_SPACES), self._width)
        if values is None:
            return None
        if self._indexes:
            values = np.take(values, self._indexes, axis=1)
        return Run(len(values), Matrix(values))

    def _exact(self, rows: list[bytes]) -> Iterator[Run]:
        return read_rows(rows, self._numbers, join_floats)

    def _element(self, row: bytes) -> bytes:
        self._loads(row)
        return row.strip(_SPACE)

    def _loads(self, row: bytes) -> Any:
        if len(row) > self._max_values and _most_values(row) > self._max_values:
            raise BadRow(f"row has more than {self._max_values} values (limits.columns)")
        try:
            return orjson.loads(row)
        except orjson.JSONDecodeError:
            raise self._why_unread(row.strip(_SPACE)) from None

    def _why_unread(self, row: bytes) -> Exception:
        """The error for a row that orjson refused. The row may still be JSON: a number beyond
        float64, or half of a surrogate pair, is JSON but has no value in Python.
        """
        try:
            # Read the row again without the blanks around it, so that the error counts columns from
            # the row's first byte.
            orjson.loads(row)
        except orjson.JSONDecodeError as error:
            why = str(error)
        if row in _OPENINGS:
            return Poison(
                "bad_format",
                f'a line has nothing but "{row.decode()}": behind values in lines, a value is laid '
                "out over several lines; write each value on one line",
            )
        try:
            if is_json(row):
                return BadRow(f"row is JSON that cannot be read: {why}")
        except RecursionError:
            return BadRow(f"row is not JSON: {why}")
        return self._broken(f"row is not JSON: {why}")

    def _numbers(self, row: bytes) -> list[float]:
        value = self._loads(row)
        if isinstance(value, list):
            values = self._of_array(value)
        elif isinstance(value, dict):
            # This also counts names of inner objects, but not the colons of times.
            if row.count(b'":') + row.count(b'" :') > len(value):
                json.loads(row.decode(errors="replace"), object_pairs_hook=_once_each)
            values = self._of_object(value)
        else:
            raise BadRow(f"row is {shown(row.strip(_SPACE))}, expected an array or an object")
        if not _NUMBERS.issuperset(map(type, values)):
            index = next(at for at, value in enumerate(values) if type(value) not in _NUMBERS)
            of = f" of {shown(orjson.dumps(self._keys[index]))}" if self._keys else ""
            choose = "; choose keys by rows.columns" if self._keys else ""
            bad = shown(orjson.dumps(values[index]))
            raise BadRow(f"value {bad}{of} is not a number{choose}")
        return values

    def _of_array(self, row: list[Any]) -> list[Any]:
        if self._keys:
            raise BadRow("row is an array, expected an object")
        if not self._width:
            if not row:
                raise BadRow("row is empty")
            if self._indexes and not 0 <= min(self._indexes) <= max(self._indexes) < len(row):
                raise BadRow(f"row has {len(row)} values, but rows.columns asks for others")
            self._width = len(row)
        if len(row) != self._width:
            raise BadRow(f"row has {len(row)} values, expected {self._width}")
        return [row[index] for index in self._indexes] if self._indexes else row

    def _of_object(self, row: dict[str, Any]) -> list[Any]:
        if self._width or self._indexes:
            raise BadRow("row is an object, expected an array")
        if not self._keys:
            if not row:
                raise BadRow("row is empty")
            self._keys = [key for key in row if key not in self._stays]
        try:
            return [row[key] for key in self._keys]
        except KeyError as missing:
            raise BadRow(f"row has no {shown(orjson.dumps(missing.args[0]))}") from None


def is_json(text: bytes | bytearray) -> bool:
    """True if the text follows JSON's grammar. Bytes that are not UTF-8 count as letters."""
    try:
        json.loads(
            text.decode(errors="replace"), parse_int=str, parse_float=str, parse_constant=_refuse
        )
    except ValueError:
        return False
    return True


def _once_each(pairs: list[tuple[str, Any]]) -> None:
    """Raises `BadRow` if an object has a name twice, because readers differ in which value they
    take.
    """
    names: set[str] = set()
    for name, _ in pairs:
        if name in names:
            raise BadRow(f"row has {shown(orjson.dumps(name))} twice")
        names.add(name)


def _refuse(constant: str) -> None:
    raise ValueError(constant)  # NaN, Infinity and -Infinity are not JSON


def _most_values(row: bytes) -> int:
    """The row has at most this many values. Each value, except for the outermost one, follows a
    comma, a bracket or a colon, so these are counted.
    """
    return row.count(b",") + row.count(b"[") + row.count(b"{") + row.count(b":")
