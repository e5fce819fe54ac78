"""What a replay, a dry run or a job changes in a worker: its records, its settings, its answers.

Rule: a replay, a dry run and a job all run the worker's own pipeline. They change its source, sink
or settings, never a stage. Owner: `open_worker`, which applies the changes.
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


class Variant(NamedTuple):
    """Each function gets what the configuration says and returns what the worker uses. `until` runs
    beside the pipeline; when `until` returns, the worker drains.
    """

    source: Callable[[Source], Source] = lambda source: source
    settings: Callable[[Settings], Settings] = lambda settings: settings
    sink: Callable[[Sink], Sink] = lambda sink: sink
    results: Callable[[config.Config], Results | None] = _open_results
    until: Until | None = None


AS_CONFIGURED = Variant()
