"""What a worker is doing, as JSON: `/api/status`.

Rule: it changes nothing and asks no service; a field is null until the first answer. A cause is
logged when it begins, when other streams begin to wait with its stream, and when it ends, unless an
event of its own tells it better; one that comes and goes has one line a minute.
"""

import asyncio
import logging
import os
import socket
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from importlib.metadata import version
from typing import Any, Final, NamedTuple

from penstock.adapters.kafka.identity.identity import provider_away
from penstock.core.diagnosis.diagnose import symptoms, with_diagnosis
from penstock.core.diagnosis.problem import OF_FLOW, sentences
from penstock.core.diagnosis.steady import SteadyProblems
from penstock.core.progress.stall import slowest
from penstock.failures.outage import KAFKA, TOKENS, longest
from penstock.lane.lane import Lane
from penstock.ops.flow import SAMPLE_S, Flow
from penstock.ops.service_answers import ServiceAnswers
from penstock.packages import DISTRIBUTION
from penstock.pipeline.life import Pipeline
from penstock.process.cpu import Cpu, cpu_now
from penstock.telemetry.worker import Telemetry

log = logging.getLogger(__name__)

WRITTEN: Final = {*OF_FLOW, "away", "clock", "silent"}
# The least time between two lines about the same cause.
QUIET_S: Final = 60.0


class Cause(NamedTuple):
    kind: str
    stream: str | None
    service: str | None


class _Lasts(NamedTuple):
    since_s: float
    what: str
    is_written: bool
    has_mates: bool


class _Written(NamedTuple):
    at_s: float
    has_mates: bool


class CauseLog:
    def __init__(self) -> None:
        self._lasting: dict[Cause, _Lasts] = {}
        self._lines: dict[Cause, _Written] = {}
        # The services of whose outages a line was written; problems outlast outages by a moment.
        self._logged: set[str] = set()

    def note(self, document: Mapping[str, Any], now_s: float) -> None:
        """`document`: the status with its problems. Call this every few seconds."""
        problems: Sequence[Mapping[str, Any]] = document["problems"]
        told = {problem["service"] for problem in problems}
        self._logged = {outage["service"] for outage in document["outages"]} | self._logged & told
        by_cause = {
            Cause(problem["kind"], problem["stream"], problem["service"]): problem
            for problem in problems
            if problem["kind"] in WRITTEN and problem["service"] not in self._logged
        }
        self._lines = {
            cause: line for cause, line in self._lines.items() if now_s - line.at_s < QUIET_S
        }
        for cause in self._lasting.keys() - by_cause.keys():
            before = self._lasting.pop(cause)
            if before.is_written:
                log.info("over after %.0f s: %s", now_s - before.since_s, before.what)
        for cause, problem in by_cause.items():
            lasts, has_mates = self._lasting.get(cause), problem["mates"] > 0
            if lasts is not None and lasts.has_mates >= has_mates:
                continue
            line = self._lines.get(cause)
            is_written = line is None or has_mates > line.has_mates
            self._lasting[cause] = _Lasts(
                now_s if lasts is None else lasts.since_s,
                problem["what"],
                is_written or (lasts is not None and lasts.is_written),
                has_mates,
            )
            if is_written:
                self._lines[cause] = _Written(now_s, has_mates)
                log.warning("%s", sentences(problem["what"], problem["holds"], problem["do"]))


# This many streams are shown with a shadow: those whose answers agree least with the shadow's
# answers.
WORST = 5
# The diagnosis is written to the log this often, if it changes.
LOG_EVERY_S = 2.0


