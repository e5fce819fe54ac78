"""From the configuration to what the parts need: the one translator.

Rule: lane, stages, services and formats get plain values in seconds and never see the
configuration; what one setting means together with another is decided here. Owner: whatever starts
a pipeline, the worker or the library call.
"""

import re
from collections.abc import Callable, Mapping
from functools import partial

from consumers import config, requests
from consumers.adapters.kafka_partitioner import hashed
from consumers.adapters.stores import places_of, places_of_caller
from consumers.core.agreement import Agreement
from consumers.core.blocks import Ticket
from consumers.core.bundles import Blocks
from consumers.core.line_stop import NO_LIMITS, LineLimits
from consumers.core.places import Places
from consumers.core.records import Labels, same_partition
from consumers.core.regions import HelpTerms
from consumers.core.result_names import ResultNames
from consumers.core.routes import Routes
from consumers.core.window import WindowLimits
from consumers.encodings import registry as encodings
from consumers.errors import EXIT_USAGE, Fatal
from consumers.routing import routes_of, shadow_of
from consumers.row_settings import row_options
from consumers.services.canary import canary_of
from consumers.stages.download import GIVE_UP_S
from consumers.stages.publish_object import ResultPlan
from consumers.stages.shadow import ShadowPlan
from consumers.stages.shadow_topic import Terms
from consumers.track import ModelTerms
from consumers.wiring import Settings
from schemas.shadow import ModelId

# Without Kafka: how soon the end is noticed after the last answer.
CALL_INTERVAL_S = 0.02
# There is no partition to keep then: a service that is away for so long ends the call.
CALL_PATIENCE_S = 60.0


def for_worker(
    cfg: config.Config,
    model_version: str | None,
    versions: Mapping[str, str | None] | None = None,
    *,
    input_partitions: int,
    output_partitions: int,
    dead_letter_partitions: int,
) -> Settings:
    """For a member of the consumer group. `versions` of the models beside the default one."""
    _check_inputs(cfg)
    is_same = cfg.output.partitioning == "same"
    return _settings(
        cfg,
        Labels(
            cfg.kafka.input_name,
            cfg.output.topic,
            cfg.model.name,
            model_version,
            cfg.output.markers,
            versions or {},
        ),
        partition_of=same_partition if is_same else _by_stream(output_partitions),
        dead_letter_partitions=dead_letter_partitions,
        commit_interval_s=cfg.delivery.commit_interval_ms / 1000,
        line=LineLimits(cfg.limits.dlq_ratio, cfg.limits.dlq_consecutive),
        input_partitions=input_partitions,
        output_partitions=output_partitions if is_same else None,
        patience_s=None,
        stall_s=_stall_s(cfg),
        allow=cfg.objects.allow,
        blocks=_blocks(cfg.output),
        results=_results(cfg),
        places=_places(cfg, cfg.region),
        near={
            topic: _places(cfg, name)
            for name in cfg.helped
            for topic in cfg.regions[name].topics or ()
        },
        helping=_helping(cfg),
        models={name: _terms(one) for name, one in cfg.with_each_live_model().items()},
        routes=routes_of(cfg),
        shadow=_shadow(cfg, model_version),
    )


def _shadow(cfg: config.Config, model_version: str | None) -> ShadowPlan | None:
    """Raises `Fatal` for a shadow that cannot be asked what the model is."""
    found = shadow_of(cfg)
    if found is None:
        return None
    shadow, other = found
    ours, theirs = (requests.find(one.model.request).takes for one in (cfg, other))
    if ours != theirs:
        raise Fatal(
            f"[model.shadow]: {shadow.model} takes other rows than {cfg.model.name}: model.request "
            f"is {other.model.request!r} there, {cfg.model.request!r} here",
            exit_code=EXIT_USAGE,
        )
    terms = _terms(other)
    pointers = tuple(shadow.pointers)
    live = ModelId(cfg.model.name, model_version)
    return ShadowPlan(
        Terms(cfg.output.shadow_topic, live, shadow.model, shadow.tolerance, pointers),
        shadow.percent,
        Agreement(shadow.tolerance, pointers),
        rows=shadow.buffer_rows,
        nbytes=shadow.buffer_bytes,
        call_rows=terms.window.max_rows,
        callers=terms.callers,
    )


