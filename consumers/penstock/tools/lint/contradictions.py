"""Finds settings that contradict each other, although each of them alone is right.

Rule: everything here is pure. Each check yields the path of a setting and a sentence, whose end
says how to mend the setting. Contradictions that a worker refuses at its start are not checked
here. Owner: `penstock lint`.
"""

import fnmatch
import re
from collections.abc import Iterator, Sequence

from penstock import config
from penstock.tools.lint.toml_lines import Path

# TorchServe's default for max_request_size.
TORCHSERVE_BYTES = 6_553_500

Said = tuple[Path, str]


def contradictions(cfg: config.Config, streams: Sequence[str]) -> Iterator[Said]:
    """`streams`: the names or globs of the existing streams; empty if they are not known."""
    yield from _topics(cfg)
    yield from _windows(cfg)
    yield from _unreachable(cfg.routes)
    yield from _unmatched(cfg.routes, streams)
    yield from _results(cfg)
    yield from _delivery(cfg)
    yield from _help(cfg)
    yield from _terms(cfg.kafka)
    for path, model in _models(cfg):
        if model.token and model.token_file:
            yield (*path, "token_file"), "token and token_file are both set; leave one of them out"
        if model.hedge and not model.replicas:
            said = "a late call is sent to another server, and there is none; set replicas, too"
            yield (*path, "hedge"), said


def _topics(cfg: config.Config) -> Iterator[Said]:
    """No topic may be both read and written. Otherwise the worker would answer its own answers, for
    ever.
    """
    output, shadow = cfg.output, cfg.model.shadow is not None
    written = {
        "topic": output.topic,
        "dlq_topic": output.dead_letter_topic,
        **({"shadow": output.shadow_topic} if shadow else {}),
    }
    for key, topic in written.items():
        if _is_read(cfg, topic):
            said = f"{topic} is read as input and written: its records would go round for ever"
            yield ("output", key), f"{said}; give output.topic and the inputs names of their own"
    if output.dead_letter_topic == output.topic:
        yield ("output", "dlq_topic"), "dead letters would be among the answers; name another topic"


def _is_read(cfg: config.Config, topic: str) -> bool:
    pattern = cfg.kafka.input_pattern
    if not pattern:
        return topic in cfg.all_inputs
    try:
        return re.match(pattern, topic) is not None
    except re.error:
        return False  # a worker refuses this pattern at its start


def _windows(cfg: config.Config) -> Iterator[Said]:
    for path, model, window in _windows_of(cfg):
        if window.max_wait_ms > window.target_p99_ms > 0:
            said = f"{window.max_wait_ms} is above target_p99_ms = {window.target_p99_ms}"
            how = "lower it, or raise the bound (0: none)"
            yield (*path, "max_wait_ms"), f"{said}, so the bound cannot hold; {how}"
        size = f"{window.max_bytes:,}"
        if model.protocol == "torchserve" and window.max_bytes > TORCHSERVE_BYTES:
            said = (
                f"{size} is above what TorchServe takes, {TORCHSERVE_BYTES:,} bytes; lower it, or "
                "raise max_request_size in its config.properties and lint with --ignore "
                "window.max_bytes"
            )
            yield (*path, "max_bytes"), said
        if window.max_bytes > cfg.limits.buffer_bytes:
            limit = f"limits.buffer_bytes = {cfg.limits.buffer_bytes:,}"
            said = f"{size} is above {limit}: no batch could fill; lower it, or raise the limit"
            yield (*path, "max_bytes"), said


def _unreachable(routes: Sequence[config.Route]) -> Iterator[Said]:
    for number, route in enumerate(routes, 1):
        for before, other in enumerate(routes[: number - 1], 1):
            if _covers(other, route):
                said = f"number {before} takes everything that it would take"
                yield ("routes", number), f"{said}; put it before that one, or leave it out"
                break


def _covers(one: config.Route, other: config.Route) -> bool:
    pairs = ((one.stream, other.stream), (one.bucket, other.bucket), (one.key, other.key))
    return all(_is_wider(glob, narrower) for glob, narrower in pairs)


def _is_wider(glob: str | None, narrower: str | None) -> bool:
    """True if the first glob surely matches everything that the second one matches. For example,
    `a/*` is wider than `a/b` and `a/b*`. A `*` matches any characters, including slashes.
    """
    if glob is None or glob.strip("*") == "" or glob == narrower:
        return True
    if narrower is None or not glob.endswith("*") or set("*?[") & set(glob[:-1]):
        return False
    return narrower.startswith(glob[:-1])


def _unmatched(routes: Sequence[config.Route], streams: Sequence[str]) -> Iterator[Said]:
    for number, route in enumerate(routes, 1):
        glob = route.stream
        if not streams or glob is None:
            continue
        if not any(
            fnmatch.fnmatchcase(one, glob) or fnmatch.fnmatchcase(glob, one) for one in streams
        ):
            said = f"no stream matches {glob!r}; they are called like {streams[0]!r}"
            how = "correct the glob, or name them by kafka.stream_from"
            yield ("routes", number, "stream"), f"{said}: {how}"


def _results(cfg: config.Config) -> Iterator[Said]:
    name = cfg.output.objects
    if cfg.results.nested == "columns" and name is not None and not name.endswith(".parquet"):
        said = "only Parquet results have typed columns; let output.objects end in .parquet"
        yield ("results", "nested"), said


def _delivery(cfg: config.Config) -> Iterator[Said]:
    if cfg.delivery.guarantee == "exactly_once" and not cfg.objects.pin:
        said = (
            'delivery.guarantee = "exactly_once" needs objects.pin: an object that is overwritten'
        )
        yield ("objects", "pin"), f"{said} while it is read would be answered twice; set it to true"


def _terms(kafka: config.Kafka) -> Iterator[Said]:
    standard = config.Kafka()
    for key in ("session_ms", "heartbeat_ms"):
        is_set = getattr(kafka, key) != getattr(standard, key)
        if kafka.group_protocol == "consumer" and is_set:
            said = 'has no effect with kafka.group_protocol = "consumer"'
            yield ("kafka", key), f"{said}: the broker sets it; leave it out"


def _help(cfg: config.Config) -> Iterator[Said]:
    session_ms = cfg.kafka.session_ms
    for name in cfg.helped:
        after_ms = cfg.regions[name].help_after_ms
        if after_ms <= session_ms:
            said = f"{after_ms} is within kafka.session_ms = {session_ms}: a crash calls for help"
            yield ("regions", name, "help_after_ms"), f"{said}; raise it above the session"


def _models(cfg: config.Config) -> Iterator[tuple[Path, config.Model]]:
    yield ("model",), cfg.model
    for number, one in enumerate(cfg.models, 1):
        yield ("models", number), one


def _windows_of(cfg: config.Config) -> Iterator[tuple[Path, config.Model, config.Window]]:
    yield ("window",), cfg.model, cfg.window
    for number, one in enumerate(cfg.models, 1):
        if one.window is not None:
            yield ("models", number, "window"), one, one.window
