"""`python -m penstock.messages.json_schemas`: writes the JSON Schemas from the types; they are
never edited by hand.
"""

from collections.abc import Sequence
from inspect import cleandoc
from pathlib import Path
from typing import Any

import orjson
from msgspec.json import schema_components

from penstock.messages.command_json import Progress, Replayed
from penstock.messages.dead_letter import DeadLetter
from penstock.messages.prediction import BlockHead, Prediction
from penstock.messages.reference import Inline, Reference
from penstock.messages.scene import Late, Scene
from penstock.messages.shadow import Disagreement, Summary

# The folder lies beside `consumers/`, where users of any language look for the schemas.
FOLDER = Path(__file__).parents[3] / "schemas"
SUFFIX = ".v1.schema.json"
DIALECT = "https://json-schema.org/draft/2020-12/schema"


def documents() -> dict[str, dict[str, Any]]:
    """For each file's name, its JSON Schema. There is one schema for each topic, and one for each
    command that prints JSON.
    """
    return {
        f"reference{SUFFIX}": _input(),
        f"prediction{SUFFIX}": _plain(Prediction, "Prediction"),
        f"block{SUFFIX}": _plain(BlockHead, "Head of an Arrow block"),
        f"dead_letter{SUFFIX}": _plain(DeadLetter, "Dead letter"),
        f"scene{SUFFIX}": _plain(Scene, "Scene"),
        f"progress{SUFFIX}": _plain(Progress, "Progress"),
        f"replay{SUFFIX}": _plain(Replayed, "Replay"),
        f"late{SUFFIX}": _plain(Late, "Late prediction"),
        f"shadow{SUFFIX}": _either("Comparison of two models", *_components(Disagreement, Summary)),
    }


def write(folder: Path = FOLDER) -> None:
    """Put the files into `folder`."""
    for name, document in documents().items():
        (folder / name).write_bytes(text(document))


def text(document: dict[str, Any]) -> bytes:
    """The text of a schema file."""
    return orjson.dumps(document, option=orjson.OPT_INDENT_2 | orjson.OPT_APPEND_NEWLINE)


def _components(*kinds: type) -> tuple[tuple[dict[str, Any], ...], dict[str, Any]]:
    """A `$ref` for each type, and their definitions; docstrings become descriptions."""
    roots, definitions = schema_components(kinds, ref_template="#/$defs/{name}")
    for definition in definitions.values():
        definition["description"] = cleandoc(definition["description"])
    return roots, definitions


def _plain(kind: type, title: str) -> dict[str, Any]:
    (root,), definitions = _components(kind)
    return {"$schema": DIALECT, "title": title, **root, "$defs": definitions}


def _either(title: str, kinds: Sequence[Any], definitions: dict[str, Any]) -> dict[str, Any]:
    return {"$schema": DIALECT, "title": title, "oneOf": list(kinds), "$defs": definitions}


def _input() -> dict[str, Any]:
    """The schema of our own forms only. The stores describe the notifications that they send."""
    (reference, inline), definitions = _components(Reference, Inline)
    by_name = definitions["Reference"]
    by_name["properties"]["url"] = {
        "type": "string",
        "pattern": "^(?!http:)[a-zA-Z][a-zA-Z0-9+.-]*://[^/]+/.+",
    }
    by_name["oneOf"] = [{"required": by_name.pop("required")}, {"required": ["url"]}]
    of_message = definitions["Inline"]
    of_message["properties"]["inline"] = of_message["properties"].pop("rows")
    of_message["required"] = ["inline"]
    several = {
        "type": "object",
        "required": ["objects"],
        "properties": {"objects": {"type": "array", "minItems": 1, "items": reference}},
    }
    return _either("Reference", [reference, several, inline], definitions)


if __name__ == "__main__":
    write()
