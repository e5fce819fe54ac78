"""The stages of a pipeline, made and joined in flow order.

Rule: every stage is made here, once, from plain values, and gets here the stages that it may call;
nothing runs yet. Owner: the pipeline, which runs them and ends them.

    consume → download → expand → microbatch → predict → publish → settle
"""

import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from consumers.budget import Budget
from consumers.core.blocks import Ticket
from consumers.core.jobs import Share
from consumers.core.line_stop import LineLimits
from consumers.core.pace import BatchPlan, Pace
from consumers.core.payload import Payload
from consumers.core.places import DEFAULT, Places
from consumers.core.records import Labels
from consumers.core.window import Window, WindowLimits
from consumers.dedupe import Dedupe
from consumers.formats.base import RowOptions
from consumers.lane import Lane
from consumers.ports import Adapters, Clock, Commit
from consumers.services.model_calls import ModelCalls
from consumers.services.outage import KAFKA, Outage
from consumers.stages.consume import Consume, Intake
from consumers.stages.download import Download
from consumers.stages.download_object import ObjectReader
from consumers.stages.expand import Expand, Offload, decode_in_thread
from consumers.stages.microbatch import Microbatch
from consumers.stages.predict import Predict
from consumers.stages.publish import Publish
from consumers.stages.publish_object import ObjectResults, ResultPlan
from consumers.stages.reject import Reject
from consumers.stages.settle import Settle
from consumers.telemetry import Telemetry
from consumers.watchdog import Watchdog


@dataclass(frozen=True, slots=True)
class Settings:
    """What the pipeline needs to know, as plain values; `settings.py` makes it from the
    configuration. `partition_of`: where an answer goes on the output topic.
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
    places: Places = field(default_factory=Places.one)
    more_fetchers: Mapping[str, int] = field(default_factory=dict)  # of stores beside `[objects]`

    @property
    def stores(self) -> Mapping[str, int]:
        """The fetchers of each store."""
        return {DEFAULT: self.fetchers, **self.more_fetchers}


class Wiring:
    """One per pipeline. `lane` opens a partition's way through the stages; `lanes` are those that
    the pipeline has open. `jitter` is drawn before every retry, from [0, 1).
    """

    def __init__(
        self,
        settings: Settings,
        adapters: Adapters,
        telemetry: Telemetry,
        *,
        offload: Offload = decode_in_thread,
        jitter: Callable[[], float] = random.random,
    ) -> None:
        source, clock = adapters.source, adapters.clock
        self.settings, self.adapters = settings, adapters
        self.telemetry, self.jitter = telemetry, jitter
        self.lanes: dict[int, Lane] = {}
        self.budget = Budget(settings.buffer_bytes)
        self.outages: list[Outage] = []
        window = settings.window
        fixed = BatchPlan(window.max_rows, window.max_wait_s, settings.callers)
        pace = Pace(fixed, settings.target_p99_s) if settings.target_p99_s is not None else None
        dedupe = Dedupe(is_on=settings.dedupe)

        self.intake = Intake(
            stream_from=settings.stream_from,
            allow=settings.allow,
            places=settings.places,
            clock=clock,
            telemetry=telemetry,
        )
        self.consume = Consume(source, self.lanes, clock)
        self.microbatch = Microbatch(Window(window), clock, telemetry, calls=settings.callers)
        expand = Expand(settings.rows, self.microbatch, offload)
        self.download = self._download(adapters, expand, dedupe, telemetry)
        self.calls = self._calls(adapters, telemetry)
        self.predict = Predict(
            self.calls, self.microbatch, fixed, pace, clock, most_bytes=window.max_bytes
        )
        reject = self._reject(adapters)
        self.publish = Publish(
            adapters.sink,
            reject,
            settings.labels,
            settings.partition_of,
            pace,
            dedupe,
            clock,
            telemetry,
            self._results(adapters, offload, telemetry),
        )
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
        on_stopped: Callable[[Lane], None],
    ) -> Lane:
        return Lane(
            partition,
            generation,
            start,
            budget=self.budget,
            make_tickets=self.intake.tickets,
            on_jobs=self.download.offer,
            on_stopped=on_stopped,
            max_objects=self.settings.in_flight_objects,
            line=self.settings.line,
            stream_share=_stream_share(self.settings),
        )

    def _download(
        self, adapters: Adapters, expand: Expand, dedupe: Dedupe, telemetry: Telemetry
    ) -> Download:
        settings, clock = self.settings, adapters.clock
        away = {
            store: self._outage(_service(store), clock, settings.patience_s)
            for store in settings.stores
        }
        reader = ObjectReader(
            adapters.objects,
            expand,
            self.microbatch,
            self.budget,
            clock,
            telemetry,
            away,
            dedupe,
            pin=settings.pin,
            object_bytes=settings.object_bytes,
            from_first_row=settings.results is not None,
            row_rules=_delivered_as(settings.results),
        )
        return Download(
            reader,
            self.microbatch,
            clock,
            telemetry,
            away,
            dedupe,
            self.jitter,
            wait_for_object_s=settings.wait_for_object_s,
        )

    def _calls(self, adapters: Adapters, telemetry: Telemetry) -> ModelCalls:
        settings, clock = self.settings, adapters.clock
        away = self._outage("model server", clock, settings.patience_s)
        return ModelCalls(
            adapters.model, settings.canary, settings.callers, clock, telemetry, away, self.jitter
        )

    def _reject(self, adapters: Adapters) -> Reject:
        settings = self.settings
        return Reject(
            adapters.sink,
            input_topic=settings.labels.input_topic,
            topic=settings.dead_letter_topic,
            partitions=settings.dead_letter_partitions,
            model=settings.labels.model,
            clock=adapters.clock,
        )

    def _results(
        self, adapters: Adapters, offload: Offload, telemetry: Telemetry
    ) -> ObjectResults | None:
        plan = self.settings.results
        if plan is None or adapters.results is None:
            return None
        return ObjectResults(adapters.results, plan, offload, telemetry)

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
