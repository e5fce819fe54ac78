"""The stages of a pipeline, made and joined in flow order.

Rule: every stage is made here, once, from plain values, and gets here the stages that it may call;
nothing runs yet. Owner: the pipeline, which runs them and ends them.

    consume → download → expand → microbatch → predict → publish → settle
"""

import random
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field

from consumers.budget import Budget
from consumers.core.blocks import Ticket
from consumers.core.bulk import Neighbour
from consumers.core.bundles import Blocks
from consumers.core.jobs import Share
from consumers.core.line_stop import LineLimits, LineStop
from consumers.core.payload import Payload
from consumers.core.places import DEFAULT, Places
from consumers.core.records import Labels
from consumers.core.regions import HelpTerms
from consumers.core.routes import Routes
from consumers.core.window import WindowLimits
from consumers.decoders.task import Decoders
from consumers.dedupe import Dedupe
from consumers.formats.base import RowOptions
from consumers.lane import Lane
from consumers.ports import Adapters, Clock, Commit, Model
from consumers.services.outage import KAFKA, Outage
from consumers.services.unforeseen import Guards
from consumers.stages.assist import Assist
from consumers.stages.consume import Consume, Intake
from consumers.stages.microbatch import Waiting
from consumers.stages.publish import Publish
from consumers.stages.publish_object import (
    ObjectResults,
    Offload,
    ResultPlan,
    call_in_thread,
)
from consumers.stages.reject import Reject
from consumers.stages.settle import Settle
from consumers.stages.shadow import Shadow, ShadowPlan
from consumers.telemetry.region import RegionTelemetry
from consumers.telemetry.worker import Telemetry
from consumers.track import ModelTerms, Shared, Track
from consumers.watchdog import Watchdog


@dataclass(frozen=True, slots=True)
class Settings:
    """What the pipeline needs to know, as plain values; `settings.py` makes it from the
    configuration. `partition_of`: where an answer goes on the output topic. `models` are those
    beside the default one, `routes` say who answers what; None: the default model does.
    """

    labels: Labels
    partition_of: Callable[[Ticket], int]
    dead_letter_topic: str
    dead_letter_partitions: int
    rows: RowOptions
    window: WindowLimits
    target_p99_s: float | None
    fetchers: int
    callers: int
    buffer_bytes: int
    in_flight_objects: int
    object_bytes: int | None
    inline_bytes: int
    pin: bool
    wait_for_object_s: float
    commit_interval_s: float
    drain_s: float
    patience_s: float | None
    line: LineLimits
    input_partitions: int
    broker_patience_s: float
    stall_s: float | None
    order_by_stream: bool = False
    canary: Payload | None = None
    dedupe: bool = False
    output_partitions: int | None = None  # None: streams are spread over as many as there are
    stream_from: str | None = None
    allow: Sequence[str] | None = None  # globs of `bucket/key`; None allows all
    results: ResultPlan | None = None  # None: answers are records alone
    blocks: Blocks | None = None  # None: a Kafka record for each row
    streams: Sequence[str] | None = None  # globs; the others are skipped. None takes all
    places: Places = field(default_factory=Places.one)
    near: Mapping[str, Places] = field(default_factory=dict)  # of topics that have their own
    helping: Mapping[str, HelpTerms] = field(default_factory=dict)  # regions that may need us
    more_fetchers: Mapping[str, int] = field(default_factory=dict)  # of stores beside `[objects]`
    models: Mapping[str, ModelTerms] = field(default_factory=dict)
    routes: Routes | None = None
    shadow: ShadowPlan | None = None

    @property
    def stores(self) -> Mapping[str, int]:
        """The fetchers of each store, for each model."""
        return {DEFAULT: self.fetchers, **self.more_fetchers}

    @property
    def terms(self) -> Mapping[str | None, ModelTerms]:
        """Of the default model (None) and of all others."""
        main = ModelTerms(self.rows, self.window, self.target_p99_s, self.callers, self.canary)
        found: dict[str | None, ModelTerms] = {None: main}
        found.update(self.models)
        return found


