"""How a worker's work flows: rates, how busy each part is, and what limits it.

Rule: counters are noted once a second; all else is computed when a page asks, at most once a
second. The price of an hour is divided by the shares of the model's time, so the streams' money
adds up to what is paid, whether the model was busy or not.
"""

import os
from collections import Counter, deque
from collections.abc import Callable, Iterable, Mapping
from itertools import pairwise
from typing import Any, Final, NamedTuple

from penstock.core.diagnosis.call_times import call_times
from penstock.core.diagnosis.limit import FULL
from penstock.core.diagnosis.problem import SETTLED_S
from penstock.core.health.limiter import Holds
from penstock.core.rows.origin import Where
from penstock.ops.service_answers import ServiceAnswers
from penstock.pipeline.life import Pipeline
from penstock.pipeline.owed_answers import Backlog
from penstock.pipeline.settings import ModelTerms
from penstock.pipeline.wiring import Track
from penstock.process.cpu import Cpu, cores, cpu_now, quota
from penstock.telemetry.recent import WINDOW_S, RecentHistory, quantiles_ms
from penstock.telemetry.streams import SHOWN, Told
from penstock.telemetry.worker import Telemetry


class ModelCosts:
    def __init__(
        self, tracks: Mapping[str | None, Track], terms: Mapping[str | None, ModelTerms]
    ) -> None:
        self._models = [(track.costs, terms[name].cost_per_hour) for name, track in tracks.items()]

    def fit(self, now_s: float) -> None:
        for costs, _ in self._models:
            costs.fit(now_s)

    @property
    def spent_s(self) -> Mapping[str, float]:
        """For each stream: the models' time that it has taken so far."""
        spent_s = Counter[str]()
        for costs, _ in self._models:
            spent_s.update(costs.spent_s)
        return spent_s

    @property
    def costly(self) -> dict[str, Any] | None:
        """The stream that costs a model most beyond what the others do."""
        streams = [
            row._asdict() | {"is_apart": row.stream in costs.prices.apart}
            for costs, _ in self._models
            if (row := costs.costly) is not None
        ]
        return max(streams, key=lambda each: each["times"], default=None)

    def whole(self, tokens_per_hour: float) -> dict[str, Any]:
        """Of all streams together, and the fixed cost of a call to the default model.
        `tokens_per_hour`: the price of the tokens of an hour.
        """
        streams = {stream for costs, _ in self._models for stream in costs.lately}
        rows_per_s = sum(self._rows_per_s(stream) for stream in streams)
        prices = [price for _, price in self._models if price is not None]
        if tokens_per_hour:
            prices.append(tokens_per_hour)
        base_s = self._models[0][0].base_s
        return {
            "call_ms": None if base_s is None else round(base_s * 1000, 3),
            "busy_s": round(self._busy, 3),
            **_money(sum(prices) if prices else None, rows_per_s),
        }

    def of(self, stream: str) -> dict[str, Any]:
        lately = [(costs, price, costs.lately.get(stream)) for costs, price in self._models]
        known = [(costs, price, cost) for costs, price, cost in lately if cost is not None]
        prices = [cost.share * price for _, price, cost in known if price is not None]
        row_s = sum(cost.row_s for _, _, cost in known)
        return {
            "row_ms": round(1000 * row_s, 3) if known else None,
            "model_s": round(sum(costs.spent_by(stream) for costs, _ in self._models), 3),
            "model_share": round(self._share(stream), 4),
            **_money(sum(prices) if prices else None, self._rows_per_s(stream)),
        }

    def of_others(self, shown: Iterable[str]) -> dict[str, Any]:
        """Of all streams but those that are shown."""
        rest = max(0.0, 1.0 - sum(map(self._share, shown))) if self._busy else 0.0
        return {"row_ms": None, "model_s": None, "model_share": round(rest, 4), **_money(None, 0.0)}

    @property
    def _busy(self) -> float:
        return sum(costs.busy for costs, _ in self._models)

    def _share(self, stream: str) -> float:
        parts = ((costs.busy, costs.lately.get(stream)) for costs, _ in self._models)
        spent = sum(busy * cost.share for busy, cost in parts if cost is not None)
        return spent / self._busy if spent else 0.0

    def _rows_per_s(self, stream: str) -> float:
        lately = (costs.lately.get(stream) for costs, _ in self._models)
        return sum(sample.rows_per_s for sample in lately if sample is not None)


