"""Collects everything that is wrong in a configuration: in its file, and in the environment.

Rule: no file but the configuration is read. A wrong setting is noted and left out, then the others
are checked again, so that one run finds all. Contradictions of settings that are right alone are
found by pure checks, each a setting's path and a sentence whose end says how to mend it; those that
a worker refuses at its start are not checked twice. `tomllib` does not tell the line of a key, so a
valid file is cut into its statements, and each read alone.
"""

import fnmatch
import re
import tomllib
from collections.abc import Callable, Iterator, Mapping, Sequence
from copy import deepcopy
from functools import partial
from pathlib import Path as File
from typing import Any, Final, NamedTuple

from msgspec.structs import fields

from penstock import config
from penstock.adapters.kafka.identity.identity import check_login
from penstock.adapters.model_servers.protocols import open_model
from penstock.config.all_sections import TABLES
from penstock.config.loading import WrongSetting, resolved
from penstock.config.unknown_keys import unknown_keys
from penstock.config.variables import ENV_PREFIX, variable, variables
from penstock.errors import Fatal, usage
from penstock.scenes import settings as scenes
from penstock.settings.inputs import check_inputs, stream_from, time_from
from penstock.settings.results import results_for_worker
from penstock.settings.routes import each_route, shadow_of
from penstock.settings.worker import settings_for_worker

# TorchServe's default for max_request_size.
TORCHSERVE_BYTES = 6_553_500

# The place of a setting: the names of its tables, then its key. After the name of an array of
# tables comes the number of the table, counted from 1. An example is ("models", 2, "name").
Path = tuple[str | int, ...]


Said = tuple[Path, str]


def contradictions(cfg: config.Config, streams: Sequence[str]) -> Iterator[Said]:
    """`streams`: the names or globs of the existing streams; empty if they are not known."""
    yield from _topics(cfg)
    yield from _windows(cfg)
    yield from _unreachable(cfg.routes)
    yield from _unmatched("routes", [route.stream for route in cfg.routes], streams)
    yield from _unmatched("priorities", [priority.stream for priority in cfg.priorities], streams)
    yield from _sites(cfg.scenes, streams)
    if cfg.priorities and not cfg.window.fair:
        message = "[[priorities]] need a fair window; set window.fair to true, or leave them out"
        yield ("window", "fair"), message
    yield from _results(cfg)
    yield from _delivery(cfg)
    yield from _help(cfg)
    yield from _terms(cfg.kafka)
    for path, model in _models(cfg):
        if model.token and model.token_file:
            yield (*path, "token_file"), "token and token_file are both set; leave one of them out"
        if model.hedge and not model.replicas:
            message = "a late call is sent to another server, and there is none; set replicas, too"
            yield (*path, "hedge"), message


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
            message = f"{topic} is read as input and written: its records would go round for ever"
            yield ("output", key), f"{message}; give output.topic and the inputs names of their own"
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
            message = f"{window.max_wait_ms} is above target_p99_ms = {window.target_p99_ms}"
            how = "lower it, or raise the bound (0: none)"
            yield (*path, "max_wait_ms"), f"{message}, so the bound cannot hold; {how}"
        size = f"{window.max_bytes:,}"
        if model.protocol == "torchserve" and window.max_bytes > TORCHSERVE_BYTES:
            message = (
                f"{size} is above what TorchServe takes, {TORCHSERVE_BYTES:,} bytes; lower it, or "
                "raise max_request_size in its config.properties and lint with --ignore "
                "window.max_bytes"
            )
            yield (*path, "max_bytes"), message
        if window.max_bytes > cfg.limits.buffer_bytes:
            limit = f"limits.buffer_bytes = {cfg.limits.buffer_bytes:,}"
            message = f"{size} is above {limit}: no batch could fill; lower it, or raise the limit"
            yield (*path, "max_bytes"), message


def _unreachable(routes: Sequence[config.Route]) -> Iterator[Said]:
    for number, route in enumerate(routes, 1):
        for before, other in enumerate(routes[: number - 1], 1):
            if _covers(other, route):
                message = f"number {before} takes everything that it would take"
                yield ("routes", number), f"{message}; put it before that one, or leave it out"
                break


