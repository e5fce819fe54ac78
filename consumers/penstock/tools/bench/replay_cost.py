"""`bench replay`: how much a replay slows down live streams beside it.

Rule: one worker answers ticks throughout; in the middle a replay runs on the same topic and
services. Ticks due during it are compared with those before and after. The live group never reads
the backlog that is replayed.
"""

import asyncio
import time
import uuid
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import NamedTuple

import msgspec
from msgspec import Struct

from penstock import config
from penstock.adapters.kafka.positions_from_outside import open_groups
from penstock.adapters.kafka.topics import delete_topics
from penstock.errors import Fatal
from penstock.messages.command_json import Replayed
from penstock.ports import Commit, Where
from penstock.tools.bench import object_bodies, tick_generator
from penstock.tools.bench.child_processes import child, line, penstock, running_worker
from penstock.tools.bench.compared_clients import WARM_UP_REQUESTS, warm_up
from penstock.tools.bench.reader import Tick, check_order, read
from penstock.tools.bench.tick_generator import Began, GeneratorTask, Ticks
from penstock.tools.bench.topics_and_bucket import (
    PARTITIONS,
    BenchBucket,
    Topics,
    check_local,
    fresh_bucket,
    fresh_topics,
    publish,
)
from penstock.tools.bench.trial import DRAIN_MS, GRACE_S, due_since, sleep_until
from penstock.tools.bench.verdict import Sent, percentile

Tell = Callable[[str], None]

# The backlog repeats the rows of this many objects.
OBJECTS = 10


class ReplayCostPlan(Struct, frozen=True, kw_only=True):
    """How much is measured. `streams` streams are measured for `seconds`. When `alone_s` seconds
    are over, a replay of `rows` rows begins beside the streams.
    """

    rows: int = 1_000_000
    rows_per_object: int = 5_000
    streams: int = 20
    hz: float = 20.0
    tick_rows: int = 8
    seconds: float = 150.0
    alone_s: float = 40.0
    warm_up_requests: int = WARM_UP_REQUESTS


class Side(Struct):
    """The figures of the ticks that were due during the replay, or of those that were due without
    it.
    """

    ticks: int
    p50_ms: float
    p99_ms: float


class ReplayCostReport(Struct, kw_only=True):
    """`ratio`: the 99th percentile during the replay, divided by the 99th percentile without it."""

    streams: int
    hz: float
    alone: Side
    beside: Side
    ratio: float
    replayed_rows: int
    replay_s: float
    idle_s: float
    complete: bool
    lag_p99_ms: float


class _ReplayTimes(NamedTuple):
    """`begin_ms`: when the first measured tick was due. `from_ms`, `to_ms`: when the replay began
    and ended. All are epoch milliseconds.
    """

    begin_ms: float
    from_ms: float
    to_ms: float
    replayed: Replayed
    sent: Sent


async def measure(
    cfg: config.Config, config_path: Path | None, plan: ReplayCostPlan, tell: Tell
) -> ReplayCostReport:
    check_local(cfg)
    await warm_up(cfg, plan.warm_up_requests, None, tell)
    async with fresh_bucket(cfg.objects) as bucket, fresh_topics(cfg.kafka) as topics:
        tell(f"storing the ticks' objects and {plan.rows:,} rows to be replayed")
        await _store(cfg, plan, bucket, topics)
        to = f"{topics.output}.replayed"
        try:
            seen = await _observe(cfg, config_path, plan, bucket, topics, to, tell)
        finally:
            await delete_topics(cfg.kafka, [to, f"{to}.dlq"])
        answer = await read(cfg.kafka, topics, ticks=True)
    check_order(answer)
    return _report(plan, seen, answer.ticks)