def _money(per_hour: float | None, rows_per_s: float) -> dict[str, float | None]:
    if per_hour is None:
        return {"cost_per_hour": None, "cost_per_million": None}
    rows = rows_per_s * 3600
    return {
        "cost_per_hour": round(per_hour, 4),
        "cost_per_million": round(per_hour / rows * 1e6, 4) if rows else None,
    }


SAMPLE_S: Final = 1.0
# Rates are means over this time, which is long enough for steady rates and short enough for current
# ones.
OVER_S: Final = 10.0
# The busy share of each part is a mean over this shorter time, so that a limit is shown within ten
# seconds.
BUSY_S: Final = 5.0
MINUTE_S: Final = 60.0
# A backlog of which no row was answered for this long is not worked off, whatever the mean says.
STILL_S: Final = 2.0
# A backlog that shrinks by less than this share of what is answered may as well stay.
LEAST_SHRINK: Final = 0.05
# The history keeps the ages of this many streams. These are more than the status shows, because a
# stream that is not shown at the moment may be shown again.
AGES_KEPT: Final = 4 * SHOWN


class FlowSample(NamedTuple):
    """The values of the counters at one moment, and the share of each resource that was in use at
    that moment.
    """

    at_s: float
    totals: Mapping[str, float]
    spent_s: Mapping[str, float]
    batches: Mapping[str, float]
    cpu: Cpu
    committed: Mapping[Where, int]
    calls_s: Mapping[str | None, float]
    reads_s: Mapping[str, float]
    buffer: float
    decoders: float
    publishing: float


class Figures(NamedTuple):
    """The figures that the pages show. `flow`: the part `flow` of the status. `settled_s`: for how
    long this worker has had partitions. `committed_per_s`: for each partition.
    """

    flow: dict[str, Any]
    streams: Told
    backlog: Backlog
    settled_s: float
    committed_per_s: Mapping[Where, float]


