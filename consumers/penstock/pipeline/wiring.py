"""Makes the stages of a pipeline and joins them in the order of the flow.

Rule: every stage is made here, once, from plain values, and is given the stages that it may call.
A model that fails or is slow holds up only its own track: its objects have fetchers of their own,
and its rows a window and a breaker. The models share only the lanes, the byte budget and the
publishing. No task is started here.
"""

import random
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from functools import partial

from penstock.asking.asker import Asker
from penstock.asking.model_calls import ModelCalls
from penstock.core.health.limiter import Limiter
from penstock.core.health.other_groups import Neighbour
from penstock.core.health.retries import Hedging
from penstock.core.progress.ledger import Account
from penstock.core.progress.line_stop import LineStop, Passing
from penstock.core.progress.order import StreamShare
from penstock.core.routing.model_routes import Routes
from penstock.core.routing.store_choice import DEFAULT
from penstock.core.rows.blocks import Block
from penstock.core.window.pace import BatchPlan, Pace
from penstock.core.window.priorities import weights
from penstock.core.window.stream_costs import StreamCosts
from penstock.core.window.window import BatchWindow
from penstock.decoders.protocol import Decoders
from penstock.failures.outage import KAFKA, MODEL, STORE, Outage
from penstock.failures.unexpected_errors import Guards
from penstock.formats.pictures.pixels import PictureOptions
from penstock.lane.budget import Budget, ModelShare
from penstock.lane.dedupe import Dedupe
from penstock.lane.lane import Lane
from penstock.pipeline.owed_answers import Watchdog
from penstock.pipeline.settings import ModelTerms, Settings
from penstock.ports import Adapters, Clock, Commit, Model, Objects, Where
from penstock.process.asyncio_additions import in_thread
from penstock.stages.consume import Consume, Intake
from penstock.stages.download import Download
from penstock.stages.encode import Encode
from penstock.stages.expand import Expand
from penstock.stages.help_regions import HelpRegions
from penstock.stages.microbatch import Microbatch, Waiting
from penstock.stages.predict import Predict
from penstock.stages.publish import Publish
from penstock.stages.read_object import ReadObject
from penstock.stages.reject import Reject
from penstock.stages.result_objects import ObjectResults, Offload
from penstock.stages.samples import Samples, Sampling
from penstock.stages.settle import Settle
from penstock.stages.shadow import ShadowModel
from penstock.stages.store_reads import HedgedObjects, StoreReads
from penstock.telemetry.delivery_times import DeliveryTimes
from penstock.telemetry.per_service import CallsTelemetry
from penstock.telemetry.worker import Telemetry
from penstock.tracing import Tracer


@dataclass(frozen=True, slots=True)
class Track:
    """The part of the pipeline that belongs to one model. `name`: the model's name in records."""

    name: str
    pace: Pace | None
    costs: StreamCosts
    microbatch: Microbatch
    calls: ModelCalls
    predict: Predict
    download: Download


