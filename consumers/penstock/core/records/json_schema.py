"""Does a value fit a JSON schema? For the answers of models that are asked for JSON.

Rule: the keywords are those by which servers constrain a model's answer: types, fields, elements,
choices, bounds. All others, such as `pattern` and `format`, are left to the server, so with one of
them more than one choice of `oneOf` may seem to fit. A schema that cannot be judged is refused at
the start; so is a keyword that would change what others mean. Pure.
"""

import math
from collections.abc import Mapping
from typing import Any, Final

_TYPES: Final[Mapping[str, tuple[type, ...]]] = {
    "object": (dict,),
    "array": (list,),
    "string": (str,),
    "number": (int, float),
    "integer": (int, float),
    "boolean": (bool,),
    "null": (type(None),),
}
# Deeper schemas refer to themselves without end, and deeper values no reader takes. Choices among
# such schemas double with each step, so the steps are bounded as well: to some 50 ms.
_MOST_DEPTH: Final = 64
_MOST_STEPS: Final = 50_000
_LOCAL: Final = "#/"
# These decide which fields and elements `additionalProperties` and `items` are about.
_OF_OTHERS: Final = (
    "patternProperties", "prefixItems", "unevaluatedProperties", "unevaluatedItems"
)  # fmt: skip
_NUMBERS: Final = (
    "minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum",
    "minLength", "maxLength", "minItems", "maxItems",
)  # fmt: skip
# What is judged, and what says nothing of values.
_JUDGED: Final = frozenset(
    (*_NUMBERS, "type", "enum", "const", "$defs", "definitions", "properties", "required", "items",
     "additionalProperties", "anyOf", "oneOf", "allOf", "title", "description", "default",
     "examples", "deprecated", "readOnly", "writeOnly", "$schema", "$id", "$comment")
)  # fmt: skip
# Beside a reference the keywords are left to the server.
_REFERRING: Final = frozenset(("$ref", "$defs", "definitions", "title", "description", "$schema"))