class Wiring:
    """One per pipeline. `lane` opens a partition's way through the stages; `lanes` are those that
    the pipeline has open. `jitter` is drawn before every retry, from [0, 1); `draw` says which
    batches a shadow gets. `raises`: what nobody foresaw ends the run, as tests want it.
    """

    def __init__(
        self,
        settings: Settings,
        adapters: Adapters,
        telemetry: Telemetry,
        *,
        decoders: Decoders,
        offload: Offload = call_in_thread,
        jitter: Callable[[], float] = random.random,
        draw: Callable[[], float] = random.random,
        raises: bool = False,
    ) -> None:
        source, clock = adapters.source, adapters.clock
        self.settings, self.adapters = settings, adapters
        self.telemetry, self.jitter = telemetry, jitter
        self.lanes: dict[int, Lane] = {}
        self.budget = Budget(settings.buffer_bytes)
        self.outages: list[Outage] = []
        self._neighbour: Neighbour = "quiet"
        dedupe = Dedupe(is_on=settings.dedupe)
        self._guards = guards = Guards(telemetry, clock, raises=raises)

        self.intake = Intake(
            stream_from=settings.stream_from,
            allow=settings.allow,
            streams=settings.streams,
            places=settings.places,
            routes=settings.routes or Routes([settings.labels.model], ()),
            clock=clock,
            telemetry=telemetry,
            guards=guards,
            near=settings.near,
        )
        self.consume = Consume(source, self.lanes, clock)
        self.shadow = self._shadow(draw)
        self.tracks = self._tracks(decoders, dedupe)
        self._offers = {model: track.download.offer for model, track in self.tracks.items()}
        self.publish = Publish(
            adapters.sink,
            self._reject(adapters),
            settings.labels,
            settings.partition_of,
            {model: track.pace for model, track in self.tracks.items() if track.pace is not None},
            dedupe,
            clock,
            telemetry,
            guards,
            self._results(adapters, offload, telemetry),
            blocks=settings.blocks,
        )
        self.assist = self._assist(adapters, telemetry.region)
        self.settle = self._settle(adapters, telemetry)
        self.watchdogs = (
            [Watchdog(self.lanes, clock, telemetry, limit_s=settings.stall_s)]
            if settings.stall_s is not None
            else []
        )

    def lane(
        self,
        partition: int,
        generation: int,
        start: Commit,
        on_stopped: Callable[[Lane, LineStop], None],
        passing: Collection[tuple[str, int]],
    ) -> Lane:
        return Lane(
            partition,
            self.adapters.source.where(partition),
            generation,
            start,
            budget=self.budget,
            make_tickets=self.intake.tickets,
            on_jobs=self._offers,
            on_stopped=on_stopped,
            max_objects=self.settings.in_flight_objects,
            line=self.settings.line,
            passing=passing,
            stream_share=_stream_share(self.settings),
        )

    @property
    def main(self) -> Track:
        """The default model's."""
        return self.tracks[None]

    @property
    def waiting(self) -> Waiting:
        """Rows that wait for a model call."""
        found = [track.microbatch.waiting for track in self.tracks.values()]
        return found[0]._replace(
            rows=sum(one.rows for one in found),
            streams=sum(one.streams for one in found),
            calls=sum(one.calls for one in found),
            most_calls=sum(one.most_calls for one in found),
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
        """Bulk waits for what another group does. That is waiting on purpose: the watchdog need
        not think that anything hangs.
        """
        self.telemetry.waited(is_on_purpose=neighbour == "behind")
        if neighbour != self._neighbour:
            self._neighbour = neighbour
            for track in self.tracks.values():
                track.microbatch.give_way(neighbour)

    def _tracks(self, decoders: Decoders, dedupe: Dedupe) -> dict[str | None, Track]:
        """Of the default model (None) and of all others."""
        settings, adapters = self.settings, self.adapters
        patience_s, clock = settings.patience_s, adapters.clock
        names = [settings.labels.model, *settings.models]
        per_model = self.telemetry.of_models(names) if settings.models else {}
        servers: dict[str | None, Model] = {None: adapters.model}
        servers.update(adapters.models)
        shared = Shared(
            adapters,
            self.budget,
            self.telemetry,
            dedupe,
            {store: self._outage(_service(store), clock, patience_s) for store in settings.stores},
            decoders,
            self.jitter,
            self._guards,
            is_alone=not settings.models,
            inline_bytes=settings.inline_bytes,
            pin=settings.pin,
            object_bytes=settings.object_bytes,
            wait_for_object_s=settings.wait_for_object_s,
            from_first_row=settings.results is not None,
            row_rules=_delivered_as(settings.results),
        )
        return {
            model: shared.track(
                model,
                name,
                servers[model],
                terms,
                per_model.get(name, self.telemetry),
                self._outage(
                    f"model server of {name}" if per_model else "model server", clock, patience_s
                ),
                self.shadow if model is None else None,
            )
            for name, (model, terms) in zip(names, settings.terms.items(), strict=True)
        }

    def _shadow(self, draw: Callable[[], float]) -> Shadow | None:
        plan, guest, clock = self.settings.shadow, self.adapters.shadow, self.adapters.clock
        if plan is None or guest is None:
            return None
        away = self._outage(f"shadow model {plan.terms.shadow}", clock, None)
        return Shadow(plan, guest, clock, self.telemetry.of_shadow(), away, draw)

    def _reject(self, adapters: Adapters) -> Reject:
        settings = self.settings
        return Reject(
            adapters.sink,
            settings.labels,
            adapters.clock,
            self._guards,
            topic=settings.dead_letter_topic,
            partitions=settings.dead_letter_partitions,
        )

    def _results(
        self, adapters: Adapters, offload: Offload, telemetry: Telemetry
    ) -> ObjectResults | None:
        plan = self.settings.results
        if plan is None or adapters.results is None:
            return None
        return ObjectResults(adapters.results, plan, offload, telemetry, self._guards)

    def _assist(self, adapters: Adapters, telemetry: RegionTelemetry | None) -> Assist | None:
        if adapters.neighbours is None or telemetry is None:
            return None
        helping = self.settings.helping
        return Assist(adapters.neighbours, helping, self.lanes, adapters.clock, telemetry)

    def _settle(self, adapters: Adapters, telemetry: Telemetry) -> Settle:
        settings, clock = self.settings, adapters.clock
        return Settle(
            adapters.source,
            self.lanes,
            telemetry,
            self._outage(KAFKA, clock, settings.broker_patience_s),
            clock,
            interval_s=settings.commit_interval_s,
        )

    def _outage(self, service: str, clock: Clock, patience_s: float | None) -> Outage:
        outage = Outage(service, clock, patience_s)
        self.outages.append(outage)
        return outage


def _service(store: str) -> str:
    return "object store" if store == DEFAULT else f"object store {store}"


def _delivered_as(plan: ResultPlan | None) -> str:
    """Rows that were delivered within a result object only are not on the output topic."""
    return "" if plan is None or plan.of_rows else "/objects"


def _stream_share(settings: Settings) -> Share | None:
    """A quarter: three streams that are stuck leave room for all the others."""
    if not settings.order_by_stream:
        return None
    return Share(max(1, settings.fetchers // 4), max(1, settings.in_flight_objects // 4))