def _places(cfg: config.Config, region: str | None) -> Places:
    """What is near to a region comes first; None: to nobody."""
    near = cfg.regions[region].stores if region is not None else None
    return Places(places_of(cfg), near)


def _helping(cfg: config.Config) -> dict[str, HelpTerms]:
    """When it is to be helped is a region's own to say."""
    if cfg.helped and cfg.kafka.client == "confluent":
        raise Fatal(
            'kafka.client = "confluent" reads one topic, and regions are helped with theirs: '
            'leave regions.fallback out, or use "aiokafka"',
            exit_code=EXIT_USAGE,
        )
    found = {name: cfg.regions[name] for name in cfg.helped}
    return {
        name: HelpTerms(region.help_lag, region.help_after_ms / 1000)
        for name, region in found.items()
    }


def _check_inputs(cfg: config.Config) -> None:
    kafka, template = cfg.kafka, cfg.output.objects
    if cfg.regions and cfg.region is None:
        raise Fatal(
            f"there are [regions.NAME], and a worker is in one of them: set region, one of "
            f"{', '.join(cfg.regions)}",
            exit_code=EXIT_USAGE,
        )
    if kafka.input_topics and kafka.input_pattern:
        raise Fatal(
            "kafka.input_topics and kafka.input_pattern: set one of them", exit_code=EXIT_USAGE
        )
    try:
        re.compile(kafka.input_pattern or "")
    except re.error as error:
        raise _no_expression("kafka.input_pattern", kafka.input_pattern, error) from None
    is_one = len(cfg.all_inputs) == 1
    if kafka.client == "confluent" and len(kafka.inputs) != 1:
        raise Fatal(
            'kafka.client = "confluent" reads one topic; several are read by "aiokafka"',
            exit_code=EXIT_USAGE,
        )
    if template and not is_one and not ("{key}" in template or "{topic}" in template):
        raise Fatal(
            f"output.objects: {template!r} gives records of several topics one name; put in "
            "{topic} or {key}",
            exit_code=EXIT_USAGE,
        )


def for_call(
    cfg: config.Config, model: str, model_version: str | None, *, results: ResultPlan | None
) -> Settings:
    """For the objects that a caller names, without Kafka: one partition, and no letters. `model` is
    what records call it. `results` are the caller's to ask for, too: what a worker writes by this
    configuration is none of them.
    """
    return _settings(
        cfg,
        Labels("predict", cfg.output.topic, model, model_version, cfg.output.markers),
        partition_of=same_partition,
        dead_letter_partitions=1,
        commit_interval_s=CALL_INTERVAL_S,
        line=NO_LIMITS,
        input_partitions=1,
        output_partitions=None,
        patience_s=CALL_PATIENCE_S,
        stall_s=None,
        allow=None,
        results=results,
        places=Places(places_of_caller(cfg)),
    )


def _settings(
    cfg: config.Config,
    labels: Labels,
    *,
    partition_of: Callable[[Ticket], int],
    dead_letter_partitions: int,
    commit_interval_s: float,
    line: LineLimits,
    input_partitions: int,
    output_partitions: int | None,
    patience_s: float | None,
    stall_s: float | None,
    allow: list[str] | None,
    results: ResultPlan | None,
    places: Places,
    near: Mapping[str, Places] | None = None,
    helping: Mapping[str, HelpTerms] | None = None,
    blocks: Blocks | None = None,
    models: Mapping[str, ModelTerms] | None = None,
    routes: Routes | None = None,
    shadow: ShadowPlan | None = None,
) -> Settings:
    """Without `models` and `routes` the default model answers all."""
    main = _terms(cfg)
    return Settings(
        labels=labels,
        partition_of=partition_of,
        dead_letter_topic=cfg.output.dead_letter_topic,
        dead_letter_partitions=dead_letter_partitions,
        rows=main.rows,
        window=main.window,
        target_p99_s=main.target_p99_s,
        fetchers=cfg.objects.concurrency,
        callers=main.callers,
        buffer_bytes=cfg.limits.buffer_bytes,
        in_flight_objects=cfg.limits.in_flight_objects,
        object_bytes=cfg.limits.object_bytes,
        pin=cfg.objects.pin,
        wait_for_object_s=cfg.objects.wait_for_object_ms / 1000,
        commit_interval_s=commit_interval_s,
        drain_s=cfg.delivery.drain_ms / 1000,
        patience_s=patience_s,
        line=line,
        input_partitions=input_partitions,
        output_partitions=output_partitions,
        order_by_stream=cfg.output.order == "stream",
        canary=main.canary,
        dedupe=cfg.kafka.dedupe,
        broker_patience_s=cfg.kafka.timeout_ms / 1000,
        stall_s=stall_s,
        stream_from=_stream_from(cfg.kafka.stream_from),
        allow=allow,
        places=places,
        near=near or {},
        helping=helping or {},
        more_fetchers={name: store.concurrency for name, store in cfg.stores.items()},
        results=results,
        blocks=blocks,
        models=models or {},
        routes=routes,
        shadow=shadow,
    )


