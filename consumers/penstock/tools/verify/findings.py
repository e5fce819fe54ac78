"""What the judge found: counts, the first few violations of each kind, and the verdict in a
sentence.
"""

from collections import Counter
from collections.abc import Sequence
from typing import Literal, get_type_hints

import msgspec
from msgspec import Struct
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

# So many violations are enough to see a pattern. Not all are kept, because a topic in disorder may
# have millions.
KEPT_PER_KIND = 5

Kind = Literal[
    "malformed",
    "bad_id",
    "bad_key",
    "foreign_partition",
    "wrong_field",
    "not_asked",
    "disorder",
    "repeated",
    "lost",
    "bad_end",
    "differs",
    "missing_dead_letter",
    "stray_dead_letter",
    "bad_dead_letter",
    "commit_ahead",
    "bad_duplicate",
    "bad_result",
]


class BrokenPromise(Struct, frozen=True):
    """A broken promise, found at the record `topic`/`partition`/`offset`."""

    kind: Kind
    topic: str
    partition: int
    offset: int
    text: str


class VerifyReport(Struct, frozen=True, kw_only=True):
    """`duplicates`: the number of records whose id was written before, each about a row, or about
    an object where answers are written as objects. `outside`: the number of records whose
    references are not among the offsets that were read. `announced_again`: the number of objects
    that were answered by a marker which points to an earlier answer. `unproven`: the number of
    objects with neither rows nor a dead letter while `output.markers` is off. `results`: the number
    of objects whose result object was read and checked. `waiting`: how many of the objects that are
    not completely answered are of messages that the group has not committed. `replaced`: the number
    of objects whose result a later record's has replaced. `violated`: how many violations of each
    kind there are. `violations`: the first few of each kind.
    """

    references: int
    ignored: int
    objects: int
    rows: int
    streams: int
    duplicates: int
    markers: int
    rejected: int
    dead_letters: int
    outside: int
    unproven: int
    announced_again: int
    results: int
    replaced: int = 0
    waiting: int = 0
    violated: dict[str, int]
    violations: tuple[BrokenPromise, ...]

    @property
    def ok(self) -> bool:
        return not self.violated

    def as_json(self) -> str:
        return msgspec.json.encode({"ok": self.ok, **msgspec.structs.asdict(self)}).decode()

    def sentence(self) -> str:
        """The verdict, for people."""
        counts = (
            f"{counted(self.rows, 'row')} of {counted(self.streams, 'stream')} "
            f"in {counted(self.objects, 'object')}"
        )
        if not self.ok:
            kinds = ", ".join(
                f"{number:,} {kind.replace('_', ' ')}" for kind, number in self.violated.items()
            )
            waiting = (
                f" Of {self.waiting:,} the message is not committed: a worker may answer it yet; "
                "--until committed leaves it out."
                if self.waiting
                else ""
            )
            return f"{counts}: VIOLATED: {kinds}.{waiting}"
        repeated = (
            f"{counted(self.duplicates, 'record')} written twice (same id, same answer)"
            if self.duplicates
            else "none twice"
        )
        unproven = (
            f" {counted(self.unproven, 'object')} left no trace: without rows, or lost "
            "(output.markers is off)."
            if self.unproven
            else ""
        )
        return f"{counts}: in order, none lost, {repeated}.{unproven}"


def together(reports: Sequence[VerifyReport]) -> VerifyReport:
    """Make one report from those on several input topics. A record that is outside for one judge
    may belong to the input topic of another judge. So a record counts as outside only if no judge
    has judged it.
    """
    if len(reports) == 1:
        return reports[0]
    counts = {
        name: sum(getattr(report, name) for report in reports)
        for name, kind in get_type_hints(VerifyReport).items()
        if kind is int
    }
    violated: Counter[str] = Counter()
    for report in reports:
        violated.update(report.violated)
    seen = max((_judged(report) + report.outside for report in reports), default=0)
    counts["outside"] = max(0, seen - sum(map(_judged, reports)))
    violations = tuple(violation for report in reports for violation in report.violations)
    return VerifyReport(**counts, violated=dict(violated), violations=violations)


def _judged(report: VerifyReport) -> int:
    return report.rows + report.markers + report.duplicates + report.dead_letters


class Findings:
    """Collects violations."""

    def __init__(self) -> None:
        self.violated: Counter[str] = Counter()
        self.violations: list[BrokenPromise] = []

    def tell(self, kind: Kind, topic: str, partition: int, offset: int, text: str) -> None:
        self.violated[kind] += 1
        if self.violated[kind] <= KEPT_PER_KIND:
            self.violations.append(BrokenPromise(kind, topic, partition, offset, text))


def render(report: VerifyReport) -> RenderableType:
    """The report in the form that `rich` prints: counts, violations if any, and the sentence."""
    counts = Table(show_header=False, box=None, pad_edge=False)
    counts.add_column()
    counts.add_column(justify="right")
    for name in report.__struct_fields__:
        number = getattr(report, name)
        if isinstance(number, int):
            counts.add_row(name.replace("_", " "), f"{number:,}")
    style = "bold green" if report.ok else "bold red"
    verdict = Text(report.sentence(), style=style, no_wrap=True, overflow="ignore")
    if report.ok:
        return Group(counts, verdict)
    table = Table(title="the first of each kind", title_justify="left", show_lines=False)
    table.add_column("violation", no_wrap=True)
    table.add_column("at", overflow="fold")
    table.add_column("what is wrong", overflow="fold")
    for violation in report.violations:
        where = f"{violation.topic}/{violation.partition}/{violation.offset}"
        table.add_row(violation.kind.replace("_", " "), Text(where), Text(violation.text))
    return Group(counts, table, verdict)


def counted(number: int, noun: str) -> str:
    return f"{number:,} {noun}{'' if number == 1 else 's'}"
