"""A page lists what was tried, as the suite has it.

`python -m tests.writers.test_tried_with` writes its tables anew.
"""

import importlib
import re
import textwrap
from collections import Counter
from collections.abc import Iterable, Sequence
from itertools import chain, groupby
from pathlib import Path

from tests.writers.support import Cell

PAGE = Path(__file__).parents[2] / "docs" / "tried-with.md"
FAMILIES = {
    "CSV and TSV": ("test_csv", "test_csv_exports"),
    "JSON": ("test_json",),
    "Tables": ("test_tables",),
    "Pictures": ("test_pictures",),
    "Sound and film": ("test_sound_and_film",),
    "Archives and codecs": ("test_archives",),
}
_TABLE = re.compile(r"(?<=<!-- tried with -->\n).*?(?=<!-- end of tried with -->)", re.DOTALL)
_MADE = re.compile(r"\ba\.([a-z0-9]+)\b")


def cells(modules: Sequence[str]) -> list[Cell]:
    found = [importlib.import_module(f"tests.writers.{module}").CELLS for module in modules]
    return list(chain.from_iterable(found))


def table() -> str:
    """One line for each writer; what is tried only by `scripts/test long` is in italics."""
    lines = []
    for family, modules in FAMILIES.items():
        lines += ["", f"## {family}", ""]
        in_short = kinds if family == "Pictures" else options
        for writer, tried in groupby(cells(modules), lambda cell: cell.writer):
            text = f"**{writer}**: {in_short(tried)}".replace("\\|", "|")
            lines += textwrap.wrap(
                text, 120, initial_indent="- ", subsequent_indent="  ", break_on_hyphens=False
            )
    return "\n".join([*lines, "", ""])


def options(tried: Iterable[Cell]) -> str:
    return "; ".join(f"*{cell.option}*" if cell.is_long else cell.option for cell in tried)


def kinds(tried: Iterable[Cell]) -> str:
    """Kinds of files and how many of each: the options of pictures are whole commands."""
    counts = Counter(_kind(cell.option) for cell in tried)
    return ", ".join(f"{count} {kind}" for kind, count in counts.items())


def _kind(option: str) -> str:
    made = _MADE.findall(option)
    return made[-1].upper() if made else option.partition(",")[0]


def test_the_page_lists_what_is_tried() -> None:
    match = _TABLE.search(PAGE.read_text())
    assert match is not None
    assert match.group() == table(), "write it anew: python -m tests.writers.test_tried_with"


if __name__ == "__main__":
    PAGE.write_text(_TABLE.sub(lambda _: table(), PAGE.read_text()))
