"""`penstock compare`: how far a shadow agrees with the live model, from the shadow topic.

Rule: counts come from summary records alone, each once; disagreement records are only examples,
because some may be missing. Summaries of different versions or tolerances are never added up.
Memory grows with streams and comparisons, not with rows.
"""

from collections import Counter, deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from typing import Any, Final, NamedTuple

import orjson
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from penstock import config
from penstock.adapters.kafka.reader import offsets, open_reader
from penstock.core.comparing.comparison import AgreementShare, ComparedTimes, Comparison, Tally
from penstock.messages.reference import SchemaError
from penstock.messages.shadow import Disagreement, ModelId, Said, Summary, decode_shadow
from penstock.terminal_text import agreement, folded, utc, worst_streams

# Why disagreements have no record, in words (`core.comparing.comparison.Unsent`).
UNSENT: Final[Mapping[str, str]] = {
    "many": "too many came at once; they are counted all the same",
    "long": "too long for a record: raise max.message.bytes of the topic",
    "unwritten": "the shadow topic could not be written: see the worker's log",
}
# At most this many streams of all workers are counted by name; all others are counted together.
MOST_STREAMS = 10_000


class ComparisonRules(NamedTuple):
    """The two models that were compared, and the rules by which their answers count as equal."""

    live: ModelId
    shadow: ModelId
    tolerance: float
    pointers: tuple[str, ...]


@dataclass(slots=True)
class ComparisonSums:
    """The sums of one comparison. `since` and `until`: the times of its first and last summary, in
    epoch milliseconds. `unsent`: by its reason, the number of disagreements without a record.
    """

    rules: ComparisonRules
    since: int
    until: int
    sums: Comparison = field(default_factory=lambda: Comparison(Tally(MOST_STREAMS)))
    examples: Sequence[Disagreement] = ()
    unsent: Counter[str] = field(default_factory=Counter)

    @property
    def share(self) -> AgreementShare:
        return self.sums.tally.total

    def surely(self, share: float) -> bool:
        """True if even the low end of the agreement's confidence interval is at least `share`."""
        return self.share.interval()[0] >= share

    def as_json(self, worst: int) -> dict[str, Any]:
        rules, sums = self.rules, self.sums
        return {
            **rules._asdict(),
            "since": self.since,
            "until": self.until,
            "rows": self.share.rows,
            "agreed": self.share.agreed,
            "agreement": self.share.value,
            "interval": self.share.interval(),
            "dropped": sums.dropped,
            "unanswered": sums.unanswered,
            "unsent": sum(self.unsent.values()),
            "unsent_why": self.unsent,
            "live_ms": _quantiles(sums.live_took),
            "shadow_ms": _quantiles(sums.shadow_took),
            "worst": [
                {"stream": name, "rows": share.rows, "agreed": share.agreed}
                for name, share in sums.tally.worst(worst)
            ],
            "examples": self.examples,
        }


class Comparing:
    """Sums up the records of a shadow topic: `take` each record, then call `found`."""

    def __init__(self, streams: Sequence[str], examples: int) -> None:
        """`streams`: globs of stream names; if there are any, only the streams that match one of
        them are counted.
        """
        self._streams = streams
        self._most = examples
        self._comparisons: dict[ComparisonRules, ComparisonSums] = {}
        self._examples: dict[tuple[ModelId, ModelId], deque[Disagreement]] = {}
        # For each worker: the number of its last summary. If the next summary of the worker has no
        # higher number, that summary is a repeat.
        self._last: dict[str, int] = {}
        self.strange = 0

    def take(self, value: bytes | None) -> None:
        try:
            record = decode_shadow(value or b"")
        except SchemaError:
            self.strange += 1
            return
        if isinstance(record, Disagreement):
            self._show(record)
        elif self._is_new(record):
            self._sum_up(record)

    def found(self) -> list[ComparisonSums]:
        """All comparisons, each with its latest examples. The latest comparison is the last."""
        for comparison in self._comparisons.values():
            comparison.examples = tuple(
                self._examples.get((comparison.rules.live, comparison.rules.shadow), ())
            )
        return sorted(self._comparisons.values(), key=lambda sums: sums.until)

    def _is_new(self, summary: Summary) -> bool:
        worker, _, digits = summary.id.rpartition("/")
        try:
            number = int(digits)
        except ValueError:  # such a record was not written by a worker
            self.strange += 1
            return False
        if number <= self._last.get(worker, 0):
            return False
        self._last[worker] = number
        return True

    def _is_meant(self, stream: str) -> bool:
        return not self._streams or any(fnmatchcase(stream, glob) for glob in self._streams)

    def _show(self, disagreement: Disagreement) -> None:
        if self._is_meant(disagreement.stream):
            pair = (_model(disagreement.live), _model(disagreement.shadow))
            self._examples.setdefault(pair, deque(maxlen=self._most)).append(disagreement)

    def _sum_up(self, summary: Summary) -> None:
        rules = ComparisonRules(summary.live, summary.shadow, summary.tolerance, summary.pointers)
        comparison = self._comparisons.setdefault(
            rules, ComparisonSums(rules, summary.since, summary.until)
        )
        comparison.since, comparison.until = (
            min(comparison.since, summary.since),
            max(comparison.until, summary.until),
        )
        for stream, (rows, agreed) in summary.streams.items():
            if self._is_meant(stream):
                comparison.sums.tally.add(stream, rows, agreed)
        comparison.sums.dropped += summary.dropped
        comparison.sums.unanswered += summary.unanswered
        why = {**summary.unsent_why}
        if unknown := summary.unsent - sum(why.values()):  # of a worker of before 'unsent_why'
            why[""] = unknown
        comparison.unsent.update(why)
        comparison.sums.live_took.merge(summary.live_took)
        comparison.sums.shadow_took.merge(summary.shadow_took)