class Flow:
    """Computes the figures of the flow from samples. Call `sample` once a second, even while no
    page is open.
    """

    def __init__(
        self,
        pipeline: Pipeline,
        telemetry: Telemetry,
        services: ServiceAnswers,
        cpu: Callable[[], Cpu] = cpu_now,
    ) -> None:
        self._pipeline = pipeline
        self._telemetry = telemetry
        self._services = services
        self._cpu = cpu
        wiring = pipeline.wiring
        self.costs = ModelCosts(wiring.tracks, wiring.settings.terms)
        self._now_s = pipeline.wiring.adapters.clock.now
        self._samples = deque([self._sample()])
        self._next_s = self._now_s() + WINDOW_S
        self.history = RecentHistory(AGES_KEPT)
        # When partitions came last: what waited in them is worked off then, as at a start.
        self._joined_s: float | None = None
        self._lanes: set[Where] = set()
        self._last: tuple[float, Figures] | None = None

    def sample(self) -> None:
        now_s = self._now_s()
        self._telemetry.streams.count(now_s)
        lanes = self._pipeline.wiring.lanes.keys()
        if lanes - self._lanes:
            self._joined_s = now_s
        self._lanes = set(lanes)
        self._samples.append(self._sample())
        while len(self._samples) > 2 and self._samples[1].at_s <= now_s - MINUTE_S:
            self._samples.popleft()
        if now_s >= self._next_s:
            self._next_s += WINDOW_S
            figures = self.look()
            self.history.note(self._of_window(figures.flow), figures.streams.streams)

    def look(self) -> Figures:
        """The figures, at most a second old."""
        now_s = self._now_s()
        if self._last is None or now_s - self._last[0] >= SAMPLE_S:
            self._last = now_s, self._look(now_s)
        return self._last[1]

    def stores(self, flow: Mapping[str, Any]) -> list[dict[str, Any]]:
        """The reads of each store: how many are in flight, how many may be, and why not more."""
        return [
            {
                "name": store,
                "in_flight": reads.limiter.taken,
                "limit": reads.limiter.limit,
                "held_by": _held_by(reads.limiter.holds, flow["busy"], "store"),
                "answer_ms": _ms(reads.limiter.answer_s),
                "usual_ms": _ms(reads.limiter.usual_s),
                "is_slow": reads.limiter.is_slower_than_usual,
            }
            for store, reads in self._pipeline.wiring.reads.items()
        ]

    def rates(self) -> dict[str, float]:
        now, before = self._sample(), self._before(OVER_S)
        over_s = max(now.at_s - before.at_s, 1e-3)
        rates = {
            f"{name}_per_s": round((total - before.totals[name]) / over_s, 3)
            for name, total in now.totals.items()
            if name != "tokens_cost"
        }
        return rates | {"over_s": round(over_s, 1)}

    def calls(self) -> dict[str, Any]:
        """The default model's calls of the last minute, as `penstock advise` wants to know them."""
        main = self._pipeline.wiring.main
        times, pace = call_times(main.costs.calls), main.pace
        return {
            "times": None if times is None else times.rounded(),
            "elsewhere_ms": None if pace is None else round(pace.elsewhere_s * 1000, 1),
            "held_by": _held_by(main.calls.limiter.holds, self.look().flow["busy"], "model"),
        }

    def costs_of_all(self) -> dict[str, Any]:
        now, before = self._sample(), self._before(OVER_S)
        spent = now.totals["tokens_cost"] - before.totals["tokens_cost"]
        return self.costs.whole(spent / max(now.at_s - before.at_s, 1e-3) * 3600)

    def _of_window(self, flow: Mapping[str, Any]) -> dict[str, float | None]:
        """The figures of the window that has just ended, for the history."""
        p99s_ms = self._telemetry.streams.whole.p99s_ms(self._now_s())
        return {
            # The last value belongs to the window that has just begun.
            "p99_ms": p99s_ms[-2] if len(p99s_ms) > 1 else flow["p99_ms"],
            "rows_per_s": self.rates()["rows_per_s"],
            "backlog_s": flow["backlog_s"],
            "utilisation": flow["utilisation"],
        }

    def _before(self, over_s: float, at_least_s: float = 0.0) -> FlowSample:
        """The newest sample that is at least `over_s` old, and not from before `at_least_s`; if no
        sample is that old, the oldest one.
        """
        since_s = max(self._now_s() - over_s, at_least_s)
        return next(
            (sample for sample in reversed(self._samples) if sample.at_s <= since_s),
            self._samples[0],
        )

    def _sample(self) -> FlowSample:
        wiring, telemetry, now_s = self._pipeline.wiring, self._telemetry, self._now_s()
        lanes = wiring.lanes.values()
        return FlowSample(
            now_s,
            telemetry.totals,
            dict(telemetry.spent_s),
            dict(telemetry.batches),
            self._cpu(),
            {number: lane.account.committed.next_offset for number, lane in wiring.lanes.items()},
            {model: track.microbatch.used.share_s(now_s) for model, track in wiring.tracks.items()},
            {store: reads.used.share_s(now_s) for store, reads in wiring.reads.items()},
            min(1.0, wiring.budget.spent_bytes / wiring.budget.limit_bytes),
            wiring.decoders.used,
            sum(lane.is_publishing for lane in lanes) / max(1, len(lanes)),
        )

    def _look(self, now_s: float) -> Figures:
        backlog = self._pipeline.backlog
        stopped = {stop.stream for stop in self._pipeline.stopped}
        read = self._services.read_partitions
        streams = self._telemetry.streams.told(backlog.streams, stopped, now_s, read)
        settled_s = 0.0 if self._joined_s is None else now_s - self._joined_s
        is_new = settled_s < SETTLED_S + 2 * WINDOW_S
        self.costs.fit(now_s)
        if streams.others is not None:
            streams.others.update(self.costs.of_others(row["stream"] for row in streams.streams))
        for stream in streams.streams:
            stream.update(self.costs.of(stream["stream"]))
            stream["ages_s"] = self.history.ages_of(stream["stream"])
            # The windows of the start still count in it.
            stream["now_p99_ms"] = None if is_new else stream["now_p99_ms"]
        now, before = self._sample(), self._before(OVER_S)
        over_s = max(now.at_s - before.at_s, 1e-3)
        grown = _grown(now.committed, before.committed)
        per_s = {where: round(count / over_s, 2) for where, count in grown.items()}
        flow = self._flow(now, before, over_s, backlog)
        return Figures(flow, streams, backlog, settled_s, per_s)

    def _flow(
        self, now: FlowSample, before: FlowSample, over_s: float, backlog: Backlog
    ) -> dict[str, Any]:
        totals = {name: total - before.totals[name] for name, total in now.totals.items()}
        spent_s = {part: s - before.spent_s.get(part, 0.0) for part, s in now.spent_s.items()}
        delivered, delivered_per_s = totals["delivered"], totals["delivered"] / over_s
        arrived_per_s, waiting = self._arrived_per_s(totals["records"] / over_s, now, backlog)
        whole = self._telemetry.streams.whole.minute(now.at_s)
        p50_ms, p99_ms = quantiles_ms(whole, 0.5, 0.99)
        busy = self._busy(now)
        return {
            "arrived_per_s": round(arrived_per_s, 2),
            "delivered_per_s": round(delivered_per_s, 2),
            "drain_s": self._drain_s(now, waiting, arrived_per_s),
            "backlog_s": round(backlog.age_s, 1),
            "moving_s": round(backlog.moving_age_s, 1),
            "lag_s": self._lag_s(now, waiting, delivered_per_s),
            "backlog_bytes": backlog.nbytes,
            "utilisation": max(busy["loop"], busy["calls"], busy["buffer"]),
            "busy": busy,
            "cpu": self._cpu_share(now),
            "doubted_s": round(max(self._services.doubted_s, self._unpublished_s(now)), 1),
            **self._over_bound(now),
            "p50_ms": p50_ms,
            "p99_ms": p99_ms,
            "way_ms": {
                part: round(max(0.0, s) / delivered * 1000, 2) if delivered else None
                for part, s in spent_s.items()
            },
            "batch": self._batch(now, before, totals, over_s),
        }

    def _arrived_per_s(
        self, records_per_s: float, now: FlowSample, backlog: Backlog
    ) -> tuple[float, float]:
        """Returns two numbers: how many objects arrive a second, and how many objects wait in Kafka
        or in the worker. Kafka counts only records, so each unread record is taken to hold the mean
        number of objects of the records that were read.
        """
        read = now.totals["records"]
        per_record = (now.totals["delivered"] + backlog.objects) / read if read else 1.0
        grown_per_s = self._services.growth.per_s
        arriving = records_per_s if grown_per_s is None else grown_per_s
        return arriving * per_record, sum(self._services.lags.values()) * per_record

    def _drain_s(self, now: FlowSample, waiting: float, arrived_per_s: float) -> float | None:
        if now.totals["rows"] == self._before(STILL_S).totals["rows"]:
            return None
        delivered_per_s = self._delivered_per_s(now, BUSY_S)
        shrinks_per_s = delivered_per_s - arrived_per_s
        if shrinks_per_s <= LEAST_SHRINK * delivered_per_s:
            return None
        # What is answered within a second is no backlog.
        return round(waiting / shrinks_per_s, 1) if waiting >= delivered_per_s else None

    def _lag_s(self, now: FlowSample, waiting: float, delivered_per_s: float) -> float:
        """How long what waits takes. After a silence the mean is too small."""
        per_s = max(delivered_per_s, self._delivered_per_s(now, STILL_S))
        return round(waiting / per_s, 1) if per_s else 0.0

    def _delivered_per_s(self, now: FlowSample, over_s: float) -> float:
        before = self._before(over_s)
        delivered = now.totals["delivered"] - before.totals["delivered"]
        return delivered / max(now.at_s - before.at_s, 1e-3)

    def _unpublished_s(self, now: FlowSample) -> float:
        """For how long no row was acknowledged although some wait for it; 0 if that may be."""
        rows, since_s = now.totals["rows"], self._samples[0].at_s
        if not now.publishing:
            return 0.0
        for sample in reversed(self._samples):
            if sample.totals["rows"] != rows:
                since_s = sample.at_s
                break
        still_s = now.at_s - since_s
        return still_s if still_s >= STILL_S else 0.0

    def _over_bound(self, now: FlowSample) -> dict[str, Any]:
        """How many of the last objects took longer than the bound, and for how long such came; not
        those of the start.
        """
        if self._telemetry.bound_s is None or self._joined_s is None:
            return {"over_bound": None, "over_bound_objects": 0, "over_bound_for_s": 0.0}
        before = self._before(BUSY_S, self._joined_s + SETTLED_S)
        delivered = now.totals["delivered"] - before.totals["delivered"]
        over = now.totals["over_bound"] - before.totals["over_bound"]
        share = round(over / delivered, 4) if delivered else None
        samples = [*(sample for sample in self._samples if sample.at_s >= before.at_s), now]
        at_s = [
            later.at_s
            for sample, later in pairwise(samples)
            if later.totals["over_bound"] > sample.totals["over_bound"]
        ]
        return {
            "over_bound": share,
            "over_bound_objects": int(over),
            "over_bound_for_s": round(at_s[-1] - at_s[0], 1) if at_s else 0.0,
        }

    def _busy(self, now: FlowSample) -> dict[str, float]:
        before = self._before(BUSY_S)
        over_s = max(now.at_s - before.at_s, 1e-3)
        seen = [sample for sample in self._samples if sample.at_s > before.at_s] + [now]

        def mean(name: str) -> float:
            shares: list[float] = [getattr(sample, name) for sample in seen]
            return sum(shares) / len(shares)

        worked_s = now.cpu.worked_s - before.cpu.worked_s
        waited_s = now.cpu.waited_s - before.cpu.waited_s
        calls = max(now.calls_s[model] - before.calls_s[model] for model in now.calls_s)
        reads = max(now.reads_s[store] - before.reads_s[store] for store in now.reads_s)
        shares = {
            "loop": (worked_s + waited_s) / over_s,
            "calls": calls / over_s,
            "buffer": mean("buffer"),
            "fetchers": reads / over_s,
            "decoders": mean("decoders"),
            "publishing": mean("publishing"),
        }
        return {part: round(min(1.0, max(0.0, share)), 3) for part, share in shares.items()}

    def _cpu_share(self, now: FlowSample) -> dict[str, Any]:
        """How much of a core the event loop got, and what kept it from more."""
        before = self._before(BUSY_S)
        over_s = max(now.at_s - before.at_s, 1e-3)
        earlier, later = before.cpu, now.cpu
        periods, ticks = later.periods - earlier.periods, later.ticks - earlier.ticks
        throttled = (later.throttled - earlier.throttled) / periods if periods else 0.0
        return {
            "ran": round(min(1.0, (later.worked_s - earlier.worked_s) / over_s), 3),
            "throttled": round(throttled, 2),
            "quota": quota() if throttled else None,
            "stolen": round((later.stolen - earlier.stolen) / ticks, 2) if ticks else 0.0,
            "load": round(os.getloadavg()[0], 1),
            "cores": cores(),
        }

    def _batch(
        self, now: FlowSample, before: FlowSample, totals: Mapping[str, float], over_s: float
    ) -> dict[str, Any]:
        batches = totals["batches"]
        rows_mean = totals["batch_rows"] / batches if batches else None
        closed = {why: n - before.batches.get(why, 0.0) for why, n in now.batches.items()}
        return {
            "rows_mean": None if rows_mean is None else round(rows_mean, 1),
            "fill": None
            if rows_mean is None
            else round(min(1.0, rows_mean / self._pipeline.waiting.max_rows), 3),
            "closed_by": {why: round(n / over_s, 2) for why, n in closed.items()},
        }


def _ms(seconds: float | None) -> float | None:
    return None if seconds is None else round(seconds * 1000, 1)


def _held_by(holds: Holds | None, busy: Mapping[str, float], service: str) -> str:
    """What holds the number of requests to a service. A full machine makes every answer late, so
    then the service is not to blame. While the buffer is full, nothing more is asked for.
    """
    if holds == "arrivals":
        return "budget" if busy["buffer"] >= FULL else "arrivals"
    if holds == "service":
        return "machine" if busy["loop"] >= FULL else service
    return holds or "growing"


def _grown(now: Mapping[Where, int], before: Mapping[Where, int]) -> dict[Where, int]:
    return {where: end - before[where] for where, end in now.items() if where in before}
