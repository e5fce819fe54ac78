"""Encodes and decodes Kafka's requests and answers by functions that are compiled from aiokafka's
schemas.

Rule: the bytes and the values are those of aiokafka; a test compares both for every schema.
aiokafka calls three functions for each number: 376 calls for a record that comes alone, a sixth of
all that the worker calls for it. A compiled function reads or writes neighbouring numbers at once,
and calls another function only for a nested schema. Fields of rare kinds are left to aiokafka.

This file replaces `encode` and `decode` of aiokafka 0.14's `Struct`; there is no public way.
"""

import struct
from collections.abc import Callable, Iterator, Sequence
from functools import cache
from io import BytesIO
from itertools import groupby
from typing import Any, Final

from aiokafka.protocol.struct import Struct
from aiokafka.protocol.types import (
    Array,
    Boolean,
    Bytes,
    Float64,
    Int8,
    Int16,
    Int32,
    Int64,
    Schema,
    String,
    UInt32,
)

Encode = Callable[[Sequence[Any]], bytes]
# Reads the values that begin at a place of the bytes. Returns them, and the place behind them.
Decode = Callable[[bytes, int], tuple[tuple[Any, ...], int]]

_NUMBERS: Final = {
    Int8: "b", Int16: "h", Int32: "i", UInt32: "I", Int64: "q", Float64: "d", Boolean: "?"
}  # fmt: skip
_SHORT, _LONG = struct.Struct(">h"), struct.Struct(">i")


def use_compiled_schemas() -> None:
    """From now on all of aiokafka's clients in this process use the compiled functions."""
    Struct.encode = _encode
    Struct.decode = classmethod(_decode)


def _encode(self: Struct) -> bytes:
    values = self.__dict__
    try:
        return encoder(self.SCHEMA)([values[name] for name in self.SCHEMA.names])
    except struct.error as error:
        raise ValueError(f"{self!r} cannot be encoded: {error}") from error


def _decode(cls: type[Struct], data: BytesIO | bytes) -> Struct:
    if isinstance(data, bytes):
        data = BytesIO(data)
    try:
        values, end = decoder(cls.SCHEMA)(data.getvalue(), data.tell())
    except struct.error as error:
        raise ValueError(f"{cls.__name__} cannot be decoded: {error}") from error
    data.seek(end)
    return cls(*values)


@cache
def encoder(schema: Schema) -> Encode:
    code = _Code("item")
    names = [f"v{at}" for at in range(len(schema.fields))]
    code.add(f"[{', '.join(names)}] = item")
    parts = []
    for numbers, fields in _neighbours(schema):
        name, field = names[fields[0]], schema.fields[fields[0]]
        if numbers:
            pack = code.holding(struct.Struct(numbers).pack)
            parts.append(f"{pack}({', '.join(names[at] for at in fields)})")
        elif type(field) is String:
            text = f"{name} = str({name}).encode({field.encoding!r})"
            code.add(f"if {name} is not None: {text}")
            parts.append(_measured(code, _SHORT, name, name))
        elif field is Bytes:
            parts.append(_measured(code, _LONG, name, name))
        elif type(field) is Array and isinstance(field.array_of, Schema):
            each = code.holding(encoder(field.array_of))
            parts.append(_measured(code, _LONG, name, f"b''.join(map({each}, {name}))"))
        else:
            parts.append(f"{code.holding(field.encode)}({name})")
    code.add(f"return b''.join(({''.join(f'{part}, ' for part in parts)}))")
    encode: Encode = code.compiled()
    return encode


def _measured(code: "_Code", length: struct.Struct, name: str, content: str) -> str:
    """The length of a value, or -1 if there is none, and its content behind it."""
    nothing, pack = code.holding(length.pack(-1)), code.holding(length.pack)
    return f"({nothing} if {name} is None else {pack}(len({name})) + {content})"


@cache
def decoder(schema: Schema) -> Decode:
    code = _Code("data, at")
    names = [f"v{at}" for at in range(len(schema.fields))]
    for numbers, fields in _neighbours(schema):
        name, field = names[fields[0]], schema.fields[fields[0]]
        if numbers:
            _read(code, struct.Struct(numbers), [names[at] for at in fields])
        elif type(field) is String:
            _read_bytes(code, _SHORT, name)
            code.add(f"if {name} is not None: {name} = {name}.decode({field.encoding!r})")
        elif field is Bytes:
            _read_bytes(code, _LONG, name)
        elif type(field) is Array and isinstance(field.array_of, Schema):
            _read(code, _LONG, ["n"])
            code.add(f"{name} = None if n == -1 else []")
            code.add("for _ in range(n):")
            code.add(f"    item, at = {code.holding(decoder(field.array_of))}(data, at)")
            code.add(f"    {name}.append(item)")
        else:
            code.add(f"{name}, at = {code.holding(_left_to_aiokafka(field))}(data, at)")
    code.add(f"return ({''.join(f'{name}, ' for name in names)}), at")
    decode: Decode = code.compiled()
    return decode


def _read(code: "_Code", numbers: struct.Struct, names: Sequence[str]) -> None:
    code.add(f"{', '.join(names)}, = {code.holding(numbers.unpack_from)}(data, at)")
    code.add(f"at += {numbers.size}")


def _read_bytes(code: "_Code", length: struct.Struct, name: str) -> None:
    _read(code, length, ["n"])
    code.add(f"{name} = None if n < 0 else data[at : at + n]")
    code.add("at += max(0, n)")
    code.add(f"if at > len(data): raise {code.holding(struct.error)}('its bytes break off')")


def _left_to_aiokafka(field: Any) -> Callable[[bytes, int], tuple[Any, int]]:
    def read(data: bytes, at: int) -> tuple[Any, int]:
        stream = BytesIO(data)
        stream.seek(at)
        return field.decode(stream), stream.tell()

    return read


def _neighbours(schema: Schema) -> Iterator[tuple[str, Sequence[int]]]:
    """The places of the schema's fields, in order. Neighbouring numbers come together, with their
    format; each other field comes alone, with an empty format.
    """

    def place(at: int) -> int:
        return -1 if schema.fields[at] in _NUMBERS else at

    for where, fields in groupby(range(len(schema.fields)), key=place):
        places = list(fields)
        numbers = "" if where >= 0 else ">" + "".join(_NUMBERS[schema.fields[at]] for at in places)
        yield numbers, places


class _Code:
    """The source of a function, while it is written."""

    def __init__(self, arguments: str) -> None:
        self._lines = [f"def function({arguments}):"]
        self._held: dict[str, Any] = {}

    def add(self, line: str) -> None:
        self._lines.append(f"    {line}")

    def holding(self, value: Any) -> str:
        """The name under which the function finds this value."""
        name = f"held{len(self._held)}"
        self._held[name] = value
        return name

    def compiled(self) -> Any:
        exec("\n".join(self._lines), self._held)
        return self._held["function"]
