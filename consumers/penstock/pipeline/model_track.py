"""The part of the pipeline that belongs to one model: its fetchers, its window, its calls.

Rule: a model that fails or is slow holds up only its own track. Its objects have fetchers of their
own, and its rows have a window and a breaker of their own. The models share only the lanes, the
byte budget and the publishing. Owner: the wiring, which has a track for each model.
"""

from collections.abc import Callable, Mapping
from dataclasses import KW_ONLY, dataclass
from functools import partial

from penstock.calls.model_calls import ModelCalls
from penstock.calls.outage import Outage
from penstock.calls.unexpected_errors import Guards
from penstock.core.health.limiter import Limiter
from penstock.core.window.pace import BatchPlan, Pace
from penstock.core.window.stream_costs import StreamCosts
from penstock.core.window.window import Window
from penstock.decoders.protocol import Decoders
from penstock.formats.pictures.pixels import PictureOptions
from penstock.lane.budget import Budget, ModelShare
from penstock.lane.dedupe import Dedupe
from penstock.pipeline.settings import ModelTerms
from penstock.ports import Adapters, Model, Objects
from penstock.stages.download import Download
from penstock.stages.expand import Expand
from penstock.stages.microbatch import Microbatch
from penstock.stages.predict import Predict
from penstock.stages.read_object import ObjectTerms, ReadObject
from penstock.stages.result_objects import ResultPlan
from penstock.stages.samples import Samples, Sampling
from penstock.stages.shadow_asking import Shadow
from penstock.stages.store_reads import StoreReads
from penstock.telemetry.models_and_shadow import CallsTelemetry
from penstock.telemetry.worker import Telemetry
from penstock.tracing.tracer import Tracer


@dataclass(frozen=True, slots=True)
class Track:
    """`name`: the model's name in records."""

    name: str
    pace: Pace | None
    costs: StreamCosts
    microbatch: Microbatch
    calls: ModelCalls
    predict: Predict
    download: Download


@dataclass(frozen=True, slots=True)
class Shared:
    """What all models of a worker share. `is_alone`: True if there is only one model."""

    adapters: Adapters
    objects: Objects
    budget: Budget
    telemetry: Telemetry
    dedupe: Dedupe | None
    stores_away: Mapping[str, Outage]
    decoders: Decoders
    reads: Mapping[str, StoreReads]
    jitter: Callable[[], float]
    guards: Guards
    _: KW_ONLY
    is_alone: bool
    terms: ObjectTerms
    results: ResultPlan | None
    tracer: Tracer | None
    samples: Samples | None

    def track(
        self,
        model: str | None,
        name: str,
        server: Model,
        terms: ModelTerms,
        telemetry: CallsTelemetry,
        away: Outage,
        shadow: Shadow | None,
    ) -> Track:
        """Make the track of one model. `model`: the model's name, or None for the default model.
        `name`: the model's name in records; the default model has one, too.
        """
        clock, window = self.adapters.clock, terms.window
        fixed = BatchPlan(window.max_rows, window.max_wait_s)
        pace = Pace(fixed, terms.target_p99_s) if terms.target_p99_s is not None else None
        microbatch = Microbatch(
            Window(window),
            pace,
            clock,
            self.telemetry,
            calls=terms.begin_calls or terms.callers,
            share=None if self.is_alone else ModelShare(self.budget),
        )
        calls = ModelCalls(
            server,
            terms.canary,
            Limiter(terms.callers, terms.begin_calls),
            clock,
            telemetry,
            away,
            self.jitter,
            self.guards,
            is_alone=self.is_alone,
            size=pace.size if pace is not None else None,
            tracing=partial(self.tracer.call, name) if self.tracer is not None else None,
        )
        costs = StreamCosts()
        predict = Predict(
            calls,
            microbatch,
            fixed,
            pace,
            clock,
            costs,
            most_bytes=window.max_bytes,
            shadow=shadow,
            sampling=None
            if self.samples is None
            else Sampling(self.samples, name, terms.rows.of(PictureOptions).image),
        )
        expand = Expand(terms.rows, microbatch, self.guards, self.terms.inline_bytes)
        reader = ReadObject(
            self.objects,
            expand,
            self.budget,
            microbatch,
            self.decoders,
            self.reads,
            self.stores_away,
            self.dedupe,
            clock,
            self.telemetry,
            self.terms,
            self.results,
        )
        download = Download(model, reader, self.jitter, self.guards)
        return Track(name, pace, costs, microbatch, calls, predict, download)
