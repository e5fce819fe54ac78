"""What of an Avro schema is accepted, and how its values are read: typed, or raw.

Rule: a schema that contains itself, or has arrays of values without bytes, is refused: a few bytes
could be decoded without end. A block is unpacked to at most one byte more than
`MOST_UNPACKED_BYTES`. A raw value is only what is stored, so it can always be read unless the data
is damaged; columns that nobody asked for are read raw.
"""

import bz2
import lzma
import zlib
from collections.abc import Callable, Collection
from typing import Any, Final

import cramjam
from backports import zstd

from penstock.errors import Poison
from penstock.formats.archives.unpacking import WINDOW_BYTES

_NAMED: Final = ("record", "error", "enum", "fixed")
_CONVERTED: Final = ("logicalType", "precision", "scale")
_RAW: Final = "penstock_raw."  # the names of raw types begin so


def definitions(schema: Any) -> dict[str, Any]:
    """The named types of a parsed schema."""
    if isinstance(schema, list):
        parts = schema
    elif isinstance(schema, dict):
        parts = [schema[key] for key in ("items", "values") if key in schema]
        parts += [field["type"] for field in schema.get("fields", ())]
        if schema["type"] not in _NAMED:
            parts.append(schema["type"])
    else:
        return {}
    defined = {name: definition for part in parts for name, definition in definitions(part).items()}
    if isinstance(schema, dict) and schema["type"] in _NAMED:
        defined[schema["name"]] = schema
    return defined


def read_as(schema: Any, known: dict[str, Any], typed: Collection[str]) -> Any:
    """The schema of records of which only the fields `typed` are read typed. `known`: the
    definitions of all named types.
    """
    begun: set[str] = set()
    fields = [
        (field["name"], _rewritten(field["type"], known, begun, is_raw=field["name"] not in typed))
        for field in schema["fields"]
    ]
    return _record("record", fields)


def whole(schema: Any, known: dict[str, Any], *, is_raw: bool) -> Any:
    """The schema of a value, typed or raw."""
    return _rewritten(schema, known, set(), is_raw=is_raw)


def described(schema: Any) -> str:
    """What values of this type are, for an error message."""
    if isinstance(schema, list):
        return " or ".join(described(branch) for branch in schema if branch != "null")
    if isinstance(schema, dict):
        return str(schema.get("logicalType") or described(schema["type"]))
    return "text (UTF-8)" if schema == "string" else str(schema)


def _record(name: str, fields: list[tuple[str, Any]]) -> Any:
    named = [{"name": field, "type": kind} for field, kind in fields]
    return {"type": "record", "name": _RAW + name, "fields": named}


def _rewritten(schema: Any, known: dict[str, Any], begun: set[str], *, is_raw: bool) -> Any:
    """`begun`: the names of the types that are defined already."""

    def inner(part: Any) -> Any:
        return _rewritten(part, known, begun, is_raw=is_raw)

    if isinstance(schema, list):
        return [inner(branch) for branch in schema]
    if isinstance(schema, str):
        if schema in known:
            return inner(known[schema])
        return "bytes" if is_raw and schema == "string" else schema
    kind = schema["type"]
    if kind == "array":
        return {"type": "array", "items": inner(schema["items"])}
    if kind == "map" and is_raw:
        begun.add(pair := f"pair{len(begun)}")
        fields = [("key", "bytes"), ("value", inner(schema["values"]))]
        return {"type": "array", "items": _record(pair, fields)}
    if kind == "map":
        return {"type": "map", "values": inner(schema["values"])}
    if kind == "enum" and is_raw:
        return "int"
    converted = {} if is_raw else {key: schema[key] for key in _CONVERTED if key in schema}
    if kind not in _NAMED:
        if not converted or (kind, converted["logicalType"]) == ("string", "uuid"):
            return inner(kind)
        return {"type": inner(kind), **converted}
    name = _RAW + schema["name"] if is_raw else schema["name"]
    if name in begun:
        return name
    begun.add(name)
    if kind in ("enum", "fixed"):
        what = "symbols" if kind == "enum" else "size"
        return {"type": kind, "name": name, what: schema[what], **converted}
    fields = [(field["name"], inner(field["type"])) for field in schema["fields"]]
    return {**_record("", fields), "name": name}


