"""Seeds of the simulation by as many processes as there are cores: a history is computing alone."""

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from contextlib import contextmanager
from multiprocessing import get_context

from consumers.testing.simulation import Violation, simulate


def failing(seeds: Iterable[int]) -> dict[int, str]:
    """Of these, those that break a promise, and how."""
    found: dict[int, str] = {}
    for seed in seeds:
        try:
            simulate(seed)
        except Violation as violation:
            found[seed] = str(violation)
    return found


@contextmanager
def simulated(slices: Sequence[range]) -> Iterator[Mapping[range, Future[dict[int, str]]]]:
    """What `failing` says of each slice, in their order."""
    context = get_context("spawn")  # a fork of a process with threads may hang
    with ProcessPoolExecutor(os.cpu_count(), mp_context=context) as pool:
        try:
            yield {seeds: pool.submit(failing, seeds) for seeds in slices}
        finally:
            pool.shutdown(cancel_futures=True)
