"""What is wrong with an Avro schema before anything is decoded by it.

Rule: a schema that holds itself, or arrays of nothing, is refused: a few bytes of it could be
decoded without end. Pure. Owner: the Avro parser.
"""

from typing import Any

from consumers.errors import Poison


def check_schema(schema: Any, within: frozenset[str]) -> bool:
    """Raises `Poison` for what could be decoded without end; True: its values have no bytes."""
    if isinstance(schema, str):
        if schema in within:
            raise Poison(
                "bad_format", f"the Avro schema holds itself ({schema}), which is not read"
            )
        return schema == "null"
    if isinstance(schema, list):
        for branch in schema:
            check_schema(branch, within)
        return False
    kind = schema["type"]
    if kind == "array":
        if check_schema(schema["items"], within):
            raise Poison("bad_format", "the Avro schema has arrays of nothing")
        return False
    if kind == "map":
        check_schema(schema["values"], within)
        return False
    if kind in ("record", "error"):
        space = schema.get("namespace")
        names = {schema["name"], schema["name"].rpartition(".")[2], f"{space}.{schema['name']}"}
        inside = within | names
        empty = [check_schema(field["type"], inside) for field in schema["fields"]]
        return all(empty)
    if kind == "fixed":
        return not schema["size"]
    return check_schema(kind, within) if not isinstance(kind, str) else kind == "null"
