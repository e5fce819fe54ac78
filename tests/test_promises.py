"""Each promise of docs/guarantees.md names tests, these exist, and each part of the page that says
what holds has its promises.
"""

import ast
import re
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PAGE = (ROOT / "docs" / "guarantees.md").read_text()
PROMISING, _, _REST = PAGE.partition("## Each promise and its test")
TABLE = _REST.partition("\n## ")[0]
ROWS = [line for line in TABLE.splitlines() if line.startswith("| [")]
# It says what is away, and promises below it, service by service.
ONLY_HEADINGS = {"when-something-is-away-or-ill"}


def anchor(heading: str) -> str:
    return re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-")


@cache
def functions_of(file: Path) -> set[str]:
    nodes = ast.walk(ast.parse(file.read_text()))
    return {node.name for node in nodes if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)}


@pytest.mark.parametrize("row", ROWS)
def test_a_promise_names_tests_that_there_are(row: str) -> None:
    _, promise, tests, _ = row.split("|")
    assert promise.strip().endswith("."), "a promise is a sentence"
    named = re.findall(r"`([^`]+)`", tests)
    assert named
    for node in named:
        file, name = node.split("::")
        assert name in functions_of(ROOT / file), node


def test_each_part_that_says_what_holds_has_its_promises() -> None:
    parts = {anchor(name) for name in re.findall(r"^##+ (.+)$", PROMISING, re.MULTILINE)}
    promised = {re.findall(r"\(#([^)]+)\)", row)[0] for row in ROWS}
    assert promised == parts - ONLY_HEADINGS
