"""Finds the line on which a table or a key stands in a TOML file, because `tomllib` does not tell:
a valid file is cut into its statements, and each read alone.
"""

import tomllib
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

# The place of a setting: the names of its tables, then its key. After the name of an array of
# tables comes the number of the table, counted from 1. An example is ("models", 2, "name").
Path = tuple[str | int, ...]


class _Statement(NamedTuple):
    """The header of a table, or a key with its value. `line`: where the statement begins."""

    line: int
    text: str
    tree: Mapping[str, Any]


def lines_of(text: str) -> dict[Path, int]:
    lines: dict[Path, int] = {}
    table: Path = ()
    counts: dict[Path, int] = {}
    for line, statement, tree in _statements(text):
        if not statement.startswith("["):
            for path in _keys(tree):
                _note(lines, table + path, line)
            continue
        names = _names(tree)
        if statement.startswith("[["):
            counts[names] = counts.get(names, 0) + 1
            table = (*names, counts[names])
        else:
            table = _inside(names, counts)
        _note(lines, table, line)
    return lines


def line_of(lines: Mapping[Path, int], path: Path) -> int | None:
    """The number of the line on which this path stands. If the file does not have the path: the
    line of the nearest table around it.
    """
    while path:
        if path in lines:
            return lines[path]
        path = path[:-1]
    return None


def _statements(text: str) -> Iterator[_Statement]:
    begin, pending = 1, ""
    for number, line in enumerate(text.splitlines(keepends=True), 1):
        begin, pending = (begin, pending + line) if pending else (number, line)
        try:
            tree = tomllib.loads(pending)
        except tomllib.TOMLDecodeError:
            continue  # the value goes on in the next line
        if tree:
            yield _Statement(begin, pending.lstrip(), tree)
        pending = ""


def _names(tree: Any) -> Path:
    """The names in the header of a table. `tree`: the result of reading the header alone by
    `tomllib`.
    """
    names: list[str | int] = []
    while tree:
        if isinstance(tree, list):
            tree = tree[0]
            continue
        (name,) = tree
        names.append(name)
        tree = tree[name]
    return tuple(names)


def _inside(names: Path, counts: Mapping[Path, int]) -> Path:
    """The path of a table. In an array of tables, a table such as `[routes.split]` belongs to the
    last `[[routes]]` before it.
    """
    parts: list[str | int] = []
    for depth, name in enumerate(names, 1):
        parts.append(name)
        if names[:depth] in counts:
            parts.append(counts[names[:depth]])
    return tuple(parts)


def _keys(tree: Mapping[str, Any]) -> Iterator[Path]:
    """The paths of all keys in a statement. There are several in a dotted key and in an inline
    table.
    """
    for name, value in tree.items():
        yield (name,)
        if isinstance(value, dict):
            yield from ((name, *below) for below in _keys(value))


def _note(lines: dict[Path, int], path: Path, line: int) -> None:
    for depth in range(1, len(path) + 1):
        lines.setdefault(path[:depth], line)
