"""Translates the configuration into the settings of a whole pipeline, either of a worker or of a
call.

Rule: plain values, times in seconds; here it is decided what one setting means together with
another.
"""

import resource
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Final

from msgspec import structs

from penstock import config
from penstock.adapters.kafka.keyed_writer import hashed
from penstock.adapters.model_servers import request_forms
from penstock.adapters.stores.choice import places_of_caller
from penstock.adapters.stores.names import folder_of
from penstock.asking.model_calls import canary_of
from penstock.core.comparing.comparison import Agreement
from penstock.core.health.retries import GIVE_UP_S
from penstock.core.progress.line_stop import NO_LIMITS, LineLimits
from penstock.core.records.output_records import Labels, by_stream, same_partition
from penstock.core.routing.store_choice import DEFAULT, StoreChoice
from penstock.core.window.priorities import Priorities, StreamPriority, weights
from penstock.core.window.window import WindowLimits
from penstock.errors import usage
from penstock.messages.shadow import ModelId
from penstock.pipeline.settings import LaneLimits, ModelTerms, Settings, TimeLimits
from penstock.settings.inputs import (
    check_inputs,
    helping,
    near_of_topics,
    places_near,
    row_options,
    stream_from,
    time_from,
)
from penstock.settings.results import blocks, results_for_worker
from penstock.settings.routes import routes_of, shadow_of
from penstock.stages.consume import IntakeTerms
from penstock.stages.encode import PublishTerms
from penstock.stages.read_object import ObjectTerms
from penstock.stages.reject import LetterTerms
from penstock.stages.result_objects import ResultTerms
from penstock.stages.shadow import ShadowTerms, ShadowTopicTerms
from penstock.tracing import TraceNames, TraceTerms

# The commit interval of a call without Kafka. After its last answer, the call notices within this
# time that it is done.
CALL_INTERVAL_S = 0.02
# A call holds no partition that another process could take over, so it must not wait for ever: if a
# service is away for this long, the call ends.
CALL_PATIENCE_S = 60.0
# Nobody waits for single rows of a call. So on a busy machine, where the wait is not learned to be
# shorter, fewer requests are worth this much.
LEAST_CALL_WAIT_MS: Final = 30


def settings_for_worker(
    cfg: config.Config,
    model_version: str | None,
    versions: Mapping[str, str | None] | None = None,
    *,
    input_partitions: int,
    output_partitions: int,
    dead_letter_partitions: int,
) -> Settings:
    """The settings of a group member. `versions`: the version of each model but the default one."""
    check_inputs(cfg)
    is_same = cfg.output.partitioning == "same"
    labels = Labels(
        cfg.kafka.input_name,
        cfg.output.topic,
        cfg.model.name,
        model_version,
        cfg.output.markers,
        versions or {},
    )
    return replace(
        _settings(cfg, labels),
        intake=IntakeTerms(
            stream_from=stream_from(cfg.kafka.stream_from),
            time_from=time_from(cfg.kafka.time_from),
            allow=_allow(cfg),
            stream_bytes=cfg.limits.stream_bytes,
            places=places_near(cfg, cfg.region),
            near=near_of_topics(cfg),
        ),
        lane=_lane_limits(cfg, LineLimits(cfg.limits.dlq_ratio, cfg.limits.dlq_consecutive)),
        publish=PublishTerms(
            same_partition if is_same else by_stream(hashed(output_partitions)), blocks(cfg.output)
        ),
        letters=LetterTerms(cfg.output.dead_letter_topic, dead_letter_partitions),
        times=TimeLimits(
            commit_interval_s=cfg.delivery.commit_interval_ms / 1000,
            drain_s=cfg.delivery.drain_ms / 1000,
            broker_patience_s=cfg.kafka.timeout_ms / 1000,
            patience_s=None,
            stall_s=_stall_s(cfg),
        ),
        input_partitions=input_partitions,
        output_partitions=output_partitions if is_same else None,
        results=results_for_worker(cfg),
        helping=helping(cfg),
        models={
            name: _model_terms(model_cfg) for name, model_cfg in cfg.with_each_live_model().items()
        },
        routes=routes_of(cfg),
        shadow=_shadow(cfg, model_version),
        main=_main_terms(cfg),
        traces=_traces(cfg),
        samples=cfg.http.samples,
    )


