"""What is wrong with an Avro schema before anything is decoded by it.

Rule: a schema that contains itself, or arrays of values without bytes, is refused: a few bytes
could be decoded without end. It is checked as the library parsed it, with full names. Pure. Owner:
the Avro parser.
"""

from typing import Any

from penstock.errors import Poison

# By name: do its values take no bytes? None while the name is being checked.
Seen = dict[str, bool | None]


def check_schema(parsed: Any) -> None:
    """Raises `Poison` for a schema by which bytes could be decoded without end."""
    _is_empty(parsed, {})


def _is_empty(schema: Any, seen: Seen) -> bool:
    """Do its values take no bytes?"""
    if isinstance(schema, str):
        if schema in seen and seen[schema] is None:
            said = f"the Avro schema holds itself ({schema}), which is not read"
            raise Poison("bad_format", said)
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
        found = not full
        seen[schema["name"]] = found
        return found
    if kind in ("fixed", "enum"):
        seen[schema["name"]] = kind == "fixed" and not schema["size"]
        return bool(seen[schema["name"]])
    return _is_empty(kind, seen)
