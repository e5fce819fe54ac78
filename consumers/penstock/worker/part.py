"""How a worker differs from what its configuration says: a replay, a dry run, or a job.

Rule: each of them is the same pipeline; it changes a source or a sink, never a stage. Owner: the
application.
"""

from collections.abc import Awaitable, Callable
from typing import NamedTuple

from penstock import config
from penstock.adapters.result_stores.choice import open_results
from penstock.pipeline.life import Pipeline
from penstock.pipeline.settings import Settings
from penstock.ports import Results, Sink, Source

Until = Callable[[Pipeline], Awaitable[None]]


def _open_results(cfg: config.Config) -> Results | None:
    return None if cfg.output.objects is None else open_results(cfg, cfg.output.objects)


class Part(NamedTuple):
    """Which records it reads, which settings it changes, and where its answers go. `until`: runs
    beside the pipeline, and the worker drains when it returns.
    """

    source: Callable[[Source], Source] = lambda source: source
    settings: Callable[[Settings], Settings] = lambda settings: settings
    sink: Callable[[Sink], Sink] = lambda sink: sink
    results: Callable[[config.Config], Results | None] = _open_results
    until: Until | None = None


WHOLE = Part()