def _allow(cfg: config.Config) -> list[str] | None:
    """`objects.allow`, checked. Raises `Fatal` if it names a store that is not configured."""
    for glob in cfg.objects.allow or ():
        store, is_named, _ = glob.rpartition("://")
        if is_named and store != DEFAULT and store not in cfg.stores:
            known = ", ".join([DEFAULT, *cfg.stores])
            raise usage(
                f"objects.allow: {glob!r} names the store {store!r}, which is not configured; "
                f"write bucket/prefix/ for any store, or one of {known} before ://"
            )
    return cfg.objects.allow


def settings_for_call(
    cfg: config.Config,
    model: str,
    model_version: str | None,
    *,
    results: ResultTerms | None,
    is_local: bool = False,
) -> Settings:
    """The settings of a call, which reads the objects that the caller names, without Kafka.
    `model`: the model's name in records. `results`: how to write the results that the caller asks
    for; the results in the configuration are only for workers. `is_local`: True if all objects are
    local files.
    """
    labels = Labels("predict", cfg.output.topic, model, model_version, cfg.output.markers)
    wait_ms = max(cfg.window.max_wait_ms, LEAST_CALL_WAIT_MS)
    cfg = structs.replace(cfg, window=structs.replace(cfg.window, max_wait_ms=wait_ms))
    common = _settings(cfg, labels)
    return replace(
        common,
        objects=replace(common.objects, hedged=()) if is_local else common.objects,
        intake=IntakeTerms(
            stream_from=stream_from(cfg.kafka.stream_from),
            time_from=time_from(cfg.kafka.time_from),
            places=StoreChoice(places_of_caller(cfg)),
        ),
        results=results,
    )


