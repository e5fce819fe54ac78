"""What the judge found: counts, and the first violations of each kind with where and what.

Rule: a report is plain data, for people as a table and for programs as JSON. Owner: the judge until
it is finished, then the caller.
"""

from typing import Literal

import msgspec
from msgspec import Struct, field
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

# Enough to see a pattern; a broken run may have millions.
SHOWN_PER_KIND = 5

Kind = Literal[
    "unreadable",
    "bad_id",
    "foreign_partition",
    "unknown_reference",
    "out_of_order",
    "repeat_out_of_order",
    "duplicate",
    "duplicate_differs",
    "stream_changed",
    "lost_reference",
    "lost_tail",
    "lost_rows",
    "missing_marker",
    "unexpected_rows",
    "wrong_end",
    "missing_dead_letter",
    "stray_dead_letter",
    "wrong_dead_letter",
    "commit_ahead",
]


class Violation(Struct, frozen=True):
    """One broken promise, at a record of the named topic."""

    kind: Kind
    topic: str
    partition: int
    offset: int
    expected: str
    found: str


class Counts(Struct):
    """How much was read. `unproven`: objects without an answer while markers are off."""

    references: int = 0
    ignored: int = 0
    objects: int = 0
    records: int = 0
    rows: int = 0
    rejected_rows: int = 0
    markers: int = 0
    dead_letters: int = 0
    duplicates: int = 0
    repeated_runs: int = 0
    outside: int = 0
    unproven: int = 0


class Report(Struct):
    """`violations` counts every violation by kind, `first` holds the first few of each."""

    counts: Counts = field(default_factory=Counts)
    violations: dict[Kind, int] = field(default_factory=dict)
    first: list[Violation] = field(default_factory=list)

    @property
    def ok(self) -> bool:
        return not self.violations

    def blame(self, violation: Violation) -> None:
        known = self.violations.get(violation.kind, 0)
        self.violations[violation.kind] = known + 1
        if known < SHOWN_PER_KIND:
            self.first.append(violation)

    def to_json(self) -> bytes:
        """With a field `ok`, for programs."""
        return msgspec.json.encode({"ok": self.ok, **msgspec.structs.asdict(self)})


def render(report: Report) -> RenderableType:
    """For `rich.print`: the counts, the verdict, and what is wrong."""
    counts = Table(show_header=False, box=None, pad_edge=False)
    for name, number in msgspec.structs.asdict(report.counts).items():
        counts.add_row(name.replace("_", " "), Text(f"{number:,}", justify="right"))
    if report.ok:
        return Group(
            counts, Text("verified: every reference answered, in order", style="bold green")
        )
    total = sum(report.violations.values())
    found = Table(title=f"{total:,} violations", title_style="bold red", title_justify="left")
    for heading in ("kind", "count", "first at", "expected", "found"):
        found.add_column(heading, justify="right" if heading == "count" else "left")
    for one in sorted(report.first, key=lambda violation: violation.kind):
        where = f"{one.topic}/{one.partition}/{one.offset}"
        found.add_row(
            one.kind, f"{report.violations[one.kind]:,}", where, Text(one.expected), Text(one.found)
        )
    return Group(counts, found)
