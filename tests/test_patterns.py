"""Every regular expression of the package takes steps in proportion to the text, hostile or not."""

import ast
import importlib
import re
from collections.abc import Iterator
from fnmatch import translate
from pathlib import Path
from typing import Any

import pytest

import penstock
from penstock.formats.text import csv_dialect as dialect
from penstock.formats.text import csv_finder as finder
from penstock.formats.text import csv_row_ends as ends
from penstock.formats.text.csv_dialect import Dialect, Quoting
from tests.support.backtracking import SUSPECT, growth

ROOT = Path(penstock.__file__).parents[2]
FILES = sorted((ROOT / "consumers" / "penstock").rglob("*.py"))
# Those that are put together while the program runs, as they are then.
MADE = {
    "consumers/penstock/formats/text/csv_row_ends.py": (
        *ends.patterns(ends.DOUBLED),
        *ends.patterns(ends.ESCAPED),
    ),
    "consumers/penstock/formats/text/csv_dialect.py": (
        Dialect(b";", b",", b"#").comments,
        dialect._QUOTED_CELLS,
        dialect._QUOTED_AND_ESCAPED_CELLS,
    ),
    "consumers/penstock/formats/text/csv_finder.py": (
        finder.passed_over(b"#"),
        *(
            pattern
            for quote in (b'"', b"'", b"")
            for escapes in (False, True)
            for width in (0, 3)
            for pattern in finder.patterns(Quoting(quote, escapes), b";,", width, b"#")
        ),
    ),
}
# Patterns and globs that the operator configures, or texts of our own that are taken as they are.
CONFIGURED = {
    "consumers/penstock/adapters/confluent/member_options.py",
    "consumers/penstock/adapters/kafka/reader.py",
    "consumers/penstock/adapters/stores/names.py",
    "consumers/penstock/config/regions.py",
    "consumers/penstock/core/routing/model_routes.py",
    "consumers/penstock/core/routing/store_choice.py",
    "consumers/penstock/core/routing/stream_keys.py",
    "consumers/penstock/core/window/priorities.py",
    "consumers/penstock/logs.py",
    "consumers/penstock/ops/page/page.py",
    "consumers/penstock/scenes/core/rules.py",
    "consumers/penstock/scenes/settings.py",
    "consumers/penstock/settings/inputs.py",
    "consumers/penstock/stages/consume.py",
    "consumers/penstock/tools/lint.py",
    "consumers/penstock/tools/replay/worker_settings.py",
    "consumers/penstock/tools/verify/watch.py",
}
WAYS = {"match": "match", "fullmatch": "fullmatch"}
_BUILDERS = {
    "compile",
    "match",
    "fullmatch",
    "search",
    "sub",
    "subn",
    "split",
    "findall",
    "finditer",
}


def calls_of_re(tree: ast.AST) -> Iterator[tuple[str, ast.Call]]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            of = node.func.value
            if isinstance(of, ast.Name) and of.id == "re" and node.func.attr in _BUILDERS:
                yield node.func.attr, node


def ways_of(name: str, tree: ast.AST) -> set[str]:
    """How a pattern of this name is used; where nobody sees it, in the way that costs most."""
    used = {
        node.attr
        for node in ast.walk(tree)
        if isinstance(node, ast.Attribute)
        and isinstance(node.value, ast.Name)
        and node.value.id == name
    }
    return {WAYS.get(one, "scan") for one in used - {"pattern", "flags"}} or {"scan"}


def module_of(path: Path) -> dict[str, Any]:
    return vars(importlib.import_module(".".join(path.relative_to(ROOT).with_suffix("").parts)))


def patterns_of(path: Path) -> Iterator[tuple[re.Pattern[Any], set[str]]]:
    """Each with how it is used. Fails for one that nobody could look at."""
    tree = ast.parse(path.read_text())
    calls = list(calls_of_re(tree))
    named: dict[str, Any] = {}
    if calls:
        named = {k: v for k, v in module_of(path).items() if isinstance(v, re.Pattern)}
    known = {pattern.pattern for pattern in named.values()}
    for name, pattern in named.items():
        yield pattern, ways_of(name, tree)
    where = str(path.relative_to(ROOT))
    for pattern in MADE.get(where, ()):
        assert pattern is not None
        yield pattern, {"match"}
    top = {id(inner) for node in tree.body for inner in _of_module(node)}
    for way, call in calls:
        if isinstance(call.args[0], ast.Constant):
            text = call.args[0].value
            if text not in known:
                yield re.compile(text), {WAYS.get(way, "scan")}
        elif id(call) not in top:
            assert where in MADE or where in CONFIGURED, f"{where}:{call.lineno}: what is it then?"


def _of_module(node: ast.stmt) -> Iterator[ast.AST]:
    """What is run when the module is imported."""
    return iter(()) if isinstance(node, ast.FunctionDef | ast.ClassDef) else ast.walk(node)


def test_no_pattern_of_the_package_backtracks_on_hostile_text() -> None:
    seen = 0
    bad = []
    for path in FILES:
        for pattern, ways in patterns_of(path):
            seen += 1
            times, text = growth(pattern, ways)
            if times >= SUSPECT:
                bad.append(f"{path.relative_to(ROOT)}: {pattern.pattern!r}: {text}: {times:.0f}")
    assert seen > 60
    assert not bad


@pytest.mark.parametrize(
    ("pattern", "way"),
    [
        (r"\s*[+-]?(?:\d+[.,]?\d*|[.,]\d+)(?:[eE][+-]?\d+)?\s*", "fullmatch"),
        (r"(?:a+)+b", "match"),
        (r"(\w+)\(", "scan"),
        (r"(?:x|x)*y", "match"),
        (r" *\n* *;", "match"),
    ],
)
def test_patterns_that_backtrack_are_found(pattern: str, way: str) -> None:
    assert growth(re.compile(pattern), {way})[0] >= SUSPECT


@pytest.mark.parametrize("glob", ["*a*b*c", "**/x*", "[a-z]*.csv", "a?b*"])
def test_globs_do_not_backtrack(glob: str) -> None:
    assert growth(re.compile(translate(glob)), {"match"})[0] < SUSPECT
