"""The documentation as a site: each page has its place, and failure stories quote true lines."""

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from types import SimpleNamespace

import pytest
import yaml

from scripts.docs_links import on_page_markdown

ROOT = Path(__file__).parent.parent
DOCS = ROOT / "docs"
PAGES = {page.name for page in DOCS.glob("*.md")}
# So much text between the parts that differ is not found by chance.
LEAST_CHARS = 12


def test_every_page_has_its_place_on_the_site_and_on_its_first_page() -> None:
    site = yaml.safe_load((ROOT / "mkdocs.yml").read_text())
    first, *sections = site["nav"]
    listed = [page for section in sections for pages in section.values() for page in pages]
    assert sorted([first, *listed]) == sorted(PAGES)
    linked = set(re.findall(r"\]\(([\w-]+\.md)", (DOCS / "index.md").read_text()))
    assert linked == PAGES - {"index.md"}


def test_the_site_loads_nothing_from_other_hosts() -> None:
    site = yaml.safe_load((ROOT / "mkdocs.yml").read_text())
    assert site["theme"]["font"] is False
    assert site["plugins"] == ["search"]
    assert not {"extra_css", "extra_javascript"} & site.keys()


def test_links_to_files_outside_of_the_site_become_their_text() -> None:
    page = SimpleNamespace(file=SimpleNamespace(src_path="a.md"))
    text = "see [life.py](../consumers/penstock/pipeline/life.py) and [b](b.md#c)"
    assert on_page_markdown(text, page) == "see life.py and [b](b.md#c)"
    with pytest.raises(FileNotFoundError, match="leads nowhere"):
        on_page_markdown("[x](../consumers/none.py)", page)


def pieces(node: ast.expr) -> Iterator[str]:
    """The constant parts of a text, in order."""
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        yield from re.split(r"%[-.\d]*[a-z]", node.value)
    elif isinstance(node, ast.JoinedStr):
        for part in node.values:
            if isinstance(part, ast.Constant):
                yield str(part.value)


@cache
def templates() -> frozenset[tuple[str, ...]]:
    """Of all texts of the package, what is constant in them."""
    return frozenset(
        found
        for path in (ROOT / "consumers/penstock").rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Constant | ast.JoinedStr)
        if sum(map(len, found := tuple(each.strip(" \n") for each in pieces(node)))) >= LEAST_CHARS
    )


def is_said(line: str) -> bool:
    """By one of the texts, in whose place of what differs anything may stand."""
    known = line.split("...", maxsplit=1)[0]
    for parts in templates():
        if sum(map(bool, parts)) < 2 and not known.startswith(parts[0] or "\n"):
            continue  # a few words of which other texts are made
        if re.search(".*".join(map(re.escape, parts)), known, re.DOTALL):
            return True
        if "..." in line and _begins(parts, known):
            return True
    return False


def _begins(parts: tuple[str, ...], known: str) -> bool:
    """True if the quoted beginning ends within the text."""
    return any(
        sum(map(len, parts[:count])) >= LEAST_CHARS
        and re.search(".*".join(map(re.escape, parts[:count])), known, re.DOTALL)
        for count in range(1, len(parts))
    )


def quoted() -> list[str]:
    text = (DOCS / "failures.md").read_text()
    blocks = re.findall(r"^```text\n(.*?)^```", text, re.MULTILINE | re.DOTALL)
    return [line for block in blocks for line in block.splitlines()]


@pytest.mark.parametrize("line", quoted())
def test_a_line_of_a_failure_story_is_one_that_is_logged(line: str) -> None:
    assert is_said(line)


def test_a_line_that_nobody_logs_would_be_noticed() -> None:
    assert len(quoted()) >= 12
    for line in ("the store does not answer: ...", "rejected by refs/3, offset 1: ..."):
        assert not is_said(line)