async def _store(
    cfg: config.Config, plan: ReplayCostPlan, bucket: BenchBucket, topics: Topics
) -> None:
    await bucket.put(tick_generator.bodies(plan.tick_rows, 0, plan.streams))
    size = plan.rows_per_object
    await bucket.put(
        {f"past/{number}.csv": object_bodies.csv_body(size, number) for number in range(OBJECTS)}
    )
    messages = (
        (
            number % PARTITIONS,
            *object_bodies.reference(
                bucket.name, f"past/{number % OBJECTS}.csv", f"past-{number % 20:02}"
            ),
        )
        for number in range(plan.rows // size)
    )
    await publish(cfg.kafka, topics.input, messages)


async def _observe(
    cfg: config.Config,
    config_path: Path | None,
    plan: ReplayCostPlan,
    bucket: BenchBucket,
    topics: Topics,
    to: str,
    tell: Tell,
) -> _ReplayTimes:
    """Start the worker and the ticks, run the replay in the middle of the ticks, and stop the
    worker and the ticks.
    """
    group = f"bench-{uuid.uuid4().hex[:12]}"
    await _skip_the_past(cfg, group, topics.input)
    until = datetime.now(UTC).isoformat()
    ticks = Ticks(
        bucket=bucket.name,
        rows=plan.tick_rows,
        streams=plan.streams,
        hz=plan.hz,
        seconds=plan.seconds,
    )
    task = GeneratorTask(cfg.kafka, topics.input, ticks)
    own = object_bodies.numbers(cfg.model) | {
        "DELIVERY__DRAIN_MS": str(DRAIN_MS),
        "KAFKA__GROUP": group,
    }
    async with running_worker(config_path, topics, **own) as worker:
        await worker.ready()
        async with child(
            "penstock.tools.bench.tick_generator", stdin=msgspec.json.encode(task)
        ) as ticking:
            begin_ms = (await line(ticking, Began)).begin_ms
            end_ms = begin_ms + 1000 * plan.seconds
            await sleep_until(begin_ms + 1000 * plan.alone_s)
            tell("the replay begins")
            from_ms = time.time() * 1000
            replayed = await _replay(
                config_path, ["--since", "1h", "--until", until, "--to", to], topics, own, end_ms
            )
            to_ms = time.time() * 1000
            tell(f"{replayed.rows:,} rows in {(to_ms - from_ms) / 1000:.0f} s")
            sent = await line(ticking, Sent)
        await asyncio.sleep(GRACE_S)
        await worker.stop()
    return _ReplayTimes(begin_ms, from_ms, to_ms, replayed, sent)


async def _skip_the_past(cfg: config.Config, group: str, topic: str) -> None:
    """Let the live group begin after the backlog, because only the replay is to read the
    backlog.
    """
    parts = [Where(topic, number) for number in range(PARTITIONS)]
    async with open_groups(cfg.kafka) as groups:
        ends = await groups.ends(parts)
        await groups.begin(group, {part: Commit(end) for part, end in ends.items()})


async def _replay(
    config_path: Path | None,
    options: list[str],
    topics: Topics,
    own: Mapping[str, str],
    end_ms: float,
) -> Replayed:
    """Run the replay to its end, or to the end of the ticks."""
    async with penstock(config_path, topics, "replay", *options, "--json", **own) as process:
        try:
            async with asyncio.timeout(max(1.0, end_ms / 1000 - time.time())):
                return await line(process, Replayed)
        except TimeoutError:
            process.ask_to_end()
            return await line(process, Replayed)


def _report(plan: ReplayCostPlan, seen: _ReplayTimes, ticks: list[Tick]) -> ReplayCostReport:
    measured = due_since(seen.begin_ms, ticks, plan.streams * round(plan.seconds * plan.hz))
    beside = [tick for tick in measured if seen.from_ms <= tick.due_ms <= seen.to_ms]
    alone = [tick for tick in measured if not seen.from_ms <= tick.due_ms <= seen.to_ms]
    sides = [_side(alone), _side(beside)]
    return ReplayCostReport(
        streams=plan.streams,
        hz=plan.hz,
        alone=sides[0],
        beside=sides[1],
        ratio=sides[1].p99_ms / sides[0].p99_ms,
        replayed_rows=seen.replayed.rows,
        replay_s=(seen.to_ms - seen.from_ms) / 1000,
        idle_s=seen.replayed.idle_s,
        complete=seen.replayed.complete,
        lag_p99_ms=seen.sent.lag_p99_ms,
    )


def _side(ticks: list[Tick]) -> Side:
    if not ticks or any(tick.answered_ms is None for tick in ticks):
        raise Fatal("not every tick was answered: the streams are too many for this machine")
    took_ms = [float((tick.answered_ms or 0) - tick.due_ms) for tick in ticks]
    return Side(len(ticks), percentile(took_ms, 0.5), percentile(took_ms, 0.99))
