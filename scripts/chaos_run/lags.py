"""How late the announcer and the worker were in a run of the chain, and which process used the CPU.

Rule: this file measures and does not judge, because a scene that is late on a machine that is too
slow breaks no promise. Owner: the run.
"""

import os
import time
from collections import defaultdict
from collections.abc import Iterable, Mapping
from typing import NamedTuple

import orjson

from chaos_run.scenes_oracle import Said, tails
from penstock.bench.resource_use import cpu_by_name, others_s

STEP_MS = 10_000

Pids = Mapping[str, int]


class Lags(NamedTuple):
    """Lags of predictions, from event time to Kafka's stamp. `steps_ms`: the median lag of each ten
    seconds. `apart_ms`: per site and second, the difference between the largest and the smallest
    lag.
    """

    worker_ms: dict[str, int]
    steps_ms: list[int]
    apart_ms: dict[str, int]


def lags(predictions: Iterable[Said]) -> Lags:
    every: list[int] = []
    of_steps: dict[int, list[int]] = defaultdict(list)
    of_seconds: dict[tuple[str, int], list[int]] = defaultdict(list)
    for value, recorded_ms in predictions:
        record = orjson.loads(value)
        lag = recorded_ms - record["event_time"]
        every.append(lag)
        of_steps[recorded_ms // STEP_MS].append(lag)
        of_seconds[record["stream"].partition("/")[0], recorded_ms // 1000].append(lag)
    steps = [tails(of_steps[step])["p50"] for step in sorted(of_steps)]
    apart = [max(each) - min(each) for each in of_seconds.values()]
    return Lags(tails(every), steps, tails(apart))


class Cores:
    """Measures how many cores each process keeps busy from now on."""

    def __init__(self, pids: Pids) -> None:
        self._pids = pids
        self._since_s = time.monotonic()
        self._before = cpu_by_name(pids)

    def used(self) -> dict[str, float]:
        took_s = time.monotonic() - self._since_s
        spent = {name: s - self._before[name] for name, s in cpu_by_name(self._pids).items()}
        spent["others"] = others_s(spent)
        return {name: round(cpu_s / took_s, 2) for name, cpu_s in spent.items()}


def text(announced: list[float], found: Lags, cores: Mapping[str, float], due_ms: int) -> str:
    """The figures in words. `announced`: how late each object was announced, in milliseconds.
    `due_ms`: announcer or worker is called behind if the 99th percentile of its lag is above this.
    """
    late = {"announcer": tails([round(ms) for ms in announced]), "worker": found.worker_ms}
    behind = [name for name, each in late.items() if each.get("p99", 0) > due_ms]
    said = (
        f"behind: {' and '.join(behind)}, with {cores['machine']} of {os.cpu_count()} cores busy; "
        "scenes of it are late for that"
        if behind
        else "neither was behind"
    )
    apart = f"one site's members apart, within a second: {found.apart_ms}"
    return "\n".join(
        [
            f"announced after its time, ms: {late['announcer']}",
            f"predicted after its event time, ms: {late['worker']}; {apart}",
            f"of each ten seconds, half no later than: {found.steps_ms}",
            f"cores busy: {dict(cores)}",
            said,
        ]
    )
