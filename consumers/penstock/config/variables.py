"""Parses the environment's part of the configuration, which `loading` lays over the file:
`PENSTOCK_SECTION__KEY`, `PENSTOCK_STORES__NAME__KEY`.

Rule: a `PENSTOCK_` variable sets a key, or is listed in `OWN`; any other is an error. A text that
looks like a value of a kind that its key does not take is refused.
"""

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any, Literal, NamedTuple, get_args, get_origin, get_type_hints

from msgspec import Struct

from penstock.config.all_sections import NAMED, SECTIONS, SHARING
from penstock.config.marks import nested
from penstock.config.texts import wrong_variable
from penstock.config.unknown_keys import keys_of, nearest, unknown
from penstock.errors import usage

ENV_PREFIX = "PENSTOCK_"
# Variables that set no key of a section: the demo's mark on its worker, an inherited listening
# socket, a switch of the tests, and the worker's region. Variables with the prefix in
# `OWN_PREFIXES` come from `scripts/stack env`.
OWN = frozenset({"PENSTOCK_DEMO", "PENSTOCK_HTTP_FD", "PENSTOCK_REQUIRE_STACK", "PENSTOCK_REGION"})
OWN_PREFIXES = ("PENSTOCK_STACK_",)
# If a namespace has a Service whose name begins with "penstock", Kubernetes sets variables with
# these names in each of its containers.
_OF_KUBERNETES = re.compile(
    r"PENSTOCK_(\w+_)?(SERVICE_HOST|SERVICE_PORT(_\w+)?|PORT_\d+_(TCP|UDP|SCTP)(_\w+)?)"
)
_ADDRESS = re.compile(r"(tcp|udp|sctp)://")
# Keys whose value is a text that is itself JSON.
_JSON_TEXTS = frozenset({"model.canary"})


class Variable(NamedTuple):
    """A variable that sets a key. `section` includes the table's name, for example `stores.eu`."""

    name: str
    section: str
    key: str
    value: Any


def variables(
    environ: Mapping[str, str],
) -> Iterator[Variable]:
    """The variables that set keys, sorted by name. Raises `Fatal` (exit 2) for a variable that
    looks like ours but sets no key, or whose text the key does not take.
    """
    for name, text in sorted(environ.items()):
        if wrong := wrong_variable(name, text):
            raise usage(f"environment variable {name} {wrong}")
        if not name.startswith(ENV_PREFIX) or _is_own(name, text):
            continue
        where = f"environment variable {name}"
        section, separator, key = name.removeprefix(ENV_PREFIX).lower().partition("__")
        if section not in NAMED and not separator:
            known = [variable(name, two) for name in SECTIONS for two in keys_of(SECTIONS[name])]
            raise usage(f"{where} is no key{nearest(name, known)}")
        table, label = section, None
        if section in NAMED and not (section in SHARING and "__" not in key):
            part, separator, key = key.partition("__")
            if not separator:
                example = f"{ENV_PREFIX}{section}__NAME__KEY".upper()
                raise usage(f"{where} is no key; write {example}")
            table, label = f"{section}.{part}", f"{section}.{part}."
        kinds: dict[str, type[Struct]] = {**SECTIONS, **NAMED}
        inner, separator, rest = key.partition("__")
        if section in kinds and separator and inner in nested(kinds[section]):
            kinds |= {f"{section}.{inner}": nested(kinds[section])[inner]}
            section, table, key = f"{section}.{inner}", f"{table}.{inner}", rest
        if wrong := unknown(section, key, kinds, label):
            raise usage(f"{where}: {wrong}")
        hint = get_type_hints(kinds[section])[key]
        try:
            value = from_text(hint, text.strip("\r\n"), is_json=f"{section}.{key}" in _JSON_TEXTS)
        except ValueError as error:
            raise usage(f"{where}: {error}") from None
        yield Variable(name, table, key, value)


def variable(section: str, key: str) -> str:
    return f"{ENV_PREFIX}{section}__{key}".upper()


def from_text(hint: Any, text: str, *, is_json: bool = False) -> Any:
    """Convert a variable's text to the value that a TOML file would give. An empty text unsets an
    optional key. Raises `ValueError` if the text does not fit the key: for example JSON if the key
    takes a plain text, or a malformed list or table.
    """
    kinds = _kinds(hint)
    if not text and type(None) in kinds:
        return None
    if text in choices(hint):
        return text
    if dict in kinds:
        return _table(text)
    if list in kinds:
        return _list(text, whole_numbers=int in kinds)
    if bool in kinds and text.lower() in ("true", "false", "1", "0"):
        return text.lower() in ("true", "1")
    for kind in (int, float):
        if kind in kinds:
            try:
                return kind(text)
            except ValueError:
                pass
    if not is_json and isinstance(_json(text), list | dict):
        raise ValueError("this is JSON, and the key takes one text")
    return text


def choices(hint: Any) -> tuple[str, ...]:
    """If a key takes one of a few texts: these texts. Empty if the key takes any text, or no text
    at all.
    """
    if get_origin(hint) is Literal:
        return get_args(hint)
    inner_choices = (choices(inner) for inner in get_args(hint) if get_origin(hint) is not list)
    return tuple(choice for inner in inner_choices for choice in inner)


def _list(text: str, *, whole_numbers: bool) -> list[str | int]:
    """The elements of a list that is written as `a,b` or `["a", "b"]`."""
    wanted = "write a list as a,b or as a JSON array"
    if text.lstrip().startswith(("[", "{", '"', "'")):
        parts = _json(text)
        if not isinstance(parts, list):
            raise ValueError(f"{text} is neither; {wanted}")
        kinds = (str, int) if whole_numbers else (str,)
        wrong = [part for part in parts if type(part) not in kinds]
        if wrong:
            raise ValueError(f"{json.dumps(wrong[0])} cannot be in this list; {wanted}")
        return parts
    parts = [part.strip() for part in text.split(",") if part.strip()]
    if any(part.startswith(('"', "'")) or part.endswith(('"', "'")) for part in parts):
        raise ValueError(f"{text} has quotes, but is no JSON array; {wanted}")
    return [int(part) if whole_numbers and part.isdecimal() else part for part in parts]


def _table(text: str) -> dict[str, Any]:
    table = _json(text)
    if not isinstance(table, dict):
        raise ValueError(f"{text} is no table; write it as a JSON object")
    return table


def _json(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return None


def _is_own(name: str, text: str) -> bool:
    if name in OWN or name.startswith(OWN_PREFIXES) or _OF_KUBERNETES.fullmatch(name):
        return True
    return name.endswith("_PORT") and _ADDRESS.match(text) is not None


def _kinds(hint: Any) -> set[Any]:
    """The types that a key's value may have. If it is a list or a table: `list` or `dict`, and the
    types of its elements.
    """
    if get_origin(hint) is Literal:
        return {str}
    if isinstance(hint, type) and issubclass(hint, Struct):
        return {dict}
    own = {get_origin(hint)} & {list, dict}
    return own.union(*map(_kinds, get_args(hint))) if get_args(hint) else {hint}
