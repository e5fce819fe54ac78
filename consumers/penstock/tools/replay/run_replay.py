"""Runs a replay, from the decision on its range, before the pipeline starts, to its summary; puts
the summary into words for people.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import msgspec
from rich.console import Group, RenderableType
from rich.text import Text

from penstock.adapters.inputs.bounded_sources import BoundedSource
from penstock.adapters.kafka.positions_from_outside import Groups, open_groups
from penstock.adapters.kafka.reader import open_reader
from penstock.adapters.kafka.topics import create_topics, topic_shapes
from penstock.core.comparing.comparison import AgreementShare
from penstock.errors import usage
from penstock.failures.outage import until_answered
from penstock.messages.command_json import Difference, Replayed, ReplayedPartition
from penstock.pipeline.life import Pipeline
from penstock.ports import InputSource
from penstock.process.asyncio_additions import SystemClock
from penstock.process.signals import StopSignal
from penstock.terminal_text import folded, worst_streams
from penstock.tools.replay.decided_range import decide
from penstock.tools.replay.diff import Compares, check, difference
from penstock.tools.replay.pacing import KeptRange, Look, Watch
from penstock.tools.replay.worker_settings import Plan
from penstock.worker.open_worker import Variant, open_worker, stop_signal, until_services_answered

# The live group counts as behind if it leaves a message uncommitted for longer than its commit
# interval and this time together. A pause of the garbage collector takes less, and so does a
# rebalance, if no huge object is being read.
SPARE_S = 2.0


async def replay(
    plan: Plan,
    *,
    behind_s: float | None = None,
    on_look: Callable[[Look], None] = lambda _: None,
    on_made: Callable[[str], None] = lambda _: None,
    compares: Compares | None = None,
) -> Replayed | None:
    """Run to the end of the range, or until SIGTERM or SIGINT. Returns the summary, or None if the
    replay was stopped before it began or while it compared. `behind_s`: if the live group leaves a
    message uncommitted for longer than this, the replay waits for the group; 0: the replay never
    waits. `compares`: if it is given, the answers are compared with the former ones at the end.
    """
    if compares is not None:
        check(plan)
    with stop_signal(plan.cfg) as stop:
        async with open_groups(plan.cfg.kafka) as groups:
            await _make_topics(plan, on_made)
            whole = _Replay(plan, groups, on_look, _patience_s(plan, behind_s), compares)
            return await whole.run(stop)
    return None


def _patience_s(plan: Plan, behind_s: float | None) -> float | None:
    """How long the live group may leave a message uncommitted. None: the replay does not look at
    the live group.
    """
    if behind_s is None:
        return SPARE_S + plan.live.delivery.commit_interval_ms / 1000
    return behind_s or None


async def _make_topics(plan: Plan, on_made: Callable[[str], None]) -> None:
    """Create those of the replay's topics that are missing, with the shape of the live output
    topic.
    """
    cfg, like = plan.cfg, plan.live.output.topic
    ours = (cfg.output.topic, cfg.output.dead_letter_topic)
    shapes = await topic_shapes(cfg.kafka, [like, *ours])
    missing = [topic for topic in ours if topic not in shapes]
    if not missing:
        return
    if like not in shapes:
        raise usage(
            f"there is no topic {missing[0]}, nor {like} whose shape it would get; "
            "create it: penstock topics create"
        )
    for topic, _ in await create_topics(cfg.kafka, missing, shapes[like]):
        on_made(f"created {topic} ({shapes[like].partitions} partitions, as {like})")


@dataclass(slots=True)
class _Counts:
    """The counts of this process. The work of earlier processes for the same replay is not
    counted.
    """

    rows: int = 0
    skipped: int = 0
    rejected: dict[str, int] = field(default_factory=dict)


@dataclass(eq=False)
class _Replay:
    """One replay. Call `run` once."""

    plan: Plan
    groups: Groups
    on_look: Callable[[Look], None]
    patience_s: float | None
    compares: Compares | None
    _clock: SystemClock = field(default_factory=SystemClock, init=False)
    _counts: _Counts = field(default_factory=_Counts, init=False)

    async def run(self, stop: StopSignal) -> Replayed:
        began_s = self._clock.now()
        start_s = self.plan.cfg.limits.start_ms / 1000
        await until_answered("Kafka broker", self._decide, self._clock, start_s)
        if not self._watch.is_done:
            await self._work(stop)
            await self._watch.ask()
        summary = self._summary(self._clock.now() - began_s)
        if self.compares is not None and summary.complete:
            summary.difference = await difference(self.plan, self._decided, self.compares)
        return summary

    async def _decide(self) -> None:
        """Decide the range, or read the range that an earlier process of the replay has decided.
        Then ask how far the replay has come.
        """
        plan = self.plan
        async with open_reader(plan.live.kafka, "read_uncommitted") as reader:
            self._decided = await decide(plan, self.groups, reader, self._clock.wall_ms())
        self._watch = Watch(
            self._decided.spans,
            self.groups,
            self._clock,
            KeptRange(self._decided.kept_in, self._decided.written),
            live_group=plan.live.kafka.group,
            group=plan.group,
            within_s=self.patience_s,
            on_look=self.on_look,
        )
        await self._watch.ask()

    async def _work(self, stop: StopSignal) -> None:
        ends = {part: span.end for part, span in self._decided.spans.items()}
        sources: list[BoundedSource] = []

        def bounded(source: InputSource) -> InputSource:
            sources.append(BoundedSource(source, ends))
            sources[0].is_held = True  # it is held until `Watch` has looked at the live group
            return sources[0]

        async with open_worker(self.plan.cfg, Variant(bounded, self.plan.settings)) as pipeline:
            await until_services_answered(self.plan.cfg, pipeline)
            stop.then(pipeline.stop)
            try:
                await pipeline.run_until(partial(self._watch.run, pipeline, sources[0]))
            finally:
                stop.then(None)
                self._counts = _counted(pipeline)

    def _summary(self, took_s: float) -> Replayed:
        plan, watch, counts = self.plan, self._watch, self._counts
        return Replayed(
            name=plan.options.named,
            group=plan.group,
            to=plan.cfg.output.topic,
            model=plan.options.model,
            since_ms=plan.options.since_ms,
            until_ms=plan.options.until_ms,
            complete=watch.is_done,
            messages=watch.look.total,
            done=watch.look.done,
            rows=counts.rows,
            rejected=counts.rejected,
            skipped=counts.skipped,
            idle_s=round(watch.look.idle_s, 1),
            took_s=round(took_s, 1),
            partitions=[
                ReplayedPartition(part.topic, part.partition, span.begin, span.end, next_offset)
                for part, span in sorted(self._decided.spans.items())
                for next_offset in (watch.reached.get(part, span.begin),)
            ],
        )


def _counted(pipeline: Pipeline) -> _Counts:
    wiring = pipeline.wiring
    registry = wiring.telemetry.registry
    rejected = {
        sample.labels["code"]: int(sample.value)
        for family in registry.collect()
        for sample in family.samples
        if sample.name == "penstock_rejected_total"
    }
    rows = registry.get_sample_value("penstock_rows_delivered_total") or 0.0
    return _Counts(int(rows), wiring.intake.skipped, rejected)


def render(done: Replayed) -> RenderableType:
    """The summary in the form that `rich` prints: how far the replay has come, and how the answers
    differ.
    """
    text = Text(sentence(done), no_wrap=True, overflow="ignore")
    return text if done.difference is None else Group(text, _difference(done.difference))


def sentence(done: Replayed) -> str:
    """The summary in a sentence."""
    rejected = sum(done.rejected.values())
    message = f"{done.done:,} of {done.messages:,} messages"
    message += f": {done.rows:,} rows to {done.to} in {done.took_s:.1f} s"
    if rejected:
        codes = ", ".join(f"{code} {number:,}" for code, number in done.rejected.items())
        message += f", {rejected:,} rejected ({codes})"
    if done.skipped:
        message += f", {done.skipped:,} objects of other streams skipped"
    if done.idle_s:
        message += f"; waited {done.idle_s:.0f} s for the live group"
    if not done.complete:
        message += ". Not at the end: the same command goes on there"
    elif not done.messages:
        message += ". There is no message with a time between the two"
    elif not done.rows and not done.skipped:
        message += ". All was answered by earlier starts: another --name begins anew"
    return message + "."


def _difference(difference: Difference) -> RenderableType:
    parts: list[RenderableType] = [Text(line) for line in lines(difference)]
    if difference.worst:
        worst = (
            (stream.stream, AgreementShare(stream.rows, stream.agreed))
            for stream in difference.worst
        )
        parts.append(worst_streams(worst))
    if difference.examples:
        names = ("disagreements", "object", "columns", "then", "now")
        examples = (
            (row.id, _name(row.object), _json(row.columns), _json(row.then), _json(row.now))
            for row in difference.examples
        )
        parts.append(folded(names, examples))
    return Group(*parts)


def lines(difference: Difference) -> list[str]:
    """The figures of the comparison, as lines of text."""
    agree = "Nothing to compare: no row of the range was predicted both then and now."
    if difference.rows:
        agree = (
            f"{difference.agreed:,} of {difference.rows:,} rows that were predicted then and now "
            f"agree: {_percent(difference.agreement)} "
            f"({_percent(difference.low)} to {_percent(difference.high)} in 95 of 100 cases); "
            f"{_percent(difference.equal / difference.rows)} are equal to the last digit."
        )
    failed = {
        "failed now only": difference.failed_now,
        "failed then only": difference.failed_then,
        "failed both times with another code": difference.other_error,
        "failed both times with the same code": difference.same_error,
    }
    alone = {
        "were answered then only": difference.only_then,
        "now only": difference.only_now,
        "came again and are counted once": difference.repeated,
        "could not be compared, as their counterparts were too far away": difference.unseen,
    }
    said = (
        "; ".join(f"{_rows(count)} {what}" for what, count in counts.items() if count)
        for counts in (failed, alone)
    )
    return [agree, *(f"{line}." for line in said if line)]


def _rows(number: int) -> str:
    return f"{number:,} row{'' if number == 1 else 's'}"


def _percent(share: float) -> str:
    """A share as a percentage. A share below 1 is shown as at most 99.9999 %, so that 100 % always
    means all.
    """
    return "100 %" if share == 1.0 else f"{min(100 * share, 99.9999):.4f} %"


def _name(about: Any) -> str:
    return f"{about['bucket']}/{about['key']}" if about else ""


def _json(value: object) -> str:
    return "" if value is None else msgspec.json.encode(value).decode()