MOST_UNPACKED_BYTES: Final = 64 << 20
_MOST: Final = MOST_UNPACKED_BYTES + 1
_CRC_BYTES: Final = 4
# For the name of each type: True if its values take no bytes; None while the type is being checked.
Seen = dict[str, bool | None]


def check_schema(parsed: Any) -> None:
    """Raises `Poison` if, with this schema, bytes could be decoded without end."""
    _is_empty(parsed, {})


def _is_empty(schema: Any, seen: Seen) -> bool:
    """True if values of this type take no bytes."""
    if isinstance(schema, str):
        if schema in seen and seen[schema] is None:
            message = f"the Avro schema holds itself ({schema}), which is not read"
            raise Poison("bad_format", message)
        return bool(seen.get(schema, schema == "null"))
    if isinstance(schema, list):
        for branch in schema:
            _is_empty(branch, seen)
        return False
    kind = schema["type"]
    if kind == "array":
        if _is_empty(schema["items"], seen):
            raise Poison("bad_format", "the Avro schema has arrays of nothing")
        return False
    if kind == "map":
        _is_empty(schema["values"], seen)
        return False
    if kind in ("record", "error"):
        seen[schema["name"]] = None
        full = [field for field in schema["fields"] if not _is_empty(field["type"], seen)]
        is_empty = not full
        seen[schema["name"]] = is_empty
        return is_empty
    if kind in ("fixed", "enum"):
        seen[schema["name"]] = kind == "fixed" and not schema["size"]
        return bool(seen[schema["name"]])
    return _is_empty(kind, seen)


def _snappy(data: bytes) -> bytes:
    body, check = data[:-_CRC_BYTES], data[-_CRC_BYTES:]
    if cramjam.snappy.decompress_raw_len(body) > MOST_UNPACKED_BYTES:
        return bytes(_MOST)
    unpacked = bytes(cramjam.snappy.decompress_raw(body))
    if zlib.crc32(unpacked).to_bytes(_CRC_BYTES, "big") != check:
        raise ValueError("its checksum is wrong")
    return unpacked


def _by(new: Callable[[], Any], rest_bytes: int = 0) -> Callable[[bytes], bytes]:
    """A function that unpacks a block. `rest_bytes`: at most so many bytes may follow the packed
    data.
    """

    def unpack(data: bytes) -> bytes:
        unpacker = new()
        unpacked: bytes = unpacker.decompress(data, _MOST)
        if len(unpacked) < _MOST and not unpacker.eof:
            raise ValueError("it breaks off")
        if len(unpacker.unused_data or b"") > rest_bytes:
            raise ValueError("something follows the packed data")
        return unpacked

    return unpack


# For the name of each codec: the function that unpacks a block. Avro's library for Python, and old
# versions of fastavro, leave three bytes of zlib's checksum behind a deflated block.
UNPACK: Final[dict[str, Callable[[bytes], bytes]]] = {
    "null": bytes,
    "deflate": _by(lambda: zlib.decompressobj(-15), rest_bytes=4),
    "bzip2": _by(bz2.BZ2Decompressor),
    "xz": _by(lambda: lzma.LZMADecompressor(memlimit=WINDOW_BYTES)),
    "zstandard": _by(zstd.ZstdDecompressor),
    "snappy": _snappy,
}
# The errors that these functions raise for damaged blocks.
NOT_UNPACKED: Final = (
    zlib.error,
    lzma.LZMAError,
    zstd.ZstdError,
    cramjam.DecompressionError,
    OSError,
    EOFError,
    ValueError,
)