def _covers(route: config.Route, other: config.Route) -> bool:
    pairs = ((route.stream, other.stream), (route.bucket, other.bucket), (route.key, other.key))
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


def _unmatched(table: str, globs: Sequence[str | None], streams: Sequence[str]) -> Iterator[Said]:
    for number, glob in enumerate(globs, 1):
        if not streams or glob is None:
            continue
        if not any(
            fnmatch.fnmatchcase(stream, glob) or fnmatch.fnmatchcase(glob, stream)
            for stream in streams
        ):
            message = f"no stream matches {glob!r}; they are called like {streams[0]!r}"
            how = "correct the glob, or name them by kafka.stream_from"
            yield (table, number, "stream"), f"{message}: {how}"


def _sites(scenes: config.Scenes, streams: Sequence[str]) -> Iterator[Said]:
    """Of a configuration with scenes: a glob does not tell whether its streams have a site."""
    names = [stream for stream in streams if not set("*?[") & set(stream)]
    if scenes == config.Scenes() or not names:
        return
    try:
        is_fitting = any(map(re.compile(scenes.site).fullmatch, names))
    except re.error:
        return  # a scenes worker refuses this pattern at its start
    if not is_fitting:
        message = f"it fits no stream; they are called like {names[0]!r}"
        yield ("scenes", "site"), f"{message}: correct it, or name them by kafka.stream_from"


def _results(cfg: config.Config) -> Iterator[Said]:
    name = cfg.output.objects
    if cfg.results.nested == "columns" and name is not None and not name.endswith(".parquet"):
        message = "only Parquet results have typed columns; let output.objects end in .parquet"
        yield ("results", "nested"), message


def _delivery(cfg: config.Config) -> Iterator[Said]:
    if cfg.delivery.guarantee == "exactly_once" and not cfg.objects.pin:
        message = (
            'delivery.guarantee = "exactly_once" needs objects.pin: an object that is overwritten'
        )
        yield (
            ("objects", "pin"),
            f"{message} while it is read would be answered twice; set it to true",
        )


def _terms(kafka: config.Kafka) -> Iterator[Said]:
    standard = config.Kafka()
    for key in ("session_ms", "heartbeat_ms"):
        is_set = getattr(kafka, key) != getattr(standard, key)
        if kafka.group_protocol == "consumer" and is_set:
            message = 'has no effect with kafka.group_protocol = "consumer"'
            yield ("kafka", key), f"{message}: the broker sets it; leave it out"


def _help(cfg: config.Config) -> Iterator[Said]:
    session_ms = cfg.kafka.session_ms
    for name in cfg.helped:
        after_ms = cfg.regions[name].help_after_ms
        if after_ms <= session_ms:
            message = (
                f"{after_ms} is within kafka.session_ms = {session_ms}: a crash calls for help"
            )
            yield ("regions", name, "help_after_ms"), f"{message}; raise it above the session"


def _models(cfg: config.Config) -> Iterator[tuple[Path, config.Model]]:
    yield ("model",), cfg.model
    for number, model in enumerate(cfg.models, 1):
        yield ("models", number), model


def _windows_of(cfg: config.Config) -> Iterator[tuple[Path, config.Model, config.Window]]:
    yield ("window",), cfg.model, cfg.window
    for number, model in enumerate(cfg.models, 1):
        if model.window is not None:
            yield ("models", number, "window"), model, model.window


_NAMED = re.compile(
    r"\[\[(?P<table>\w+)\]\] number (?P<number>\d+)|\b(?P<section>[a-z]+)\.(?P<key>[a-z0-9_]+)"
)
# For each array of tables: the key that each of its tables must have.
_REQUIRED: Final = {
    name: key.name for name, kind in TABLES.items() for key in fields(kind) if key.required
}


class LintFinding(NamedTuple):
    """`place`: the file and the line, or the environment variable. `key`: the setting, such as
    `window.max_bytes`.
    """

    place: str
    line: int | None
    key: str
    said: str

    def __str__(self) -> str:
        return f"{self.place}: {self.said}"


