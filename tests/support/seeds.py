"""Seeds of the simulation by as many processes as there are cores: a history is computing alone."""

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from concurrent.futures import Future, ProcessPoolExecutor
from contextlib import contextmanager
from multiprocessing import get_context
from typing import NamedTuple

from penstock.tools.simulation.simulation import Violation, simulate


class Seen(NamedTuple):
    """Of some seeds: those that break a promise, and how; which troubles the others went through,
    and how many rows they published again.
    """

    failing: Mapping[int, str]
    troubles: Set[str]
    repeated: int


def look(seeds: Iterable[int]) -> Seen:
    failing: dict[int, str] = {}
    troubles: set[str] = set()
    repeated = 0
    for seed in seeds:
        try:
            report = simulate(seed)
        except Violation as violation:
            failing[seed] = str(violation)
        else:
            troubles |= report.counts.keys()
            repeated += report.repeated
    return Seen(failing, troubles, repeated)


@contextmanager
def simulated(slices: Sequence[range]) -> Iterator[Mapping[range, Future[Seen]]]:
    """What was seen of each slice, in their order."""
    context = get_context("spawn")  # a fork of a process with threads may hang
    with ProcessPoolExecutor(os.cpu_count(), mp_context=context) as pool:
        try:
            yield {seeds: pool.submit(look, seeds) for seeds in slices}
        finally:
            pool.shutdown(cancel_futures=True)
