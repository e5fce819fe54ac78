"""On which line of a TOML file a table or a key stands.

Rule: `tomllib` reads, and keeps no lines; here a file is cut into its statements, and each is read
alone. Only for files that `tomllib` can read as a whole. Owner: `penstock lint`.
"""

import tomllib
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

# Names of tables, and in an array of tables numbers that count from 1: ("models", 2, "name").
Path = tuple[str | int, ...]


class _Statement(NamedTuple):
    """A header or a key with its value; `line` is where it begins."""

    line: int
    text: str
    tree: Mapping[str, Any]


def lines_of(text: str) -> dict[Path, int]:
    found: dict[Path, int] = {}
    table: Path = ()
    counts: dict[Path, int] = {}
    for line, statement, tree in _statements(text):
        if not statement.startswith("["):
            for path in _keys(tree):
                _note(found, table + path, line)
            continue
        names = _names(tree)
        if statement.startswith("[["):
            counts[names] = counts.get(names, 0) + 1
            table = (*names, counts[names])
        else:
            table = _inside(names, counts)
        _note(found, table, line)
    return found


def line_of(lines: Mapping[Path, int], path: Path) -> int | None:
    """Of the path, or of the nearest table around it that the file has."""
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
            continue  # its value goes on in the next line
        if tree:
            yield _Statement(begin, pending.lstrip(), tree)
        pending = ""


def _names(tree: Any) -> Path:
    """Of a header, which leads to one empty table."""
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
    """`[routes.split]` belongs to the last `[[routes]]`."""
    found: list[str | int] = []
    for depth, name in enumerate(names, 1):
        found.append(name)
        if names[:depth] in counts:
            found.append(counts[names[:depth]])
    return tuple(found)


def _keys(tree: Mapping[str, Any]) -> Iterator[Path]:
    """The key of a statement, with the tables before it and in it."""
    for name, value in tree.items():
        yield (name,)
        if isinstance(value, dict):
            yield from ((name, *below) for below in _keys(value))


def _note(found: dict[Path, int], path: Path, line: int) -> None:
    for depth in range(1, len(path) + 1):
        found.setdefault(path[:depth], line)
