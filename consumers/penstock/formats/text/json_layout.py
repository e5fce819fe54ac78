"""Reads JSON of any layout: an array, one value, values one after the other, or values in lines.

Rule: the layout is known when the first value has ended, and the next one begins. The elements of a
lone array are the rows; any other lone value is one row. If the first value fills its line, and
more follow, the lines are the rows (NDJSON); else values that follow each other. So the first value
is held, up to `limits.row_bytes`: a longer one is an array, or refused. With `rows.path` the rows
are the elements of an array inside of each value.

If an array or a value breaks off, or the text of a row is not JSON, the object is `bad_format` from
there on. Text that is JSON but whose value Python cannot hold is one bad row, as in NDJSON.
"""

import json
import re
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from typing import Final, Literal

import orjson

from penstock.errors import Poison
from penstock.formats.first_bytes import no_such
from penstock.formats.parser_chain import PLAIN_STEP_BYTES, Parser
from penstock.formats.runs import RowOptions, Run
from penstock.formats.text.json_rows import (
    BLANK,
    ArrayElements,
    Brackets,
    JsonArrayParser,
    JsonValuesParser,
    RowTexts,
    is_json,
    open_ndjson,
)

_SEPARATOR: Final = b"\x1e"
_BLANKS: Final = re.compile(rb"[ \t\r\n\x1e]*+")
_ARRAY, _OBJECT = ord("["), ord("{")
_SHOWN_BYTES: Final = 16

# An array whose first element is an array or an object, or the beginning of such an array.
_OF_ROWS: Final = re.compile(rb"\[[ \t\r\n]*+(?:[\[{]|\Z)")
# Outside of strings, JSON has at these places nothing but the beginning of another value.
_FOLLOWED: Final = (
    re.compile(rb"\][ \t\r\n\x1e]*+[^],} \t\r\n\x1e]"),
    re.compile(rb"\}[ \t\r\n\x1e]*+[^],} \t\r\n\x1e]"),
)
# A string, or what follows the last string that has ended, or a sign.
_TOKEN = re.compile(rb'"[^"\\]*+(?:\\.[^"\\]*+)*+"|["\[\]{}:,]', re.DOTALL)

Kind = Literal["json", "ndjson"]


@dataclass(frozen=True, slots=True)
class JsonOptions:
    """`path`: the pointer (RFC 6901) to the array whose elements are the rows; None: the object has
    no such array.
    """

    path: str | None = None


