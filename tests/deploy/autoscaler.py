"""What KEDA and the HorizontalPodAutoscaler do with the chart's ScaledObject, over a day.

Rule: the arithmetic of autoscaling/v2 with an AverageValue metric: a tolerance of a tenth, windows,
policies, bounds. `wanted` is the Prometheus trigger's query in Python; a test holds the two against
each other. Time is counted in steps; nothing waits.
"""

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import pairwise, takewhile
from math import ceil
from typing import Any, NamedTuple

SYNC_S = 15
TOLERANCE = 0.1
# No window of the chart is longer.
LONGEST_S = 900
DAY_S = 86_400
# From the decision to a worker that has partitions.
START_S = 45
# All partitions stand still when members come or go.
REBALANCE_S = 2


class Seen(NamedTuple):
    """What the workers export, as the query reads it."""

    workers: int
    elsewhere: (
        float  # share of two minutes in which the model, the store, Kafka or skew is the limit
    )
    backlog_s: float
    is_draining: bool
    load: float  # of the busiest part of a worker, over five minutes


def wanted(seen: Seen, backlog_s: float, target: float) -> float:
    if seen.elsewhere > 0.5:
        return seen.workers
    if seen.backlog_s > backlog_s:
        return seen.workers * (1.0 if seen.is_draining else 1.5)
    return seen.workers * seen.load / target


@dataclass
class Autoscaler:
    """`decide` every `SYNC_S`; `scaled`: a ScaledObject's `spec`."""

    scaled: dict[str, Any]
    replicas: int = 1
    changes: list[tuple[int, int]] = field(default_factory=list)
    _asked: deque[tuple[int, int]] = field(default_factory=deque)

    def decide(self, now_s: int, metric: float) -> int:
        is_near = abs(metric / self.replicas - 1.0) <= TOLERANCE
        asked = self.replicas if is_near else ceil(metric - 1e-9)
        # The Kafka trigger's threshold is beyond any lag: it asks for one.
        self._asked.append((now_s, max(1, asked)))
        while self._asked[0][0] < now_s - LONGEST_S:
            self._asked.popleft()
        up = min(self._within(now_s, self._behavior("scaleUp")["stabilizationWindowSeconds"]))
        down = max(self._within(now_s, self._behavior("scaleDown")["stabilizationWindowSeconds"]))
        target = up if up > self.replicas else min(down, self.replicas)
        target = min(max(target, self._least(now_s)), self._most(now_s))
        bounds = self.scaled["minReplicaCount"], self.scaled["maxReplicaCount"]
        target = min(max(target, 1, bounds[0]), bounds[1])
        if target != self.replicas:
            self.changes.append((now_s, target - self.replicas))
            self.replicas = target
        return self.replicas

    def _behavior(self, which: str) -> Any:
        return self.scaled["advanced"]["horizontalPodAutoscalerConfig"]["behavior"][which]

    def _within(self, now_s: int, window_s: int) -> list[int]:
        return [asked for at_s, asked in self._asked if at_s >= now_s - window_s]

    def _changed(self, now_s: int, over_s: int, sign: int) -> int:
        late = takewhile(lambda change: change[0] > now_s - over_s, reversed(self.changes))
        return sum(by for _, by in late if by * sign > 0)

    def _most(self, now_s: int) -> int:
        found = []
        for policy in self._behavior("scaleUp")["policies"]:
            before = self.replicas - self._changed(now_s, policy["periodSeconds"], 1)
            is_share = policy["type"] == "Percent"
            share = ceil(before * (1 + policy["value"] / 100))
            found.append(share if is_share else before + policy["value"])
        return int(max(found))

    def _least(self, now_s: int) -> int:
        (policy,) = self._behavior("scaleDown")["policies"]
        before = self.replicas - self._changed(now_s, policy["periodSeconds"], -1)
        return int(before - policy["value"])


class Day(NamedTuple):
    """A load: objects a second by second of the day, of which the model takes at most `model`."""

    arrivals: Callable[[int], float]
    model: Callable[[int], float] = lambda _: 1e9
    is_away: Callable[[int], bool] = lambda _: False


class Moment(NamedTuple):
    at_s: int
    replicas: int
    seen: Seen
    backlog: float


STEP_S = 5


def day(
    load: Day, scaled: dict[str, Any], rate: float, backlog_s: float, target: float
) -> tuple[Autoscaler, list[Moment]]:
    """A day of workers that answer `rate` objects a second each."""
    scaler = Autoscaler(scaled)
    ready: deque[tuple[int, int]] = deque([(0, 1)])
    loads: deque[float] = deque([0.0], maxlen=300 // STEP_S)
    elsewhere: deque[float] = deque([0.0], maxlen=120 // STEP_S)
    working, stands_until_s, backlog, moments = 1, 0, 0.0, list[Moment]()
    for now_s in range(0, DAY_S, STEP_S):
        while ready and ready[0][0] <= now_s:
            count = ready.popleft()[1]
            if count != working:
                working, stands_until_s = count, now_s + REBALANCE_S
        arriving = load.arrivals(now_s)
        able = 0.0 if load.is_away(now_s) or now_s < stands_until_s else working * rate
        able = min(able, load.model(now_s))
        backlog += arriving * STEP_S
        done = min(backlog, able * STEP_S)
        backlog -= done
        age_s = backlog / max(arriving, 0.1)
        loads.append(done / STEP_S / (working * rate))
        is_late = age_s > 1.0
        at_model = able >= load.model(now_s) or load.is_away(now_s)
        elsewhere.append(float(is_late and at_model))
        seen = Seen(
            working,
            sum(elsewhere) / len(elsewhere),
            age_s,
            able > arriving and backlog > able,
            sum(loads) / len(loads),
        )
        if now_s % SYNC_S == 0:
            before = scaler.replicas
            after = scaler.decide(now_s, wanted(seen, backlog_s, target))
            if after != before:
                ready.append((now_s + (START_S if after > before else 0), after))
            moments.append(Moment(now_s, after, seen, backlog))
    return scaler, moments


def flaps(changes: list[tuple[int, int]]) -> list[tuple[int, int]]:
    """Workers that were taken away and were needed again within twenty minutes, or that were
    added and taken away within ten.
    """
    return [
        (at_s, by)
        for (before_s, before), (at_s, by) in pairwise(changes)
        if before * by < 0 and at_s - before_s < (1200 if by > 0 else 600)
    ]