def results_for_call(template: str, model: str, *, is_for_one: bool) -> ResultPlan:
    """One record for each object. Raises `Fatal`."""
    names = partial(ResultNames, template, model, is_for_one=is_for_one)
    return _plan(names, "--output", "objects")


def _results(cfg: config.Config) -> ResultPlan | None:
    """Raises `Fatal` here, at the start: the first result would be too late."""
    output = cfg.output
    if output.objects is None:
        if output.records == "rows":
            return None
        raise Fatal(
            f'output.records = "{output.records}" needs output.objects: where they are written',
            exit_code=EXIT_USAGE,
        )
    # Routes change without a restart, so what they say today is not asked.
    names = partial(
        ResultNames, output.objects, cfg.model.name, are_several=bool(cfg.with_each_live_model())
    )
    return _plan(names, "output.objects", output.records)


def _blocks(output: config.Output) -> Blocks | None:
    if output.granularity == "row":
        return None
    return Blocks(output.block_rows, output.block_form)


def _plan(make: Callable[[], ResultNames], key: str, records: str) -> ResultPlan:
    try:
        names = make()
    except ValueError as error:
        raise Fatal(f"{key}: {error}", exit_code=EXIT_USAGE) from None
    return ResultPlan(
        names,
        encodings.find(names.format),
        of_rows=records != "objects",
        of_objects=records != "rows",
    )


def _terms(cfg: config.Config) -> ModelTerms:
    """Of the model in `cfg.model`."""
    form = requests.find(cfg.model.request)
    target_ms = cfg.window.target_p99_ms
    return ModelTerms(
        rows=row_options(cfg),
        window=_window(cfg.window, is_single=form.single),
        target_p99_s=target_ms / 1000 if target_ms else None,
        callers=cfg.model.max_in_flight,
        canary=canary_of(cfg.model.canary, form.takes),
    )


def _window(settings: config.Window, *, is_single: bool) -> WindowLimits:
    return WindowLimits(
        max_rows=1 if is_single else settings.max_rows,
        max_bytes=settings.max_bytes,
        max_wait_s=settings.max_wait_ms / 1000,
        eager=settings.eager,
        fair=settings.fair,
    )


def _stall_s(cfg: config.Config) -> float:
    """The longest waits that are meant come first."""
    meant_ms = max(cfg.model.timeout_ms, cfg.objects.wait_for_object_ms)
    return cfg.limits.stall_ms / 1000 + max(meant_ms / 1000, GIVE_UP_S)


def _stream_from(pattern: str | None) -> str | None:
    """Raises `Fatal` here, at the start: the first object would be too late."""
    try:
        is_good = pattern is None or "stream" in re.compile(pattern).groupindex
    except re.error as error:
        raise _no_expression("kafka.stream_from", pattern, error) from None
    if not is_good:
        said = f"kafka.stream_from = {pattern!r} needs the group (?P<stream>...)"
        raise Fatal(said, exit_code=EXIT_USAGE)
    return pattern


def _no_expression(key: str, pattern: str | None, error: re.error) -> Fatal:
    return Fatal(
        f"{key} = {pattern!r} is no regular expression ({error}); correct it as Python's `re` "
        "takes it",
        exit_code=EXIT_USAGE,
    )


def _by_stream(output_partitions: int) -> Callable[[Ticket], int]:
    of_stream = hashed(output_partitions)

    def of_ticket(ticket: Ticket) -> int:
        return of_stream(ticket.stream)

    return of_ticket
