"""What is wrong with an Avro schema before anything is decoded by it.

Rule: a schema that holds itself, or arrays of nothing, is refused: a few bytes of it could be
decoded without end. It is looked at as the library parsed it: names are full, and stand for what
they name. Pure. Owner: the Avro parser.
"""

from typing import Any

from consumers.errors import Poison

# Of each name whether its values have no bytes; None while it is being looked at.
Seen = dict[str, bool | None]


def check_schema(parsed: Any) -> None:
    """Raises `Poison` for what could be decoded without end."""
    _is_empty(parsed, {})


def _is_empty(schema: Any, seen: Seen) -> bool:
    """Have its values no bytes?"""
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
