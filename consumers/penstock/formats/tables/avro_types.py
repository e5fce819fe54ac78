"""The two ways in which the values of an Avro schema are read: typed, and raw.

Rule: a raw value is only the bytes and numbers that are stored, so it can always be read, unless
the data is damaged. Texts are bytes, enums their numbers, maps arrays of pairs, and nothing has a
logical type. Columns that nobody asked for are read raw. A typed value is converted, but a UUID
stays the text that it is. Both ways take the same bytes. Pure. Owner: the Avro parser.
"""

from collections.abc import Collection
from typing import Any, Final

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
    found = {name: one for part in parts for name, one in definitions(part).items()}
    if isinstance(schema, dict) and schema["type"] in _NAMED:
        found[schema["name"]] = schema
    return found


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