class AnswerSchema:
    """`document`: the schema as it is sent to the server."""

    def __init__(self, document: Any) -> None:
        """Raises `ValueError` if this is no schema that can be judged."""
        if not isinstance(document, dict):
            raise ValueError("a schema is a JSON object")
        self.document = document
        self._steps = 0
        # Every keyword is judged.
        self._is_whole = True
        self._referred = set[str]()
        self._check(document, 0)

    def wrong(self, value: Any) -> str | None:
        """What is wrong with the value, as a text for people; None: it fits."""
        self._steps = 0
        return self._wrong(value, self.document, "the answer", 0)

    def _check(self, schema: Any, depth: int) -> None:
        if isinstance(schema, bool):
            return
        if not isinstance(schema, dict) or depth > _MOST_DEPTH:
            raise ValueError(f"{schema!r:.80} is no schema")
        for name in _OF_OTHERS:
            if name in schema:
                raise ValueError(f"{name} is not judged: write the schema without it")
        for name in _NUMBERS:
            if type(schema.get(name, 0)) not in (int, float):
                raise ValueError(f"{name} is no number: {schema[name]!r:.80}")
        kinds = schema.get("type", [])
        for kind in kinds if isinstance(kinds, list) else [kinds]:
            if not isinstance(kind, str) or kind not in _TYPES:
                raise ValueError(f"there is no type {kind!r:.80}")
        if (reference := schema.get("$ref")) is not None:
            self._check_reference(reference, depth)
        self._is_whole &= schema.keys() <= (_REFERRING if "$ref" in schema else _JUDGED)
        fields = [schema.get(name, {}) for name in ("properties", "$defs", "definitions")]
        if not all(isinstance(field, dict) for field in fields):
            raise ValueError("properties and $defs are JSON objects")
        inner = [part for named in fields for part in named.values()]
        choices = [schema.get(name, []) for name in ("anyOf", "oneOf", "allOf", "required", "enum")]
        if not all(isinstance(choice, list) for choice in choices):
            raise ValueError("anyOf, oneOf, allOf, required and enum are arrays")
        if not all(isinstance(choice, str) for choice in choices[3]):
            raise ValueError("required is an array of names")
        inner += [each for some in choices[:3] for each in some]
        inner += [schema[name] for name in ("items", "additionalProperties") if name in schema]
        for part in inner:
            self._check(part, depth + 1)

    def _check_reference(self, reference: Any, depth: int) -> None:
        seen, schema = list[Any](), self._at(reference)
        while isinstance(schema, dict) and "$ref" in schema:
            if schema["$ref"] in seen:
                raise ValueError(f"$ref {reference!r} refers to itself alone")
            seen.append(schema["$ref"])
            schema = self._at(schema["$ref"])
        if reference not in self._referred:
            self._referred.add(reference)
            self._check(self._at(reference), depth + 1)

    def _at(self, reference: Any) -> Any:
        target: Any = self.document
        if reference == "#":
            return target
        if not isinstance(reference, str) or not reference.startswith(_LOCAL):
            raise ValueError(f"$ref {reference!r}: only places in this file, as #/$defs/NAME")
        for step in reference.removeprefix(_LOCAL).split("/"):
            name = step.replace("~1", "/").replace("~0", "~")
            if not isinstance(target, dict) or name not in target:
                raise ValueError(f"$ref {reference!r} is not in the file")
            target = target[name]
        return target

    def _wrong(self, value: Any, schema: Any, place: str, depth: int) -> str | None:
        self._steps += 1
        if depth > _MOST_DEPTH or self._steps > _MOST_STEPS:
            return f"{place} cannot be judged: it, or the schema, is nested too deep"
        if isinstance(schema, bool):
            return None if schema else f"{place} must not be there"
        if "$ref" in schema:
            return self._wrong(value, self._at(schema["$ref"]), place, depth + 1)
        kinds = schema.get("type")
        if kinds is not None:
            kinds = kinds if isinstance(kinds, list) else [kinds]
            if not any(_is(value, kind) for kind in kinds):
                return f"{place} is no {' or '.join(kinds)}"
        if "enum" in schema and not any(_same(value, choice) for choice in schema["enum"]):
            return f"{place} is none of the values of enum"
        if "const" in schema and not _same(value, schema["const"]):
            return f"{place} is not {schema['const']!r:.80}"
        return (
            self._wrong_choice(value, schema, place, depth)
            or _wrong_size(value, schema, place)
            or self._wrong_inside(value, schema, place, depth)
        )

    def _wrong_choice(
        self, value: Any, schema: Mapping[str, Any], place: str, depth: int
    ) -> str | None:
        for part in schema.get("allOf", []):
            if wrong := self._wrong(value, part, place, depth + 1):
                return wrong
        for name in ("anyOf", "oneOf"):
            if name in schema:
                faults = [self._wrong(value, inner, place, depth + 1) for inner in schema[name]]
                fitting = faults.count(None)
                if not fitting or (name == "oneOf" and fitting > 1 and self._is_whole):
                    return f"{place} fits {fitting} of {name}"
        return None

    def _wrong_inside(
        self, value: Any, schema: Mapping[str, Any], place: str, depth: int
    ) -> str | None:
        if isinstance(value, list):
            each = schema.get("items", True)
            some = value if each is not True else ()
            parts = ((item, each, f"{place}[{index}]") for index, item in enumerate(some))
        elif isinstance(value, dict):
            for name in schema.get("required", []):
                if name not in value:
                    return f"{place} has no {name!r}"
            known, others = schema.get("properties", {}), schema.get("additionalProperties", True)
            names = value if others is not True else filter(value.__contains__, known)
            parts = (
                (value[name], known.get(name, others), f"{place}.{name[:80]}") for name in names
            )
        else:
            return None
        faults = (self._wrong(item, inner, where, depth + 1) for item, inner, where in parts)
        return next((wrong for wrong in faults if wrong is not None), None)


def _is(value: Any, kind: str) -> bool:
    if isinstance(value, bool):
        return kind == "boolean"
    if kind == "integer" and isinstance(value, float):
        return value.is_integer()
    return isinstance(value, _TYPES[kind])


def _same(value: Any, other: Any) -> bool:
    """Equal as JSON: for Python, True is 1."""
    if isinstance(value, list) and isinstance(other, list):
        return len(value) == len(other) and all(map(_same, value, other))
    if isinstance(value, dict) and isinstance(other, dict):
        return value.keys() == other.keys() and all(_same(value[key], other[key]) for key in value)
    return isinstance(value, bool) == isinstance(other, bool) and bool(value == other)


def _wrong_size(value: Any, schema: Mapping[str, Any], place: str) -> str | None:
    if isinstance(value, bool):
        return None
    if isinstance(value, int | float):
        size, least, most = value, "minimum", "maximum"
        if size <= schema.get("exclusiveMinimum", -math.inf):
            return f"{place} is {size}, exclusiveMinimum {schema['exclusiveMinimum']}"
        if size >= schema.get("exclusiveMaximum", math.inf):
            return f"{place} is {size}, exclusiveMaximum {schema['exclusiveMaximum']}"
    elif isinstance(value, str):
        size, least, most = len(value), "minLength", "maxLength"
    elif isinstance(value, list):
        size, least, most = len(value), "minItems", "maxItems"
    else:
        return None
    if size < schema.get(least, -math.inf):
        return f"{place} is {size}, {least} {schema[least]}"
    if size > schema.get(most, math.inf):
        return f"{place} is {size}, {most} {schema[most]}"
    return None