class _Findings:
    def __init__(self, file: File | None, lines: Mapping[Path, int]) -> None:
        self._file = file
        self._lines = lines
        self.all: list[LintFinding] = []

    def note(self, path: Path, message: str) -> None:
        line = line_of(self._lines, path)
        place = "configuration" if self._file is None else f"{self._file}"
        for before in (f"configuration file {place}: ", f"{place}: ", "configuration: "):
            message = message.removeprefix(before)
        key = ".".join(map(str, path))
        finding = LintFinding(place if line is None else f"{place}:{line}", line, key, message)
        if finding not in self.all:
            self.all.append(finding)


def lint(
    file: File | None, environ: Mapping[str, str], streams: Sequence[str]
) -> list[LintFinding]:
    """Check the configuration. Returns all findings, in the order of the file's lines. `streams`:
    the names or globs of the existing streams. Raises `Fatal` if the file cannot be read.
    """
    text = _text(file)
    try:
        tree = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        line = re.search(r"at line (\d+)", str(error))
        number = int(line[1]) if line else None
        return [LintFinding(f"{file}:{number}" if number else f"{file}", number, "", f"{error}")]
    findings = _Findings(file, lines_of(text))
    for wrong in unknown_keys(tree):
        findings.note(wrong.path, wrong.said)
        _leave_out(tree, wrong.path, environ)
    known = _known(environ, findings)
    cfg = _loaded(tree, file, known, findings)
    if cfg is not None:
        for refusal in refused(cfg):
            findings.note(_named(str(refusal)), str(refusal))
        for path, message in contradictions(cfg, streams):
            findings.note(path, f"{_label(path)}: {message}")
    return sorted(findings.all, key=lambda finding: finding.line or 0)


def _text(file: File | None) -> str:
    try:
        return file.read_text(encoding="utf-8") if file is not None else ""
    except (OSError, UnicodeDecodeError) as error:
        raise usage(f"{file}: {error}; correct --config") from None


def _known(environ: Mapping[str, str], findings: _Findings) -> dict[str, str]:
    """Note the wrong variables in `findings`, and return the environment without them."""
    known = dict(environ)
    for name, text in environ.items():
        try:
            list(variables({name: text}))
        except Fatal as error:
            findings.all.append(LintFinding(name, None, name, str(error)))
            del known[name]
    return known


def _loaded(
    tree: dict[str, Any], file: File | None, environ: dict[str, str], findings: _Findings
) -> config.Config | None:
    """Note the wrong settings in `findings`, and return the configuration without them. None: a
    wrong setting could not be left out.
    """
    while True:
        try:
            return resolved(deepcopy(tree), file, environ).config
        except WrongSetting as error:
            findings.note(error.path, str(error))
            name = f"{ENV_PREFIX}{'__'.join(map(str, error.path))}".upper()
            if environ.pop(name, None) is None and not _leave_out(tree, error.path, environ):
                return None
        except Fatal as error:
            findings.note(_named(str(error)), str(error))
            return None


def _leave_out(tree: dict[str, Any], path: Path, environ: Mapping[str, str]) -> bool:
    """Remove the setting at this path. If a table of an array then lacks its required key, the key
    gets a stand-in value, so that the tables after this one keep their numbers. Returns False if
    the file does not have the setting.
    """
    required = _REQUIRED.get(str(path[0]), "")
    *tables, last = (*path, required) if isinstance(path[-1], int) else path
    keys: Any = tree
    for name in tables:
        keys = keys[name - 1] if isinstance(name, int) else keys.get(name, {})
    removed = keys.pop(last, None)
    if last != required or len(tables) != 2:
        return removed is not None
    keys[last] = f"number {tables[1]}" if required == "name" else _a_model(tree, environ)
    return bool(removed != keys[last])


def _a_model(tree: Mapping[str, Any], environ: Mapping[str, str]) -> str:
    """The name of the default model. It serves as a stand-in, because any route may name this
    model.
    """
    name = environ.get(variable("model", "name")) or tree.get("model", {}).get("name")
    return name if isinstance(name, str) else config.Model().name