class Status:
    """Makes the status of one worker. `sampling` must run all the time, even while no page is open,
    because the rates are computed from its samples.
    """

    def __init__(
        self,
        pipeline: Pipeline,
        telemetry: Telemetry,
        services: ServiceAnswers,
        group: str | None = None,
        cpu: Callable[[], Cpu] = cpu_now,
    ) -> None:
        self._pipeline = pipeline
        self._telemetry = telemetry
        self._services = services
        self._group = group
        self._host, self._version = socket.gethostname(), version(DISTRIBUTION)
        self._began_s = self._now_s()
        self.flow = Flow(pipeline, telemetry, services, cpu)
        self._problems = SteadyProblems()
        self._log = CauseLog()
        self._log_s = self._began_s

    @contextmanager
    def sampling(self) -> Iterator[None]:
        """Note the counters every `SAMPLE_S` while the body runs."""
        self._timer = asyncio.get_running_loop().call_later(SAMPLE_S, self._sample)
        try:
            yield
        finally:
            self._timer.cancel()

    def _sample(self) -> None:
        self._timer = asyncio.get_running_loop().call_later(SAMPLE_S, self._sample)
        self.flow.sample()
        if self._now_s() >= self._log_s:
            self._log_s = self._now_s() + LOG_EVERY_S
            self._log.note(self.look(), self._now_s())

    def look(self) -> dict[str, Any]:
        """The figures with the diagnosis: what is wrong, what limits the worker, and the state of
        each stream.
        """
        document = self._figures()
        problems = self._problems.tell(symptoms(document), self._now_s())
        return with_diagnosis(document, problems)

    def _figures(self) -> dict[str, Any]:
        pipeline = self._pipeline
        lags, figures, bound_s = self._services.lags, self.flow.look(), self._telemetry.bound_s
        return {
            "v": 1,
            "now_ms": pipeline.wiring.adapters.clock.wall_ms(),
            "uptime_s": round(self._now_s() - self._began_s, 1),
            "settled_s": round(figures.settled_s, 1),
            "version": self._version,
            "host": self._host,
            "pid": os.getpid(),
            "group": self._group,
            "bound_ms": None if bound_s is None else bound_s * 1000,
            "input_topic": pipeline.wiring.settings.labels.input_topic,
            "output_topic": pipeline.wiring.settings.labels.output_topic,
            "assignments": [
                _assignment(lane, lags.get(where), figures.committed_per_s.get(where))
                for where, lane in sorted(pipeline.wiring.lanes.items())
            ],
            "clock_ahead_s": self._services.clock_ahead_s,
            "backlog_s": round(figures.backlog.age_s, 1),
            "lag_age_s": round(self._services.lag_age_s, 1),
            "window": pipeline.waiting._asdict(),
            "budget": {
                "spent_bytes": pipeline.wiring.budget.spent_bytes,
                "limit_bytes": pipeline.wiring.budget.limit_bytes,
                "peak_bytes": pipeline.wiring.budget.peak_bytes,
            },
            "model": {
                "name": pipeline.wiring.settings.labels.model,
                "version": pipeline.wiring.settings.labels.model_version,
                "answers": self._services.answers.get(pipeline.wiring.main.name),
                "asked_s": self._services.asked_s(pipeline.wiring.main.name),
                "answers_for_s": self._services.answers_for_s(pipeline.wiring.main.name),
                "breaker_open": pipeline.wiring.main.calls.health.is_open,
                "calls_allowed": pipeline.wiring.main.calls.health.allowed,
            },
            "costs": self.flow.costs_of_all(),
            "calls": self.flow.calls(),
            "costly": self.flow.costs.costly,
            "stores": self.flow.stores(figures.flow),
            **self._results(),
            **self._models(),
            **self._region(),
            **self._shadow(),
            **self._rekeying(),
            **self._routes(),
            "outages": self._outages(),
            "hedged_reads": self._telemetry.replicas.hedged.totals,
            "counters": self._telemetry.totals,
            "rejected": self._telemetry.rejections,
            "rates": self.flow.rates(),
            "flow": figures.flow,
            "history": self.flow.history.of_worker,
            "streams": figures.streams.streams,
            "streams_known": figures.streams.known,
            "silence": figures.streams.silence,
            "streams_others": figures.streams.others,
            "letters": [letter._asdict() for letter in reversed(pipeline.wiring.reject.recent)],
        }

    def _results(self) -> dict[str, Any]:
        """The writes of result objects, if there are any."""
        writes = self._pipeline.wiring.writes
        if writes is None:
            return {}
        limiter, answer_s = writes.limiter, writes.limiter.answer_s
        return {
            "results": {
                "in_flight": limiter.taken,
                "limit": limiter.limit,
                "answer_ms": None if answer_s is None else round(answer_s * 1000, 1),
            }
        }

    def _models(self) -> dict[str, Any]:
        """The state of each model, if there are several."""
        wiring = self._pipeline.wiring
        if not wiring.settings.models:
            return {}
        labels = wiring.settings.labels
        calls = self._of_each("penstock_models_requests_total", "outcome")
        rows = self._of_each("penstock_models_rows_total")
        return {
            "models": [
                {
                    "name": track.name,
                    "version": labels.versions.get(model) if model else labels.model_version,
                    "answers": self._services.answers.get(track.name),
                    "breaker_open": track.calls.health.is_open,
                    "calls_allowed": track.calls.health.allowed,
                    "calls": calls[track.name],
                    "rows": rows[track.name][""],
                    "window": track.microbatch.waiting._asdict(),
                }
                for model, track in wiring.tracks.items()
            ]
        }

    def _of_each(self, metric: str, label: str = "") -> Mapping[str, Mapping[str, float]]:
        """For each model: the values of a metric, by the value of one further label."""
        rates: dict[str, dict[str, float]] = defaultdict(dict)
        for family in self._telemetry.registry.collect():
            for sample in family.samples:
                if sample.name == metric:
                    rates[sample.labels["model"]][sample.labels.get(label, "")] = sample.value
        return rates

    def _region(self) -> dict[str, Any]:
        """The bytes that the worker read from each region, and which regions the worker helps.
        Empty if the worker is in no region.
        """
        region, help_regions = self._telemetry.region, self._pipeline.wiring.help_regions
        if region is None:
            return {}
        standings = help_regions.standings if help_regions is not None else {}
        helped = help_regions.helped if help_regions is not None else []
        return {
            "region": {
                "name": region.name,
                "local_share": round(region.local_share(), 4),
                "bytes": region.bytes_by_region(),
                "failovers": self._telemetry.replicas.failovers(),
                "others": {
                    other: {
                        "lag": standing.lag if standing is not None else None,
                        "workers": standing.workers if standing is not None else None,
                        "helped": other in helped,
                    }
                    for other, standing in standings.items()
                },
            }
        }

    def _shadow(self) -> dict[str, Any]:
        """How far the shadow has agreed since the start of this worker, if there is a shadow."""
        shadow = self._pipeline.wiring.shadow
        if shadow is None:
            return {}
        total = shadow.tally.total
        return {
            "shadow": {
                "model": shadow.terms.topic.shadow,
                "percent": shadow.terms.percent,
                "is_over": shadow.is_over,
                "away_s": None if shadow.away_s is None else round(shadow.away_s, 1),
                "waiting_rows": shadow.waiting_rows,
                "rows": total.rows,
                "agreed": total.agreed,
                "interval": [round(bound, 6) for bound in total.interval()],
                "worst": [
                    {"stream": name, "rows": share.rows, "agreed": share.agreed}
                    for name, share in shadow.tally.worst(WORST)
                ],
            }
        }

    def _rekeying(self) -> dict[str, Any]:
        """The state of the rekeying, if this worker also rekeys messages."""
        rekeying = self._telemetry.rekeying
        return {} if rekeying is None else {"rekey": rekeying.status}

    def _routes(self) -> dict[str, Any]:
        """The routes that have matched no object, if there are any."""
        routes = self._pipeline.wiring.intake.routes
        never = [str(route) for route in routes.never_matched]
        return {"routes": {"asked": routes.asked, "never_matched": never}} if never else {}

    def _outages(self) -> list[dict[str, Any]]:
        """The services that do not answer. Kafka is away if commits fail, or if the last question
        where the input ends failed. Commits alone are not enough, because a worker without work
        commits nothing.
        """
        outages = longest(self._pipeline.wiring.outages)
        away = {service: (outage.away_s, outage.why) for service, outage in outages.items()}
        mute = {service for service, outage in outages.items() if outage.is_silent} | {
            KAFKA,
            TOKENS,
        }
        away[KAFKA] = max(
            away.get(KAFKA, (None, None)),
            (self._services.kafka_away_s, self._services.why_kafka),
            key=lambda outage: outage[0] or 0.0,
        )
        if (outage := provider_away()) is not None:
            away[TOKENS] = outage
        return [
            {
                "service": service,
                "away_s": round(away_s, 1),
                "why": why,
                "fails": service not in mute,
            }
            for service, (away_s, why) in away.items()
            if away_s is not None
        ]

    @staticmethod
    def _now_s() -> float:
        return asyncio.get_running_loop().time()


def _held_back(lane: Lane) -> dict[str, Any] | None:
    """The object that the lane waits for while objects behind it are answered already."""
    held_back = lane.held_back()
    if held_back is None:
        return None
    ticket, waiting = held_back
    stage = slowest(ticket, asyncio.get_running_loop().time())
    reference = ticket.reference
    name = ticket.name if reference is None else f"{reference.bucket}/{reference.key}"
    return {"by": name, "stream": ticket.stream, "stage": stage, "objects": waiting}


def _assignment(lane: Lane, lag: int | None, committed_per_s: float | None) -> dict[str, Any]:
    return {
        "topic": lane.where.topic,
        "partition": lane.where.partition,
        "generation": lane.generation,
        "next_offset": lane.ledger.next_offset,
        "committed": lane.account.committed.next_offset,
        "committed_per_s": committed_per_s,
        "lag": lag,
        "owed": lane.ledger.owed,
        "held_back": _held_back(lane),
        "is_stopped": lane.stopped is not None,
        "stopped": [stop._asdict() for stop in lane.stops],
    }
