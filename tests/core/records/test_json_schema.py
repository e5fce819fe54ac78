"""Which answers fit a schema; jsonschema, which knows the standard, is the judge."""

from collections.abc import Iterator
from itertools import product
from typing import Any

import jsonschema
import pytest

from penstock.core.records.json_schema import AnswerSchema

SCHEMAS: list[dict[str, Any]] = [
    {},
    {"type": "integer", "minimum": 1, "maximum": 2},
    {"type": ["number", "null"], "exclusiveMinimum": 1, "exclusiveMaximum": 2.5},
    {"type": "string", "minLength": 1, "maxLength": 2},
    {"type": "boolean"},
    {"enum": [1, "ab", None, [True]]},
    {"const": True},
    {"type": "array", "items": {"type": "number"}, "minItems": 1, "maxItems": 2},
    {"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]},
    {"properties": {"a": {"type": "integer"}}, "additionalProperties": False},
    {"type": "object", "additionalProperties": {"type": "string"}},
    {"anyOf": [{"type": "string"}, {"type": "array"}]},
    {"oneOf": [{"type": "number"}, {"minimum": 2}]},
    {"type": "array", "items": False},
    {"$ref": "#/$defs/a~1b", "$defs": {"a/b": {"type": "string"}}},
    {"allOf": [{"type": "number"}, {"minimum": 2}]},
    {
        "$ref": "#/$defs/tree",
        "$defs": {
            "tree": {
                "type": "object",
                "properties": {"a": {"$ref": "#/$defs/tree"}},
            }
        },
    },
]
VALUES: list[Any] = [
    None, True, False, 0, 1, 1.0, 1.5, 2, 2.5, 3, "", "a", "ab", "abc", [], [1], [1, "a"],
    [1, 2, 3], [True], [1.0], {}, {"a": 1}, {"a": 1.0}, {"a": "b"}, {"a": None}, {"b": "c"},
    {"a": {}}, {"a": {"a": {"a": 1}}}, {"a": 1, "b": True},
]  # fmt: skip


@pytest.mark.parametrize(("schema", "value"), [*product(SCHEMAS, VALUES)])
def test_a_value_fits_where_the_standard_says_so(schema: dict[str, Any], value: Any) -> None:
    fits = jsonschema.Draft202012Validator(schema).is_valid(value)
    wrong = AnswerSchema(schema).wrong(value)
    assert (wrong is None) == fits, wrong


@pytest.mark.parametrize(
    "schema",
    [
        [],
        {"type": "strange"},
        {"type": {"a": 1}},
        {"minimum": "5"},
        {"minimum": 0, "exclusiveMinimum": True},
        {"maxLength": None},
        {"required": [["a"]]},
        {"patternProperties": {"^c_": {}}, "additionalProperties": False},
        {"prefixItems": [{"type": "string"}], "items": False},
        {"$ref": "#"},
        {"$ref": "#/required", "required": ["a"]},
        {"$ref": "#/other", "other": {"type": 1}},
        {"properties": []},
        {"properties": {"a": 1}},
        {"anyOf": {}},
        {"items": [1]},
        {"$ref": "https://example.org/schema"},
        {"$ref": "#/$defs/none"},
    ],
)
def test_what_cannot_be_judged_is_refused_at_the_start(schema: Any) -> None:
    with pytest.raises(ValueError, match=r"."):
        AnswerSchema(schema)


def test_schemas_and_values_without_end_are_judged_in_bounded_time() -> None:
    with pytest.raises(ValueError, match="itself alone"):
        AnswerSchema({"$ref": "#/$defs/a", "$defs": {"a": {"$ref": "#/$defs/a"}}})
    fork = AnswerSchema({"anyOf": [{"$ref": "#"}, {"$ref": "#"}]})
    assert fork.wrong(1) is not None
    deep: Any = 1
    for _ in range(200):
        deep = [deep]
    tree = AnswerSchema({"type": ["array", "number"], "items": {"$ref": "#"}})
    assert tree.wrong(deep) is not None


@pytest.mark.parametrize("keyword", [{"pattern": "^a"}, {"multipleOf": 2}, {"format": "date"}])
def test_with_a_keyword_that_is_the_servers_two_choices_may_fit(keyword: dict[str, Any]) -> None:
    schema = AnswerSchema({"oneOf": [keyword, {"type": ["string", "number"]}]})
    assert schema.wrong("ax") is None
    assert schema.wrong([]) is None
    assert AnswerSchema({"oneOf": [{}, {"type": "string"}]}).wrong("ax") is not None


class Counted(list[int]):
    """A list that counts how often an element of any of them was looked at."""

    looks = 0

    def __iter__(self) -> Iterator[int]:
        for one in super().__iter__():
            Counted.looks += 1
            yield one


@pytest.mark.parametrize("of_list", [{"minItems": 1}, {"items": {}}, {"items": False}])
def test_choices_do_not_look_at_a_long_answer_once_for_each(of_list: dict[str, Any]) -> None:
    Counted.looks = 0
    many = {"anyOf": [of_list | {"maxItems": 1}] * 40 + [{"allOf": [of_list]}] * 40}
    AnswerSchema(many).wrong(Counted(range(60_000)))
    assert Counted.looks < 100_000
