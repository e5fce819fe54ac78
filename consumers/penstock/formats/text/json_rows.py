"""Makes rows of JSON: of the lines of NDJSON, of the elements of an array, or of values that follow
each other, which are cut by their brackets, whatever they hold.

Rule: a row of numbers is an array, or an object whose values are taken in the order of
`rows.columns`, else of the first row's keys. The first row fixes how many numbers a row has. Rows
that go as JSON are handed on unchanged, after a check (NaN, Infinity and nesting above 1024 are not
valid). The text comes in pieces, which may be cut anywhere; only the row that is not complete is
held, up to `limits.row_bytes`.
"""

import json
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from itertools import pairwise, takewhile
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import orjson

from penstock.core.rows.payload import JsonRows, Matrix
from penstock.errors import Poison
from penstock.formats.kept_columns import KeepRows, of_json, with_kept
from penstock.formats.parser_chain import Parser
from penstock.formats.runs import (
    MOST_EXACT_ROWS,
    BadRow,
    RowOptions,
    Run,
    read_rows,
    shown,
)
from penstock.formats.text.lines import (
    RawRows,
    join_floats,
    parse_halving,
    parse_table,
    portions,
    rows_of,
    split_first,
)
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


# The text is divided in pieces of this size. To find the cuts in a piece takes forty times the
# memory of the piece, and takes 3 ms if its rows have one byte each.
_PIECE_BYTES = 8 << 10
# Blanks between values. The last one begins each value of a JSON text sequence (RFC 7464).
BLANK: Final = b" \t\r\n\x1e"
_QUOTE, _COMMA, _END = ord('"'), ord(","), ord("]")
_ESCAPE = re.compile(rb"\\.", re.DOTALL)

# Two tables for all 256 bytes: how the byte changes the depth of brackets, and whether it matters
# for finding the cuts.
_STEP = np.zeros(256, np.int64)
_STEP[list(b"[{")] = 1
_STEP[list(b"]}")] = -1
_MATTERS = np.zeros(256, np.bool_)
_MATTERS[list(b'[]{},"')] = True


class Brackets:
    """Follows the brackets outside of strings in a text that comes in pieces."""

    def __init__(self, depth: int) -> None:
        self.depth = depth
        self._in_string = 0
        self._escaped = False  # the last byte was a backslash that escapes the next byte

    def cut(self, data: bytes) -> tuple[list[int], bool]:
        """Returns the places of the commas at depth 1, and True if the last of these places is not
        a comma, but the array's end.
        """
        at, kinds, depths = self._marks(data)
        cuts = at[(depths == 1) & (kinds == _COMMA)]
        ends = at[depths == 0]
        if len(ends):
            return [*cuts[cuts < ends[0]].tolist(), int(ends[0])], True
        return cuts.tolist(), False

    def ends(self, data: bytes) -> list[int]:
        """The places behind the brackets that end a value. A bracket too many ends one, too."""
        at, kinds, depths = self._marks(data)
        ends: list[int] = (at[(depths <= 0) & (_STEP[kinds] < 0)] + 1).tolist()
        return ends

    def _marks(
        self, data: bytes
    ) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.uint8], npt.NDArray[np.int64]]:
        """The places of all brackets and commas outside of strings, what they are, and the depth
        behind each.
        """
        text = self._without_escapes(data)
        bytes_ = np.frombuffer(text, np.uint8)
        at = np.flatnonzero(_MATTERS[bytes_])
        kinds = bytes_[at]
        quotes = kinds == _QUOTE
        in_string = (np.cumsum(quotes) + self._in_string) & 1
        if len(at):
            self._in_string = int(in_string[-1])
        outside = ~quotes & (in_string == 0)
        at, kinds = at[outside], kinds[outside]
        depths = np.cumsum(_STEP[kinds]) + self.depth
        if len(at):
            self.depth = int(depths[-1])
        return at, kinds, depths

    def _without_escapes(self, data: bytes) -> bytes:
        """`data` with each backslash and the byte that it escapes replaced by two other bytes."""
        if self._escaped and data:
            data = b"_" + data[1:]
            self._escaped = False
        if b"\\" not in data:
            return data
        data = _ESCAPE.sub(b"__", data)
        self._escaped = data.endswith(b"\\")
        return data