class JsonParser(Parser):
    """Reads JSON of an unknown layout. `kind` is that of `open_json`."""

    def __init__(self, options: RowOptions, kind: Kind | None) -> None:
        self._options = options
        self._kind = kind
        self._parser: Parser | None = None
        self._held = bytearray()
        self._brackets: Brackets | None = None  # made when they are needed
        self._seen = 0  # so many of the held bytes were given to the brackets
        self._end = 0  # the place behind the first value; 0: unknown
        self._is_sequence = False  # it is a JSON text sequence
        self._searched = 0  # up to here, no value follows the array; -1: one may follow it

    def feed(self, data: bytes) -> Iterator[Run]:
        parser = self._parser
        if parser is None:
            parser = self._settled(data, is_end=False)
            if parser is None:
                return iter(())
            data = bytes(self._held)
            self._held.clear()
        return parser.feed(data)

    def whole(self, data: bytes) -> Iterator[Run]:
        parser = self._settled(data, is_end=True)
        return iter(()) if parser is None else parser.whole(bytes(self._held))

    def close(self) -> Iterator[Run]:
        parser = self._parser
        if parser is None:
            parser = self._settled(b"", is_end=True)
            if parser is None:
                return
            yield from parser.feed(bytes(self._held))
        yield from parser.close()

    def _settled(self, data: bytes, *, is_end: bool) -> Parser | None:
        """Hold these bytes, too. Returns the parser if the layout is known by now."""
        if not self._held:
            begin = data
            data = data.lstrip(BLANK)
            self._is_sequence |= _SEPARATOR in begin[: len(begin) - len(data)]
        self._held += data
        chosen = self._layout(is_end=is_end) if self._held else None
        self._parser = None if chosen is None else chosen(self._options)
        return self._parser

    def _layout(self, *, is_end: bool) -> Callable[[RowOptions], Parser] | None:
        text, is_lines = self._held, self._kind == "ndjson"
        if text[0] not in (_ARRAY, _OBJECT):
            return self._of_scalar(is_end=is_end)
        if not is_lines and self._is_plain_array():
            fits = len(text) <= self._options.row_bytes
            return None if fits and not is_end else JsonArrayParser
        if not (self._end or self._find_end()) or self._end > self._options.row_bytes:
            if not is_end and len(text) <= self._options.row_bytes:
                return None
            if is_lines:
                return open_ndjson
            return JsonArrayParser if text[0] == _ARRAY else JsonValuesParser
        blanks = _BLANKS.match(text, self._end)
        assert blanks is not None
        on_one_line = text.find(b"\n", 0, self._end) < 0
        is_last = blanks.end() == len(text)
        fills_line = on_one_line and b"\n" in blanks[0] and not self._is_sequence
        # A lone array is not the row of a line.
        if fills_line and (is_lines or text[0] == _OBJECT or not is_last):
            return open_ndjson
        if is_last:
            # There may be any number of blanks, so only the one is held that matters.
            text[self._end :] = b"\n" if b"\n" in blanks[0] else b""
            return self._of_lone_value(is_lines and on_one_line) if is_end else None
        follows = text[blanks.end()] in (_ARRAY, _OBJECT)
        # In lines, a line that is damaged is one bad row.
        if is_lines and not (follows and _is_json(text[: self._end])):
            return open_ndjson
        return JsonValuesParser if follows or text[0] == _OBJECT else JsonArrayParser

    def _of_scalar(self, *, is_end: bool) -> Callable[[RowOptions], Parser] | None:
        """A text that begins with neither an array nor an object: its lines are the rows, if the
        first line is JSON.
        """
        end = self._held.find(b"\n")
        if end < 0 and not is_end and len(self._held) <= self._options.row_bytes:
            return None
        line = bytes(self._held[: end if end >= 0 else None]).strip(BLANK)
        if self._kind == "ndjson" or _is_json(line):
            return open_ndjson
        is_whole = len(line) <= self._options.row_bytes
        raise no_such("JSON", line[:_SHOWN_BYTES] if is_whole else None)

    def _of_lone_value(self, is_row: bool) -> Callable[[RowOptions], Parser]:
        if is_row or self._held[0] == _OBJECT:
            return JsonValuesParser
        # A line without a name, such as `["a", 2]`, is a row.
        inside = bytes(self._held[1:]).lstrip(BLANK)
        is_row = self._kind is None and not inside.startswith((b"[", b"{", b"]"))
        is_row = is_row and b"\n" not in self._held[: self._end]
        return JsonValuesParser if is_row else JsonArrayParser

    def _is_plain_array(self) -> bool:
        """True if the held bytes begin an array of arrays or objects, and certainly no value
        follows this array. This is found faster than the array's end.
        """
        text = self._held
        if self._searched < 0 or not _OF_ROWS.match(text):
            return False
        if any(pattern.search(text, self._searched) for pattern in _FOLLOWED):
            self._searched = -1
            return False
        self._searched = max(0, text.rfind(b"]"), text.rfind(b"}"))
        return True

    def _find_end(self) -> bool:
        """Look for the end of the first value. Returns True if the end has come."""
        text = self._held
        if not self._seen and (line := text.find(b"\n")) > 0:
            # Most often, the first line is a whole value, and this is faster than the brackets.
            first = bytes(text[:line]).rstrip(BLANK)
            try:
                orjson.loads(first)
            except orjson.JSONDecodeError:
                pass  # the brackets show where it ends
            else:
                self._end = len(first)
                return True
        brackets = self._brackets = self._brackets or Brackets(0)
        for start in range(self._seen, len(text), PLAIN_STEP_BYTES):
            piece = bytes(text[start : start + PLAIN_STEP_BYTES])
            if ends := brackets.ends(piece):
                self._end = start + ends[0]
                return True
        self._seen = len(text)
        return False


def open_json(kind: Kind | None, options: RowOptions) -> Parser:
    """The parser of JSON whose layout is unknown. `kind`: the format that the object's name says,
    or None if only its first bytes say JSON.
    """
    path = options.of(JsonOptions).path
    return JsonParser(options, kind) if path is None else JsonPathParser(options, path)


