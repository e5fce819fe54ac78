"""What a worker's page shows, and the decision whether the worker is ready.

Rule: the page answers at once even if a service is away. No request waits for Kafka, a store or a
model, because `ServiceAnswers` asks them in the background.
"""

import asyncio
import os
import socket
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any, Final

from prometheus_client.registry import Collector

from penstock import config
from penstock.core.progress.stall import Stall, Stalled
from penstock.core.records.output_records import Labels
from penstock.failures.outage import MODEL, STORE, longest
from penstock.ops.http_server import NO_PARTITION
from penstock.ops.page.page import PageSource, Picture, Probe
from penstock.ops.service_answers import SILENT_S, ServiceAnswers
from penstock.ops.status import Status
from penstock.pipeline.life import Pipeline
from penstock.ports import Model
from penstock.process.asyncio_additions import meanwhile
from penstock.telemetry.delivery_times import Ways

LOOK_EVERY_S: Final = 5.0
# A partition that has not moved for this share of `limits.stall_ms` makes the worker unready. After
# the whole of `limits.stall_ms` the watchdog ends the worker.
STALL_SHARE: Final = 0.5
# If Kafka has not answered for this many session timeouts, the group has given this worker's
# partitions to other workers.
SESSIONS: Final = 2


class WorkerSource(PageSource):
    """`kafka`: the settings of the group that the worker is in."""

    def __init__(self, pipeline: Pipeline, model: Model, kafka: config.Kafka) -> None:
        self._pipeline = pipeline
        self._telemetry = pipeline.wiring.telemetry
        self._services = ServiceAnswers(pipeline, model)
        self._readiness = Readiness(pipeline, self._services, kafka.session_ms / 1000)
        self._status = Status(pipeline, self._telemetry, self._services, kafka.group)

    async def ready(self) -> Probe:
        why_not = self._readiness.why_not()
        return Probe(why_not is None, why_not or f"ready: {self._pipeline!r}\n")

    async def metrics(self) -> Collector:
        budget, figures = self._pipeline.wiring.budget, self._status.flow.look()
        document, gauges = self._status.look(), self._telemetry.status_gauges
        gauges.show(document["flow"], figures.backlog.objects, figures.streams)
        gauges.show_stores(document["stores"])
        gauges.show_costs(self._status.flow.costs.spent_s)
        gauges.show_problems(document["problems"])
        gauges.buffer_bytes.set(budget.spent_bytes)
        gauges.buffer_limit.set(budget.limit_bytes)
        gauges.lines_stopped.set(len(self._pipeline.stopped))
        gauges.backlog.set(figures.backlog.age_s)
        gauges.lag.set(sum(self._services.lags.values()))
        gauges.lag_age.set(self._services.lag_age_s)
        return self._telemetry.registry

    async def status(self) -> dict[str, Any]:
        return self._status.look()

    async def way(self, query: Mapping[str, str]) -> dict[str, Any] | None:
        return told_way(query, self._pipeline.wiring.ways, self._pipeline.wiring.settings.labels)

    async def samples(self) -> Sequence[dict[str, Any]]:
        samples = self._pipeline.wiring.samples
        if samples is None:
            return ()
        in_view = {stream["stream"] for stream in self._status.flow.look().streams.streams}
        return [
            sample._asdict() | {"picture": str(sample.number) if sample.picture else None}
            for sample in samples.look(in_view)
        ]

    async def picture(self, numbers: Sequence[int]) -> Picture | None:
        samples = self._pipeline.wiring.samples
        if samples is None or len(numbers) != 1:
            return None
        picture = samples.picture(numbers[0])
        return None if picture is None else Picture(picture.type, picture.body)

    @asynccontextmanager
    async def watching(self) -> AsyncIterator[None]:
        with self._status.sampling():
            async with self._readiness.watching(), self._services.watching():
                yield


def told_way(query: Mapping[str, str], ways: Ways, labels: Labels) -> dict[str, Any] | None:
    """The stages of the way are in the order of the flow, each with its time."""
    # Workers of another job may answer the same messages with the same ids, but on another output
    # topic.
    if query.get("output", labels.output_topic) != labels.output_topic:
        return None
    model = query.get("model", labels.model)
    of = query.get("id", "").rpartition("/")[0]
    way = ways.look(of, None if model == labels.model else model)
    if way is None:
        return None
    batch = {"rows": way.rows, "objects": way.objects, "request": way.request}
    return {
        "host": socket.gethostname(),
        "pid": os.getpid(),
        "took_ms": _ms(way.latency_s),
        "times_ms": {stage: _ms(spent_s) for stage, spent_s in way.spent._asdict().items()},
        "batch": batch if way.request else None,
    }


def _ms(time_s: float) -> float:
    return round(time_s * 1000, 1)


class Readiness:
    """Says whether the worker is ready. The worker is ready if a model and a store answer, a
    partition is assigned, and the worker's work moves. While a service is known to be away, work
    that waits for that service counts as moving. `watching` must run: it notices work that does not
    move.
    """

    def __init__(self, pipeline: Pipeline, services: ServiceAnswers, session_s: float) -> None:
        self._pipeline = pipeline
        self._services = services
        self._away_s = SESSIONS * session_s
        self._stalled: Stalled | None = None

    def _away(self, kind: str) -> str | None:
        """What to say if all services of this kind are away."""
        outages = longest(self._pipeline.wiring.outages)
        away = [outage for service, outage in outages.items() if service.startswith(kind)]
        if away and all((outage.away_s or 0.0) >= SILENT_S for outage in away):
            does = "has not answered" if away[0].is_silent else "has failed"
            return f"the {kind} {does} for {away[0].away_s:.0f} s: {away[0].why}\n"
        return None

    def why_not(self) -> str | None:
        """Why the worker is not ready, in one line of text. None: the worker is ready."""
        lanes = self._pipeline.wiring.lanes
        # The model is checked before the partitions, so that even a member without a partition
        # tells whether its model answers.
        if (why := self._away(STORE)) is not None:
            return why
        answers = self._services.answers.values()
        if not any(answers):
            return (
                f"the model {'does not answer' if False in answers else 'has not answered yet'}\n"
            )
        if (why := self._away(MODEL)) is not None:
            return why
        if not lanes:
            return NO_PARTITION
        if all(lane.stopped for lane in lanes.values()):
            return "".join(f"line stopped: {stop}\n" for stop in self._pipeline.stopped)
        away_s = self._services.kafka_away_s
        if away_s is not None and away_s > self._away_s:
            return f"Kafka has not answered for {away_s:.0f} s: {self._services.why_kafka}\n"
        if self._stalled is not None and self._stalled.where in lanes:
            lane, snapshot = lanes[self._stalled.where], self._stalled.snapshot
            return (
                f"{lane.where} has not moved for {self._stalled.still_s:.0f} s: "
                f"{snapshot.stage} holds offset {snapshot.offset}\n"
            )
        return None

    def watching(self) -> AbstractAsyncContextManager[None]:
        """While the body runs, look for work that does not move."""
        return meanwhile(self._look_forever())

    async def _look_forever(self) -> None:
        wiring = self._pipeline.wiring
        clock, stall_s = wiring.adapters.clock, wiring.settings.times.stall_s
        if stall_s is None:
            return
        stall = Stall(stall_s * STALL_SHARE, LOOK_EVERY_S, clock.now())
        while True:
            await asyncio.sleep(LOOK_EVERY_S)
            snapshots = {number: lane.snapshot for number, lane in wiring.lanes.items()}
            self._stalled = stall.look(clock.now(), snapshots, wiring.telemetry.retries)
