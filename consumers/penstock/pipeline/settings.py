"""The settings of a pipeline as plain values. `Settings` are those of the whole. The `...Terms` in
it are those of one stage, and no other stage reads them; the `...Limits` are bounds that a part of
the core holds. How a format reads is its `...Options`.

Rule: the package `settings` makes these objects from the configuration. No part of the pipeline
sees the configuration itself.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

from penstock.core.health.other_groups import HelpTerms
from penstock.core.progress.line_stop import LineLimits
from penstock.core.records.output_records import Labels
from penstock.core.routing.model_routes import Routes
from penstock.core.rows.payload import Payload
from penstock.core.window.window import WindowLimits
from penstock.formats.runs import RowOptions
from penstock.stages.consume import IntakeTerms
from penstock.stages.encode import PublishTerms
from penstock.stages.read_object import ObjectTerms
from penstock.stages.reject import LetterTerms
from penstock.stages.result_objects import ResultTerms
from penstock.stages.shadow import ShadowTerms
from penstock.tracing import TraceTerms


@dataclass(frozen=True, slots=True)
class TimeLimits:
    """The limits of time, in seconds. None: no limit."""

    commit_interval_s: float
    drain_s: float
    broker_patience_s: float
    patience_s: float | None  # how long stores and model servers may be away
    stall_s: float | None  # a worker that makes no progress for this long is ended


@dataclass(frozen=True, slots=True)
class ModelTerms:
    """The settings of one model, as plain values. `callers`: the most calls at a time.
    `begin_calls`: the number to begin with, if the best number is learned; None: `callers` is it.
    `cost_per_hour`: the price of the hardware behind the model. `token_prices`: of a token that the
    model reads, and of one that it writes. `is_told_about`: True if the model
    is told of which object its rows are.
    """

    rows: RowOptions
    window: WindowLimits
    target_p99_s: float | None
    callers: int
    canary: Payload | None = None
    begin_calls: int | None = None
    cost_per_hour: float | None = None
    token_prices: tuple[float, float] = (0.0, 0.0)
    is_told_about: bool = False


@dataclass(frozen=True, slots=True)
class LaneLimits:
    """`line`: how many dead letters stop a line. `order_by_stream`: order is kept only within each
    stream.
    """

    max_objects: int
    line: LineLimits
    order_by_stream: bool = False


@dataclass(frozen=True, slots=True)
class Settings:
    """`models`: the models besides the default one. `routes`: which models answer which objects;
    None: the default model answers all.
    """

    labels: Labels
    main: ModelTerms
    intake: IntakeTerms
    lane: LaneLimits
    objects: ObjectTerms
    publish: PublishTerms
    letters: LetterTerms
    times: TimeLimits
    buffer_bytes: int
    input_partitions: int
    output_partitions: int | None = None  # None: streams are spread over all partitions
    dedupe: bool = False
    results: ResultTerms | None = None  # None: answers are published as records only
    # for each region that this worker may help: on which terms
    helping: Mapping[str, HelpTerms] = field(default_factory=dict)
    models: Mapping[str, ModelTerms] = field(default_factory=dict)
    routes: Routes | None = None
    shadow: ShadowTerms | None = None
    traces: TraceTerms | None = None
    samples: bool = False  # whether the status page may show rows

    @property
    def terms(self) -> Mapping[str | None, ModelTerms]:
        """For each model, its terms. The key of the default model is None."""
        terms: dict[str | None, ModelTerms] = {None: self.main}
        terms.update(self.models)
        return terms