def most_open_files() -> int | None:
    """How many files, connections among them, this process may have open. None: no limit."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return None if soft == resource.RLIM_INFINITY else soft


def _settings(cfg: config.Config, labels: Labels) -> Settings:
    """The settings that a worker and a call have in common. All other settings have their values
    for a call: one partition, no dead letters, no regions, and one model that answers all objects.
    """
    files = most_open_files()
    return Settings(
        labels=labels,
        main=_model_terms(cfg),
        intake=IntakeTerms(),
        lane=_lane_limits(cfg, NO_LIMITS),
        objects=ObjectTerms(
            fetchers=cfg.objects.fetches_within(files),
            object_bytes=cfg.limits.object_bytes,
            inline_bytes=cfg.limits.inline_bytes,
            pin=cfg.objects.pin,
            wait_for_object_s=cfg.objects.wait_for_object_ms / 1000,
            more_fetchers={name: store.fetches_within(files) for name, store in cfg.stores.items()},
            begin_fetches={
                name: store.begin_fetches
                for name, store in ((DEFAULT, cfg.objects), *cfg.stores.items())
                if store.begin_fetches is not None
            },
            hedged=_hedged(cfg),
        ),
        publish=PublishTerms(same_partition),
        letters=LetterTerms(cfg.output.dead_letter_topic, partitions=1, are_logged=False),
        times=TimeLimits(
            commit_interval_s=CALL_INTERVAL_S,
            drain_s=cfg.delivery.drain_ms / 1000,
            broker_patience_s=cfg.kafka.timeout_ms / 1000,
            patience_s=CALL_PATIENCE_S,
            stall_s=None,
        ),
        buffer_bytes=cfg.limits.buffer_bytes,
        input_partitions=1,
        dedupe=cfg.kafka.dedupe,
    )


def _hedged(cfg: config.Config) -> list[str]:
    """The stores whose late reads are sent again. A folder is left out: it has no slow
    connections.
    """
    stores: dict[str, config.Access] = {DEFAULT: cfg.objects, **cfg.stores}
    folders = {name for name, store in cfg.stores.items() if folder_of(store.url) is not None}
    if folder_of(cfg.objects.endpoint_url) is not None:
        folders.add(DEFAULT)
    return [name for name, store in stores.items() if store.hedge and name not in folders]


def _lane_limits(cfg: config.Config, line: LineLimits) -> LaneLimits:
    return LaneLimits(cfg.limits.in_flight_objects, line, cfg.output.order == "stream")


def _shadow(cfg: config.Config, model_version: str | None) -> ShadowTerms | None:
    """The shadow's settings; None: there is no shadow. Raises `Fatal` if the shadow takes rows in
    another form than the live model.
    """
    shadow_and_other = shadow_of(cfg)
    if shadow_and_other is None:
        return None
    shadow, other = shadow_and_other
    ours, theirs = (request_forms.find(model.model.request).takes for model in (cfg, other))
    if ours != theirs:
        raise usage(
            f"[model.shadow]: {shadow.model} takes other rows than {cfg.model.name}: model.request "
            f"is {other.model.request!r} there, {cfg.model.request!r} here"
        )
    terms = _model_terms(other)
    pointers = tuple(shadow.pointers)
    live = ModelId(cfg.model.name, model_version)
    return ShadowTerms(
        ShadowTopicTerms(cfg.output.shadow_topic, live, shadow.model, shadow.tolerance, pointers),
        shadow.percent,
        Agreement(shadow.tolerance, pointers),
        rows=shadow.buffer_rows,
        nbytes=shadow.buffer_bytes,
        call_rows=terms.window.max_rows,
        callers=terms.begin_calls or terms.callers,
    )


def _traces(cfg: config.Config) -> TraceTerms | None:
    if cfg.traces.endpoint is None:
        return None
    names = TraceNames(cfg.kafka.group, cfg.output.topic, cfg.model.name)
    return TraceTerms(cfg.traces.sample, cfg.traces.slowest, names)


def _main_terms(cfg: config.Config) -> ModelTerms:
    """The default model's terms. Its shadow gets the same rows, and may have to be told more."""
    terms, shadowing = _model_terms(cfg), shadow_of(cfg)
    shadow = terms if shadowing is None else _model_terms(shadowing[1])
    return replace(terms, is_told_about=terms.is_told_about or shadow.is_told_about)


def _model_terms(cfg: config.Config) -> ModelTerms:
    form = request_forms.find(cfg.model.request)
    target_ms = cfg.window.target_p99_ms
    return ModelTerms(
        rows=row_options(cfg),
        window=_window_limits(cfg, is_single=form.single),
        target_p99_s=target_ms / 1000 or None,
        callers=cfg.model.most_calls,
        begin_calls=cfg.model.begin_calls,
        canary=canary_of(cfg.model.canary, form.takes),
        cost_per_hour=cfg.model.cost_per_hour,
        token_prices=(
            cfg.model.cost_per_million_read / 1e6,
            cfg.model.cost_per_million_written / 1e6,
        ),
        is_told_about=cfg.model.protocol == "openai-chat",
    )


def _window_limits(cfg: config.Config, *, is_single: bool) -> WindowLimits:
    settings = cfg.window
    return WindowLimits(
        max_rows=1 if is_single else settings.max_rows,
        max_bytes=settings.max_bytes,
        max_wait_s=settings.max_wait_ms / 1000,
        eager=settings.eager,
        fair=settings.fair,
        priorities=_priorities(cfg),
    )


def weights_of(cfg: config.Config) -> Callable[[str], int]:
    """For each stream its weight."""
    return weights(_priorities(cfg))


def _priorities(cfg: config.Config) -> Priorities | None:
    priorities = [
        (priority.stream, StreamPriority(priority.weight, priority.class_))
        for priority in cfg.priorities
    ]
    return Priorities(priorities) if priorities else None


def _stall_s(cfg: config.Config) -> float:
    """How long a lane may stand still before the watchdog acts: longer than the longest wait that
    is configured on purpose.
    """
    meant_ms = max(cfg.model.timeout_ms, cfg.objects.wait_for_object_ms)
    return cfg.limits.stall_ms / 1000 + max(meant_ms / 1000, GIVE_UP_S)
