"""Translates what is read, from where, and how it becomes rows: `[kafka]`, `[stores]`, `[regions]`,
`[rows]`, `[limits]`.

Rule: where keys depend on each other, this module decides what they mean together, and refuses
combinations that cannot work.
"""

import re

from penstock import config
from penstock.adapters.kafka.group.membership import instance_of
from penstock.adapters.model_servers import request_forms
from penstock.adapters.stores.choice import places_of
from penstock.core.health.other_groups import HelpTerms
from penstock.core.records.json_pointers import is_pointer
from penstock.core.routing.store_choice import StoreChoice
from penstock.errors import Fatal, usage
from penstock.formats.media.audio import AudioOptions
from penstock.formats.media.decoding import need_media
from penstock.formats.media.video import VideoOptions
from penstock.formats.pictures.image import need_pillow
from penstock.formats.pictures.pixels import PictureOptions, pixel_options
from penstock.formats.registry import check_options
from penstock.formats.runs import RowOptions
from penstock.formats.text.csv_dialect import CsvOptions
from penstock.formats.text.json_layout import JsonOptions
from penstock.formats.text.text_and_bytes import TextOptions

# At least this many heartbeats must fit into a session.
HEARTBEATS = 3


def check_inputs(cfg: config.Config) -> None:
    kafka = cfg.kafka
    if cfg.regions and cfg.region is None:
        raise usage(
            f"there are [regions.NAME], and a worker is in one of them: set region, one of "
            f"{', '.join(cfg.regions)}"
        )
    if kafka.input_topics and kafka.input_pattern:
        raise usage("kafka.input_topics and kafka.input_pattern: set one of them")
    try:
        re.compile(kafka.input_pattern or "")
    except re.error as error:
        raise _no_expression("kafka.input_pattern", kafka.input_pattern, error) from None
    if kafka.group_protocol == "consumer" and kafka.client != "confluent":
        raise usage(
            'kafka.group_protocol = "consumer" needs kafka.client = "confluent"; aiokafka speaks '
            '"classic" alone'
        )
    instance_of(kafka)
    if kafka.heartbeat_ms * HEARTBEATS > kafka.session_ms:
        raise usage(
            f"kafka.heartbeat_ms = {kafka.heartbeat_ms} is above a third of kafka.session_ms = "
            f"{kafka.session_ms}: after two lost heartbeats a healthy worker would be put out. "
            "Lower it, or raise the session"
        )
    if kafka.rekey is not None:
        _check_rekey(cfg, kafka.rekey)


def _check_rekey(cfg: config.Config, topic: str) -> None:
    pattern = cfg.kafka.input_pattern
    is_read = topic in cfg.kafka.inputs or (pattern and re.match(pattern, topic))
    if is_read or topic in (cfg.output.topic, cfg.output.dead_letter_topic):
        raise usage(
            f"kafka.rekey = {topic!r} is an input, output or dead-letter topic; name a topic of "
            "its own, between the input topics and the worker"
        )
    if cfg.regions:
        raise usage(
            "kafka.rekey and [regions.NAME]: run penstock rekey for each region, with a "
            "configuration without regions; in that of the workers name its topics in "
            'regions.NAME.topics, and set kafka.isolation = "read_committed"'
        )


def stream_from(pattern: str | None) -> str | None:
    """The pattern of stream names, checked. A wrong pattern raises `Fatal` here, at the start, and
    not at the first object.
    """
    return _with_group("stream_from", pattern, "stream")


def time_from(pattern: str | None) -> str | None:
    """The pattern of capture times, checked as that of stream names."""
    return _with_group("time_from", pattern, "time")


def _with_group(key: str, pattern: str | None, group: str) -> str | None:
    try:
        is_good = pattern is None or group in re.compile(pattern).groupindex
    except re.error as error:
        raise _no_expression(f"kafka.{key}", pattern, error) from None
    if not is_good:
        raise usage(f"kafka.{key} = {pattern!r} needs the group (?P<{group}>...)")
    return pattern


def _no_expression(key: str, pattern: str | None, error: re.error) -> Fatal:
    return usage(
        f"{key} = {pattern!r} is no regular expression ({error}); correct it as Python's `re` "
        "takes it"
    )


def places_near(cfg: config.Config, region: str | None) -> StoreChoice:
    """The choice among the configured stores. Stores near to `region` are preferred; None: no store
    is preferred.
    """
    near = cfg.regions[region].stores if region is not None else None
    return StoreChoice(places_of(cfg), near)


def near_of_topics(cfg: config.Config) -> dict[str, StoreChoice]:
    """For each topic of a region that may be helped: the choice of stores that prefers the region's
    own stores.
    """
    return {
        topic: places_near(cfg, name)
        for name in cfg.helped
        for topic in cfg.regions[name].topics or ()
    }


def helping(cfg: config.Config) -> dict[str, HelpTerms]:
    """For each region that may be helped: the terms that say when it is to be helped."""
    if cfg.helped and cfg.kafka.client == "confluent":
        raise usage(
            'regions are helped by kafka.client = "aiokafka" alone: use it, or leave '
            "regions.fallback out"
        )
    regions = {name: cfg.regions[name] for name in cfg.helped}
    return {
        name: HelpTerms(region.help_lag, region.help_after_ms / 1000)
        for name, region in regions.items()
    }


def row_options(cfg: config.Config) -> RowOptions:
    """The options of the formats. Raises `Fatal` if settings contradict each other."""
    header, missing = cfg.rows.header, cfg.rows.missing
    if cfg.rows.path is not None and not is_pointer(cfg.rows.path):
        raise usage(
            f"rows.path = {cfg.rows.path!r} is no JSON Pointer: begin it with a slash, as in "
            "/features"
        )
    form = request_forms.find(cfg.model.request).takes
    if cfg.rows.dtype == "uint8" and form != "bytes":
        raise usage(
            f"rows.dtype = 'uint8' needs rows of bytes, and model.request = {cfg.model.request!r} "
            "sends others: set it to bytes or raw; pixels (rows.image_size) are then bytes"
        )
    image = pixel_options(
        cfg.rows.image_size,
        cfg.rows.image_layout,
        cfg.rows.image_scale,
        form,
        cfg.limits.row_bytes,
    )
    if image is not None:
        need_pillow("rows.image_size")
    need_media(cfg.rows.format, form)
    options = RowOptions(
        form=form,
        format=cfg.rows.format,
        columns=cfg.rows.columns,
        keep=tuple(cfg.rows.keep or ()),
        time=cfg.rows.time,
        missing=None if missing == "reject" else float(missing),
        member=cfg.rows.member,
        fail_on_bad_row=cfg.rows.on_bad_row == "fail_object",
        row_bytes=cfg.limits.row_bytes,
        max_columns=cfg.limits.columns,
        rows=cfg.limits.rows,
        expansion_ratio=cfg.limits.expansion_ratio,
        expanded_bytes=cfg.limits.expanded_bytes,
        members=cfg.limits.members,
        member_bytes=cfg.limits.member_bytes,
        own=(
            CsvOptions(
                header if isinstance(header, str) else "yes" if header else "no",
                cfg.rows.delimiter,
                cfg.rows.decimal,
                cfg.rows.comment,
                cfg.rows.quote,
                cfg.rows.escape,
            ),
            TextOptions(cfg.rows.text),
            JsonOptions(cfg.rows.path),
            PictureOptions(cfg.limits.pixels, image, draft=cfg.rows.image_draft),
            VideoOptions(cfg.rows.fps),
            AudioOptions(cfg.rows.window_ms, cfg.rows.hop_ms),
        ),
    )
    check_options(options, cfg.model.request)
    return options