class JsonPathParser(Parser):
    """Reads the elements of an array inside of a value, or inside of each of several values. All of
    a value but its array is held, to prove that it is JSON, too.
    """

    def __init__(self, options: RowOptions, path: str) -> None:
        """`path`: the pointer to the array."""
        self._path = path
        parts = path.split("/")[1:]
        self._names = [part.replace("~1", "/").replace("~0", "~") for part in parts]
        self._limit_bytes = options.row_bytes
        self._rows = RowTexts(options)
        self._frame = bytearray()  # the value without the elements of its array
        self._tried_bytes = 0
        self._elements: ArrayElements | None = None
        self._behind = Brackets(len(self._names))

    def feed(self, data: bytes) -> Iterator[Run]:
        while data:
            if self._elements is None:
                self._frame += data if self._frame else data.lstrip(BLANK)
                # To look for the array only if the bytes have doubled is linear in their number.
                tries = len(self._frame) >= min(2 * self._tried_bytes, self._limit_bytes)
                data = self._sought() if tries else b""
                self._rows.check_length(self._frame)
            elif self._elements.rest() is None:
                yield from self._elements.feed(data)
                data = self._elements.rest() or b""
                if self._elements.rest() is not None:
                    self._frame += b"]"
                    data = self._after(data)
            else:
                data = self._after(data)

    def close(self) -> Iterator[Run]:
        if self._elements is None and self._frame:
            yield from self.feed(self._sought())
        if self._elements is not None:
            raise self._rows.ends_early()
        if self._frame:
            raise self._no_array("does not come before the JSON ends")

    def _sought(self) -> bytes:
        """Look for the array. Returns what follows its opening bracket, or nothing if this has not
        come.
        """
        at = self._array_at()
        if at < 0:
            self._tried_bytes = len(self._frame)
            return b""
        self._elements = ArrayElements(self._rows)
        rest = bytes(self._frame[at + 1 :])
        del self._frame[at + 1 :]
        return rest

    def _after(self, data: bytes) -> bytes:
        """Take the bytes that follow the array in its value. Returns those that follow the
        value.
        """
        ends = self._behind.ends(data) if self._names else [0]
        end = ends[0] if ends else len(data)
        self._frame += data[:end]
        self._rows.check_length(self._frame)
        if not ends:
            return b""
        if not _is_json(self._frame):
            raise Poison("bad_format", "what is around the array of rows.path is not JSON")
        self._check_names()
        self._frame.clear()
        self._tried_bytes, self._elements = 0, None
        self._behind = Brackets(len(self._names))
        return data[end:]

    def _array_at(self) -> int:
        """The place of the array's opening bracket; -1: more bytes are needed. The way to the array
        leads through one container for each name. `open`: so many containers are open here, of
        which the outermost `way` are those on the way. `hit`: the value that comes next is on it.
        """
        open, way, place, hit = 0, 0, 0, True
        inside, name = b"", b""
        for token in _TOKEN.finditer(self._frame):
            sign = token[0]
            is_closer = sign in (b"]", b"}")
            if open == way:
                if sign == b'"':
                    return -1  # a string that has not ended
                if hit and (sign == b"," or is_closer):
                    raise self._no_array("is no array")
                if is_closer:
                    raise self._no_array("is not there")
                if hit and sign in (b"[", b"{"):
                    if way == len(self._names):
                        if sign == b"{":
                            raise self._no_array("is an object, no array")
                        return token.start()
                    inside, place, way = sign, 0, way + 1
                    hit = sign == b"[" and self._names[way - 1] == "0"
                elif sign == b":":
                    hit = _text(name) == self._names[way - 1]
                elif sign == b",":
                    place += 1
                    hit = inside == b"[" and self._names[way - 1] == str(place)
                else:
                    name = sign
            open += (sign in (b"[", b"{")) - is_closer
        return -1

    def _check_names(self) -> None:
        """Raises `Poison` if an object on the way to the array has the same key twice. Readers
        differ in which value they take.
        """
        try:
            # Of a long number Python makes none (`sys.set_int_max_str_digits`).
            pairs = json.loads(self._frame, object_pairs_hook=tuple, parse_int=str)
        except RecursionError:
            raise self._no_array("is in a value that is nested too deeply") from None
        for name in self._names:
            if isinstance(pairs, tuple):
                pairs, *others = [value for key, value in pairs if key == name]
                if others:
                    raise self._no_array(f'is not the only one: the key "{name}" comes twice')
            else:
                pairs = pairs[int(name)]

    def _no_array(self, why: str) -> Poison:
        return Poison("bad_format", f'the value at "{self._path}" {why} (rows.path)')


def _is_json(text: bytes | bytearray) -> bool:
    try:
        return is_json(text)
    except RecursionError:  # its readers say what is wrong with it
        return True


def _text(token: bytes) -> str | None:
    with suppress(orjson.JSONDecodeError):
        value = orjson.loads(token)
        return value if isinstance(value, str) else None
    return None