def refused(cfg: config.Config) -> Iterator[Fatal]:
    """The errors with which `penstock run` or `penstock scenes` would end at its start."""
    checks: list[Callable[[], object]] = [
        lambda: check_inputs(cfg),
        lambda: check_login(cfg.kafka),
        lambda: stream_from(cfg.kafka.stream_from),
        lambda: time_from(cfg.kafka.time_from),
        lambda: results_for_worker(cfg),
        lambda: shadow_of(cfg),
        lambda: scenes.check(cfg.scenes),
        lambda: open_model(cfg),  # the model connects only at its first request
    ]
    try:
        checks += [partial(open_model, model_cfg) for model_cfg in cfg.with_each_model().values()]
        checks += each_route(cfg)
    except Fatal as error:
        yield error
        return
    is_refused = False
    for check in checks:
        try:
            check()
        except Fatal as error:
            is_refused = True
            yield error
    if not is_refused:
        try:
            settings_for_worker(
                cfg, None, input_partitions=1, output_partitions=1, dead_letter_partitions=1
            )
        except Fatal as error:
            yield error


def _label(path: Path) -> str:
    """The path as text, written as in other messages: `window.max_rows`, `[[routes]] number 2`."""
    table, *below = path
    if not below or not isinstance(below[0], int):
        return ".".join(map(str, path))
    key = f": {'.'.join(map(str, below[1:]))}" if below[1:] else ""
    return f"[[{table}]] number {below[0]}{key}"


def _named(text: str) -> Path:
    """The path of the first key or table that the text names."""
    match = _NAMED.search(text)
    if match is None:
        return ()
    if match["table"]:
        return (match["table"], int(match["number"]))
    return (match["section"], match["key"])


class _Statement(NamedTuple):
    """The header of a table, or a key with its value. `line`: where the statement begins."""

    line: int
    text: str
    tree: Mapping[str, Any]


def lines_of(text: str) -> dict[Path, int]:
    lines: dict[Path, int] = {}
    table: Path = ()
    counts: dict[Path, int] = {}
    for line, statement, tree in _statements(text):
        if not statement.startswith("["):
            for path in _keys(tree):
                _note(lines, table + path, line)
            continue
        names = _names(tree)
        if statement.startswith("[["):
            counts[names] = counts.get(names, 0) + 1
            table = (*names, counts[names])
        else:
            table = _inside(names, counts)
        _note(lines, table, line)
    return lines


def line_of(lines: Mapping[Path, int], path: Path) -> int | None:
    """The number of the line on which this path stands. If the file does not have the path: the
    line of the nearest table around it.
    """
    while path:
        if path in lines:
            return lines[path]
        path = path[:-1]
    return None


def _statements(text: str) -> Iterator[_Statement]:
    begin, pending = 1, ""
    for number, line in enumerate(text.splitlines(keepends=True), 1):
        begin, pending = (begin, pending + line) if pending else (number, line)
        try:
            tree = tomllib.loads(pending)
        except tomllib.TOMLDecodeError:
            continue  # the value goes on in the next line
        if tree:
            yield _Statement(begin, pending.lstrip(), tree)
        pending = ""


def _names(tree: Any) -> Path:
    """The names in the header of a table. `tree`: the result of reading the header alone by
    `tomllib`.
    """
    names: list[str | int] = []
    while tree:
        if isinstance(tree, list):
            tree = tree[0]
            continue
        (name,) = tree
        names.append(name)
        tree = tree[name]
    return tuple(names)


def _inside(names: Path, counts: Mapping[Path, int]) -> Path:
    """The path of a table. In an array of tables, a table such as `[routes.split]` belongs to the
    last `[[routes]]` before it.
    """
    parts: list[str | int] = []
    for depth, name in enumerate(names, 1):
        parts.append(name)
        if names[:depth] in counts:
            parts.append(counts[names[:depth]])
    return tuple(parts)


def _keys(tree: Mapping[str, Any]) -> Iterator[Path]:
    """The paths of all keys in a statement. There are several in a dotted key and in an inline
    table.
    """
    for name, value in tree.items():
        yield (name,)
        if isinstance(value, dict):
            yield from ((name, *below) for below in _keys(value))


def _note(lines: dict[Path, int], path: Path, line: int) -> None:
    for depth in range(1, len(path) + 1):
        lines.setdefault(path[:depth], line)