class RowTexts:
    """Reads the texts of rows, and refuses one that is too long to be held. `begun`: the beginning
    of the row that comes next.
    """

    def __init__(self, options: RowOptions) -> None:
        self.begun = bytearray()
        self._limit_bytes = options.row_bytes
        self._reader = JsonRowReader(options, broken=lambda why: Poison("bad_format", why))
        self._rows = 0

    def read(self, rows: list[bytes]) -> Iterator[Run]:
        fitting = rows
        if max(map(len, rows), default=0) > self._limit_bytes:
            fitting = list(takewhile(lambda row: len(row) <= self._limit_bytes, rows))
        self._rows += len(fitting)
        if fitting:
            yield from self._reader.read(_block_of(fitting))
        if len(fitting) < len(rows):
            self.check_length(rows[len(fitting)])

    def check_length(self, row: bytes | bytearray) -> None:
        if len(row) > self._limit_bytes:
            raise Poison(
                "too_large",
                f"row {self._rows} is longer than {self._limit_bytes} bytes (limits.row_bytes)",
            )

    def ends_early(self) -> Poison:
        return Poison("bad_format", f"the JSON ends early, in row {self._rows}")


def _block_of(rows: list[bytes]) -> RawRows:
    """The rows as one text of lines if no row has a newline, because lines can be read in bulk. If
    a row has a newline, the list of rows itself.
    """
    text = b"\n".join(rows)
    return rows if text.count(b"\n") != len(rows) - 1 else text + b"\n"


class ArrayElements:
    """Reads the elements of an array, from behind its opening bracket on."""

    def __init__(self, rows: RowTexts) -> None:
        self._rest: bytes | None = None
        self._rows = rows
        self._brackets = Brackets(1)
        self._is_empty = True

    def rest(self) -> bytes | None:
        """What follows the array; None: the array has not ended."""
        return self._rest

    def feed(self, data: bytes) -> Iterator[Run]:
        for start in range(0, len(data), _PIECE_BYTES):
            piece = data[start : start + _PIECE_BYTES]
            cuts, ended = self._brackets.cut(piece)
            rows, tail = self._cut(piece, cuts)
            if ended:
                yield from self._last(rows, piece[cuts[-1]])
                self._rest = tail + data[start + _PIECE_BYTES :]
                return
            self._rows.begun += tail
            if rows:
                self._is_empty = False
                yield from self._rows.read(rows)
            self._rows.check_length(self._rows.begun)

    def _cut(self, data: bytes, cuts: list[int]) -> tuple[list[bytes], bytes]:
        if not cuts:
            return [], data
        begun = self._rows.begun
        begun += memoryview(data)[: cuts[0]]
        rows = [bytes(begun)]
        begun.clear()
        rows += [data[cut + 1 : following] for cut, following in pairwise(cuts)]
        return rows, data[cuts[-1] + 1 :]

    def _last(self, rows: list[bytes], bracket: int) -> Iterator[Run]:
        if self._is_empty and len(rows) == 1 and not rows[0].strip(BLANK):
            rows.clear()  # the array is `[]`
        yield from self._rows.read(rows)
        if bracket != _END:
            raise Poison("bad_format", "the JSON array ends with a brace")


class JsonArrayParser(Parser):
    """Reads the elements of a lone array."""

    def __init__(self, options: RowOptions) -> None:
        self._rows = RowTexts(options)
        self._elements = ArrayElements(self._rows)
        self._begun = False

    def feed(self, data: bytes) -> Iterator[Run]:
        if not self._begun:
            self._begun, data = True, data[1:]
        if self._elements.rest() is None:
            yield from self._elements.feed(data)
            data = self._elements.rest() or b""
        if data.strip(BLANK):
            raise Poison("bad_format", "something follows the JSON array")

    def close(self) -> Iterator[Run]:
        if self._elements.rest() is None:
            raise self._rows.ends_early()
        return iter(())


class JsonValuesParser(Parser):
    """Reads values that follow each other, with or without blanks between them."""

    def __init__(self, options: RowOptions) -> None:
        self._rows = RowTexts(options)
        self._brackets = Brackets(0)

    def feed(self, data: bytes) -> Iterator[Run]:
        begun = self._rows.begun
        for start in range(0, len(data), _PIECE_BYTES):
            piece = data[start : start + _PIECE_BYTES]
            ends = [0, *self._brackets.ends(piece)]
            rows = [bytes(begun) + piece[: ends[1]]] if len(ends) > 1 else []
            rows += [piece[end:following] for end, following in pairwise(ends[1:])]
            if rows:
                begun.clear()
                yield from self._rows.read([row.strip(BLANK) for row in rows])
            begun += piece[ends[-1] :]
            self._rows.check_length(begun)

    def close(self) -> Iterator[Run]:
        last = bytes(self._rows.begun).strip(BLANK)
        if last and self._brackets.depth > 0:
            raise self._rows.ends_early()
        return self._rows.read([last] if last else [])