async def compare(
    cfg: config.Config,
    *,
    since: int | None,
    streams: Sequence[str],
    examples: int,
    progress: Callable[[int, int], None],
) -> Comparing:
    """Read the records that are on the shadow topic now. `since`: a time in epoch milliseconds;
    older records are not read.
    """
    topic, comparing = cfg.output.shadow_topic, Comparing(streams, examples)
    async with open_reader(cfg.kafka, "read_uncommitted") as reader:
        spans = await (reader.spans(topic) if since is None else reader.spans_since(topic, since))
        total, done = offsets(spans.values()), 0

        def passed(number: int) -> None:
            nonlocal done
            done += number
            progress(done, total)

        await reader.read(topic, spans, lambda _p, _o, _k, value: comparing.take(value), passed)
    return comparing


def _model(answer: Said) -> ModelId:
    return ModelId(answer.model, answer.model_version)


def _quantiles(took: ComparedTimes) -> dict[str, float | None]:
    def ms(share: float) -> float | None:
        found_s = took.quantile_s(share)
        return None if found_s is None else round(found_s * 1000, 2)

    return {"p50": ms(0.5), "p99": ms(0.99)}


def render(comparison: ComparisonSums, worst: int) -> RenderableType:
    """The report on one comparison, to be printed by `rich`. `worst`: how many streams the report
    names; it names those that agree least.
    """
    return Group(*_parts(comparison, worst))


def _parts(comparison: ComparisonSums, worst: int) -> Iterator[RenderableType]:
    rules, sums = comparison.rules, comparison.sums
    yield Text(
        f"{_model_name(rules.live)} and its shadow {_model_name(rules.shadow)}", style="bold"
    )
    what = " and ".join(rules.pointers) or "whole answers"
    yield Text(
        f"{utc(comparison.since)} to {utc(comparison.until)} (UTC); {what}, numbers within "
        f"{rules.tolerance:g}"
    )
    yield Text(f"agreement: {agreement(comparison.share)} of {comparison.share.rows:,} rows")
    missing = ((sums.dropped, "for want of room"), (sums.unanswered, "the shadow did not answer"))
    for rows, why in missing:
        if rows:
            yield Text(f"not compared: {rows:,} rows, {why}")
    yield _times(comparison)
    if streams := sums.tally.worst(worst):
        yield worst_streams(streams)
    if comparison.examples:
        yield folded(
            ("disagreements", "stream", "live", "shadow"),
            (
                (example.id, example.stream, _said(example.live), _said(example.shadow))
                for example in comparison.examples
            ),
        )
    for why, rows in comparison.unsent.items():
        reason = UNSENT.get(why, "its worker did not say why")
        yield Text(f"disagreements without a record: {rows:,}, {reason}")


def _times(comparison: ComparisonSums) -> Table:
    table = Table(pad_edge=False)
    for name in ("time of a call", "p50", "p99"):
        table.add_column(name)
    for name, took in (
        ("live", comparison.sums.live_took),
        ("shadow", comparison.sums.shadow_took),
    ):
        table.add_row(name, *(_shown_ms(took.quantile_s(share)) for share in (0.5, 0.99)))
    return table


def _said(answer: Said) -> str:
    if answer.error is not None:
        return f"rejected: {answer.error}"
    return orjson.dumps(answer.prediction).decode()


def _model_name(model: ModelId) -> str:
    return model.name if model.version is None else f"{model.name} {model.version}"


def _shown_ms(seconds: float | None) -> str:
    if seconds is None:
        return "-"
    ms = seconds * 1000
    return f"{ms:,.0f} ms" if ms >= 100 else f"{ms:.3g} ms"