class Wiring:
    """One per pipeline. `lane` makes the lane of a partition. `lanes`: for each partition, its open
    lane. `jitter`: a function that returns a random number from [0, 1) before every retry; `draw`:
    a function that returns such a number for every batch, to decide whether the shadow gets the
    batch. `raises`: True in tests, so that an unforeseen exception ends the run.
    """

    lane_kind: type[Lane] = Lane

    def __init__(
        self,
        settings: Settings,
        adapters: Adapters,
        telemetry: Telemetry,
        *,
        decoders: Decoders,
        offload: Offload = in_thread,
        jitter: Callable[[], float] = random.random,
        draw: Callable[[], float] = random.random,
        raises: bool = False,
    ) -> None:
        source, clock = adapters.source, adapters.clock
        self.settings, self.adapters = settings, adapters
        self.telemetry, self.jitter = telemetry, jitter
        self.decoders = decoders
        self.lanes: dict[Where, Lane] = {}
        self.budget = Budget(settings.buffer_bytes)
        self.outages: list[Outage] = []
        self._neighbour: Neighbour = "quiet"
        self._dedupe = Dedupe() if settings.dedupe else None
        self._guards = guards = Guards(telemetry, clock, raises=raises)
        self._tracer = self._trace()

        self.intake = Intake(
            settings.intake,
            settings.routes or Routes([settings.labels.model], ()),
            clock,
            telemetry,
            guards,
            self._tracer,
            settings.main.window.priorities if settings.main.window.fair else None,
        )
        self.consume = Consume(source, self.lanes)
        self.shadow = self._shadow(draw)
        self.samples = Samples(clock) if settings.samples else None
        self.reads = {store: self._turns(store) for store in settings.objects.stores}
        self.hedgings = {
            store: Hedging(self.reads[store].limiter) for store in settings.objects.hedged
        }
        self.store_outages = {
            store: self._outage(_service(store), clock, settings.times.patience_s)
            for store in settings.objects.stores
        }
        self._objects = self._hedged()
        self.tracks = self._tracks()
        self._offers = {model: track.download.offer for model, track in self.tracks.items()}
        self.reject = Reject(adapters.sink, settings.labels, clock, guards, settings.letters)
        # Of result objects; None: there are none.
        self.writes: StoreReads | None = None
        self.publish = self._publish(offload)
        self.help_regions = self._help_regions()
        times = settings.times
        self.settle = Settle(
            source,
            self.lanes,
            telemetry,
            self._outage(KAFKA, clock, times.broker_patience_s),
            clock,
            interval_s=times.commit_interval_s,
        )
        self.watchdogs = (
            [Watchdog(self.lanes, clock, telemetry, limit_s=times.stall_s)]
            if times.stall_s is not None
            else []
        )

    def lane(
        self,
        where: Where,
        generation: int,
        start: Commit,
        on_stopped: Callable[[Lane, LineStop], None],
        passing: Collection[Passing],
    ) -> Lane:
        lane = self.settings.lane
        return self.lane_kind(
            where,
            generation,
            Account(where, start, lane.line, passing),
            topic_id=self.adapters.source.topic_id(where),
            budget=self.budget,
            decode=self.intake.tickets,
            offers=self._offers,
            on_stopped=on_stopped,
            max_objects=lane.max_objects,
            stream_share=StreamShare(lambda store: self.reads[store].readers, lane.max_objects)
            if lane.order_by_stream
            else None,
        )

    @property
    def main(self) -> Track:
        """The track of the default model."""
        return self.tracks[None]

    @property
    def waiting(self) -> Waiting:
        """How many rows wait for a model call, over all models."""
        waits = [track.microbatch.waiting for track in self.tracks.values()]
        return waits[0]._replace(
            rows=sum(wait.rows for wait in waits),
            streams=sum(wait.streams for wait in waits),
            calls=sum(wait.calls for wait in waits),
            most_calls=sum(wait.most_calls for wait in waits),
        )

    def drain(self) -> None:
        for track in self.tracks.values():
            track.microbatch.drain()

    def resume(self) -> None:
        for track in self.tracks.values():
            track.microbatch.resume()

    def discard_dead(self) -> None:
        for track in self.tracks.values():
            track.microbatch.discard_dead()

    def give_way(self, neighbour: Neighbour) -> None:
        """Let the rows of this replay give way to the rows of the live group. `neighbour`: the
        state of the live group. While that group is behind, the rows here wait on purpose. The
        watchdog is told of the wait, so that it does not end the worker as one that hangs.
        """
        self.telemetry.waited(is_on_purpose=neighbour == "behind")
        if neighbour != self._neighbour:
            self._neighbour = neighbour
            for track in self.tracks.values():
                track.microbatch.give_way(neighbour)

    def _tracks(self) -> dict[str | None, Track]:
        """For each model, its track. The key of the default model is None."""
        settings, adapters = self.settings, self.adapters
        names = [settings.labels.model, *settings.models]
        # If there is only one model, the worker's own metrics say all about that model.
        per_model = self.telemetry.of_models(names) if settings.models else {}
        servers: dict[str | None, Model] = {None: adapters.model}
        servers.update(adapters.models)
        tracks: dict[str | None, Track] = {}
        for name, (model, terms) in zip(names, settings.terms.items(), strict=True):
            telemetry = per_model.get(name, self.telemetry)
            service = f"{MODEL} of {name}" if per_model else MODEL
            away = self._outage(service, adapters.clock, settings.times.patience_s)
            tracks[model] = self._track(model, name, servers[model], terms, telemetry, away)
        return tracks

    def _track(
        self,
        model: str | None,
        name: str,
        server: Model,
        terms: ModelTerms,
        telemetry: CallsTelemetry,
        away: Outage,
    ) -> Track:
        """`model`: the model's name, or None for the default model; `name`: its name in records,
        which the default model has, too.
        """
        clock, window = self.adapters.clock, terms.window
        fixed = BatchPlan(window.max_rows, window.max_wait_s)
        pace = Pace(fixed, terms.target_p99_s) if terms.target_p99_s is not None else None
        microbatch = Microbatch(
            BatchWindow(window),
            pace,
            clock,
            self.telemetry,
            calls=terms.begin_calls or terms.callers,
            share=ModelShare(self.budget) if self.settings.models else None,
        )
        costs = StreamCosts()
        size = None if pace is None else microbatch.call_size
        calls = self._calls(name, server, terms, telemetry, away, size)
        predict = Predict(
            Asker(calls, clock, window.max_rows, window.max_bytes),
            calls,
            microbatch,
            fixed,
            pace,
            clock,
            costs,
            shadow=self.shadow if model is None else None,
            sampling=None
            if self.samples is None
            else Sampling(self.samples, name, terms.rows.of(PictureOptions).image),
        )
        download = self._download(model, terms, microbatch)
        return Track(name, pace, costs, microbatch, calls, predict, download)

    def _calls(
        self,
        name: str,
        server: Model,
        terms: ModelTerms,
        telemetry: CallsTelemetry,
        away: Outage,
        size: Callable[[Sequence[Block]], float] | None,
    ) -> ModelCalls:
        return ModelCalls(
            server,
            terms.canary,
            Limiter(terms.callers, terms.begin_calls),
            self.adapters.clock,
            telemetry,
            away,
            self.jitter,
            self._guards,
            is_alone=not self.settings.models,
            size=size,
            token_prices=terms.token_prices,
            tracing=partial(self._tracer.call, name) if self._tracer is not None else None,
        )

    def _download(self, model: str | None, terms: ModelTerms, microbatch: Microbatch) -> Download:
        expand = Expand(
            terms.rows,
            microbatch,
            self._guards,
            self.settings.objects.inline_bytes,
            is_told_about=terms.is_told_about,
        )
        reader = ReadObject(
            self._objects,
            expand,
            self.budget,
            microbatch,
            self.decoders,
            self.reads,
            self.store_outages,
            self._dedupe,
            self.adapters.clock,
            self.telemetry,
            self.settings.objects,
            self.settings.results,
        )
        return Download(model, reader, self.jitter, self._guards, weights(terms.window.priorities))

    def _publish(self, offload: Offload) -> Publish:
        settings, sink, clock = self.settings, self.adapters.sink, self.adapters.clock
        results = self._results(offload)
        encode = Encode(
            sink,
            self.reject,
            settings.labels,
            settings.publish,
            self._dedupe,
            clock,
            self.telemetry,
            self._guards,
            results,
            self._tracer,
        )
        paces = {model: track.pace for model, track in self.tracks.items() if track.pace}
        delivery_times = DeliveryTimes(paces, clock, self.telemetry, self._tracer)
        self.ways = delivery_times.ways
        return Publish(sink, encode, delivery_times, results, clock, self.telemetry)

    def _hedged(self) -> Objects:
        if not self.hedgings:
            return self.adapters.objects
        hedged = self.telemetry.replicas.hedged
        for store in self.hedgings:
            hedged.show(store)
        objects, clock = self.adapters.objects, self.adapters.clock
        return HedgedObjects(objects, self.hedgings, clock, hedged.inc, self.reads)

    def _trace(self) -> Tracer | None:
        terms, spans = self.settings.traces, self.adapters.spans
        if terms is None or spans is None:
            return None
        self.telemetry.of_traces(spans)
        return Tracer(terms, spans, self.adapters.clock, random.getrandbits)

    def _shadow(self, draw: Callable[[], float]) -> ShadowModel | None:
        terms, guest, clock = self.settings.shadow, self.adapters.shadow, self.adapters.clock
        if terms is None or guest is None:
            return None
        away = self._outage(f"shadow model {terms.topic.shadow}", clock, None)
        return ShadowModel(terms, guest, clock, self.telemetry.of_shadow(), away, draw)

    def _results(self, offload: Offload) -> ObjectResults | None:
        terms, results = self.settings.results, self.adapters.results
        if terms is None or results is None:
            return None
        self.writes = self._turns(DEFAULT)
        return ObjectResults(results, terms, offload, self.writes, self.telemetry, self._guards)

    def _turns(self, store: str) -> StoreReads:
        terms = self.settings.objects
        limiter = Limiter(terms.stores[store], terms.begin_fetches.get(store))
        weight = weights(self.settings.main.window.priorities)
        return StoreReads(limiter, self.adapters.clock, weight, self.decoders.is_proven)

    def _help_regions(self) -> HelpRegions | None:
        neighbours, telemetry = self.adapters.neighbours, self.telemetry.region
        if neighbours is None or telemetry is None:
            return None
        helping, clock = self.settings.helping, self.adapters.clock
        return HelpRegions(neighbours, helping, self.lanes, clock, telemetry)

    def _outage(self, service: str, clock: Clock, patience_s: float | None) -> Outage:
        outage = Outage(service, clock, patience_s)
        self.outages.append(outage)
        return outage


def _service(store: str) -> str:
    return STORE if store == DEFAULT else f"{STORE} {store}"
