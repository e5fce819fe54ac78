"""Finds every table and key that no section declares, and names the nearest valid ones."""

import difflib
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple

from msgspec import Struct

from penstock.config.all_sections import NAMED, SECTIONS, SHARING, TABLES


class Wrong(NamedTuple):
    """An unknown table or key. `path`: the names of the tables, and then the key. A table of an
    array has a number instead of a name, counted from 1.
    """

    path: tuple[str | int, ...]
    said: str


def unknown_keys(tree: Mapping[str, Any]) -> Iterator[Wrong]:
    for section, keys in list(tree.items()):
        if section == "region":
            continue
        if section in TABLES:
            yield from _in_tables(section, keys)
        elif section not in SECTIONS and section not in NAMED:
            yield Wrong((section,), unknown(section, "", SECTIONS | NAMED))
        elif not isinstance(keys, dict):
            yield Wrong((section,), f"[{section}] must be a table")
        elif section in NAMED:
            yield from _in_named(section, keys)
        else:
            yield from _in_table((section,), section, keys, None)


def _in_named(section: str, tables: Mapping[str, Any]) -> Iterator[Wrong]:
    for name, keys in list(tables.items()):
        if isinstance(keys, dict):
            yield from _in_table((section, name), section, keys, f"{section}.{name}.")
        elif section not in SHARING:
            hint = f"a key of one store stands in its own table, [stores.NAME]: {name} = ..."
            yield Wrong((section, name), f"[{section}.{name}] must be a table; {hint}")
        elif reason := unknown(section, name, NAMED):
            yield Wrong((section, name), reason)


def _in_tables(section: str, tables: Any) -> Iterator[Wrong]:
    if not isinstance(tables, list) or not all(isinstance(table, dict) for table in tables):
        yield Wrong((section,), f"write [[{section}]], there may be several")
        return
    for number, table in enumerate(tables, 1):
        label = section_shown(f"{section}[{number}]", table)
        yield from _in_table((section, number), section, table, label)


def _in_table(
    path: tuple[str | int, ...], section: str, keys: Mapping[str, Any], label: str | None
) -> Iterator[Wrong]:
    for key in list(keys):
        if reason := unknown(section, key, SECTIONS | NAMED | TABLES, label):
            yield Wrong((*path, key), reason)


def section_shown(section: str, keys: Mapping[str, Any]) -> str:
    """The text that stands before a key in messages. For `[[models]]` it has the model's name or
    number.
    """
    if not section:
        return ""
    table, bracket, number = section.partition("[")
    if not bracket:
        return f"{section}."
    name = keys.get("name")
    which = f"{name!r}" if isinstance(name, str) else f"number {number.removesuffix(']')}"
    return f"[[{table}]] {which}: "


def unknown(
    section: str, key: str, sections: Mapping[str, type[Struct]], label: str | None = None
) -> str:
    """The error text for a section or key that is not declared; empty if it is declared. `label`:
    the text that the message puts before the key if several tables share a section, for example
    `stores.lake.`.
    """
    if section not in sections:
        return f"no section [{section}]{nearest(section, sections)}"
    keys = keys_of(sections[section])
    if key in keys:
        return ""
    elsewhere = next((name for name, kind in SECTIONS.items() if key in keys_of(kind)), None)
    hint = f" [{elsewhere}] has this key" if elsewhere else ""
    return f"no key {label or f'{section}.'}{key}{nearest(key, keys)}{hint}"


def nearest(word: str, valid: Iterable[str]) -> str:
    close = difflib.get_close_matches(word, list(valid), n=1, cutoff=0.0)
    return f"; did you mean {close[0]}?" if close else ""


def keys_of(section: type[Struct]) -> tuple[str, ...]:
    return section.__struct_encode_fields__
