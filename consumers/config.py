"""Settings: TOML, overridden by `PENSTOCK_SECTION__KEY` variables.

Rule: every key is declared here with its default and where the number comes from; an unknown key is
an error that names the nearest valid one. Only `app.py` and the commands read settings; everything
else is handed plain values.
"""

import os
import re
import tomllib
from base64 import b64encode
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple, get_type_hints
from urllib.parse import unquote, urlsplit

import msgspec
from msgspec import Meta, Struct, field
from msgspec.structs import replace

from consumers.variables import check_key, choices, usage, variables

SECRET_KEYS = frozenset({"sasl_password", "key", "secret", "token"})
# Addresses may carry credentials: `http://user:password@host/?token=...`.
URL_KEYS = frozenset({"url", "endpoint_url", "management_url"})
MASK = "********"
# Options of other people's libraries are secret by their names.
_SECRET_OPTION = re.compile(r"pass|secret|token|key|cred|auth|sas", re.IGNORECASE)
AWS_ENDPOINTS = ("AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL")

Positive = Annotated[int, Meta(gt=0)]
NonNegative = Annotated[int, Meta(ge=0)]
MIB = 1 << 20


class Section(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Base of all sections: immutable, strict, keyword only."""


class Kafka(Section, frozen=True):
    bootstrap_servers: str = "localhost:9092"
    input_topic: str = "refs"
    # Several topics in one group, in place of `input_topic`.
    input_topics: Annotated[list[str], Meta(min_length=1)] | None = None
    input_pattern: Annotated[str, Meta(min_length=1)] | None = None
    group: str = "penstock"
    # Who reads and is the member of the group; aiokafka writes in any case.
    client: Literal["aiokafka", "confluent"] = "aiokafka"
    stream_from: str | None = None
    security_protocol: Literal["PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"] = "PLAINTEXT"
    sasl_mechanism: Literal["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"] | None = None
    sasl_username: str | None = None
    sasl_password: str | None = None
    ssl_cafile: str | None = None
    ssl_certfile: str | None = None
    ssl_keyfile: str | None = None
    client_rack: str | None = None
    dedupe: bool = False
    # How long a broker keeps a question for records while there are none; by default as suits
    # the client.
    fetch_wait_ms: Positive | None = None
    # A broker restarts, or a partition finds a new leader, in 10 to 60 s.
    timeout_ms: Positive = 120_000

    @property
    def inputs(self) -> list[str]:
        """The topics that are read, as far as the configuration names them."""
        if self.input_pattern is not None:
            return []
        return self.input_topics or [self.input_topic]

    @property
    def input_name(self) -> str:
        """What is read, for people."""
        return self.input_pattern or ", ".join(self.inputs)


class Access(Section, frozen=True):
    """The way to a store: what `[objects]` and each `[stores.NAME]` have in common."""

    client: Literal["obstore", "s3fs"] = "obstore"
    endpoint_url: str | None = None
    region: str | None = None
    key: str | None = None
    secret: str | None = None
    token: str | None = None
    profile: str | None = None
    anon: bool = False
    ssl_cafile: str | None = None
    addressing: Literal["auto", "path", "virtual"] = "auto"
    replicas: list[str] | None = None
    # Above 16 a store on the same network answers no faster.
    concurrency: Positive = 16


class Store(Access, frozen=True, kw_only=True):
    """A store beside `[objects]`."""

    url: str
    route: list[str] | None = None
    account: str | None = None
    key_file: str | None = None
    options: dict[str, Any] = field(default_factory=dict)


class Objects(Access, frozen=True):
    allow: list[str] | None = None
    pin: bool = True
    wait_for_object_ms: NonNegative = 0


class Rows(Section, frozen=True):
    format: str = "auto"
    text: Literal["line", "file"] = "line"
    header: Literal["auto", "yes", "no"] | bool = "auto"
    columns: list[str | int] | None = None
    keep: list[str] | None = None
    time: str | None = None
    delimiter: Literal["auto", "comma", "semicolon", "tab", "pipe"] = "auto"
    decimal: Literal[".", ","] = "."
    comment: Annotated[str, Meta(min_length=1)] | None = None
    missing: Literal["reject", "nan"] | float = "reject"
    dtype: Literal["float32"] = "float32"
    member: str | None = None
    on_bad_row: Literal["reject", "fail_object"] = "reject"
    # Width x height; none: a picture is a row as it is.
    image_size: str | None = None
    image_layout: Literal["nchw", "nhwc"] = "nchw"
    image_scale: str = "none"
    fps: Annotated[float, Meta(gt=0)] | None = None
    window_ms: Positive = 1_000
    hop_ms: Positive | None = None


class Window(Section, frozen=True):
    # 512 rows is the plateau of TorchServe's rows/s; 128 is the knee.
    max_rows: Positive = 512
    # Below TorchServe's default max_request_size of 6,553,500 bytes.
    max_bytes: Positive = 4 * MIB
    max_wait_ms: NonNegative = 10
    eager: bool = False
    fair: bool = True
    target_p99_ms: Positive | None = None


Protocol = Literal["torchserve", "oip", "oip-grpc", "http", "openai-embeddings"]
Preset = Literal[
    "kserve-v1", "tf-serving", "vertex", "mlflow", "sagemaker", "bentoml", "litserve", "ray-serve"
]


class Model(Section, frozen=True):
    url: str = "http://localhost:8080"
    name: str = "rows"
    version: str | None = None
    protocol: Protocol = "torchserve"
    # With oip: what the server's own description says, unless these do.
    inputs: list[str] | None = None
    outputs: list[str] | None = None
    binary: Literal["auto", "yes", "no"] = "auto"
    # With http: what the preset says, unless these do.
    preset: Preset | None = None
    path: str | None = None
    health: str | None = None
    template: str | None = None
    answers: str | None = None
    row_error: str | None = None
    # json, instances, float32, bytes, raw, arrow, and what packages add.
    request: str = "json"
    timeout_ms: Positive = 30_000
    # 2-4 requests in flight per TorchServe worker saturate it; more only add delay.
    max_in_flight: Positive = 4
    token: str | None = None
    token_file: str | None = None
    ssl_cafile: str | None = None
    canary: str | None = None
    # TorchServe's own convention when there is none: the port after that of `url`.
    management_url: str | None = None


class NamedModel(Model, frozen=True, kw_only=True):
    """One beside `model`. `served_as`: its name on its server, where that is another."""

    name: Annotated[str, Meta(min_length=1)]
    served_as: str | None = None
    window: Window | None = None


Percent = Annotated[float, Meta(ge=0, le=100)]


class Route(Section, frozen=True, kw_only=True):
    """Which models answer what matches all of its globs."""

    model: str | list[str]
    stream: str | None = None
    bucket: str | None = None
    key: str | None = None
    split: dict[str, Percent] = field(default_factory=dict)


class Output(Section, frozen=True):
    topic: str = "predictions"
    dlq_topic: str | None = None
    partitioning: Literal["same", "stream"] = "same"
    order: Literal["partition", "stream"] = "partition"
    markers: bool = True
    compression: Literal["none", "snappy", "zstd", "lz4", "gzip"] = "none"
    granularity: Literal["row", "block"] = "row"
    # About 150 kB of records; a consumer's default fetch is 1 MB.
    block_rows: Positive = 500
    # Where the answers of each object are written as one; none: they are records alone.
    objects: str | None = None
    records: Literal["rows", "objects", "both"] = "rows"

    @property
    def dead_letter_topic(self) -> str:
        return self.dlq_topic or f"{self.topic}.dlq"


class Delivery(Section, frozen=True):
    guarantee: Literal["at_least_once", "exactly_once"] = "at_least_once"
    commit_interval_ms: Positive = 500
    drain_ms: NonNegative = 15_000


class Limits(Section, frozen=True):
    buffer_bytes: Positive = 256 * MIB
    in_flight_objects: Positive = 64
    object_bytes: Positive | None = None
    expansion_ratio: Positive = 200
    expanded_bytes: Positive | None = None
    members: Positive = 100_000
    member_bytes: Positive | None = None
    row_bytes: Positive = 6_000_000
    # 500 x 500 numbers; taking a row apart costs some 80 bytes a cell, so 20 MB.
    columns: Positive = 250_000
    # Pillow's own bound: a quarter of a gigabyte at three bytes a pixel.
    pixels: Positive = 89_478_485
    # Above these a stream stops rather than empty its topic into the dead letters; 0: never.
    dlq_ratio: Annotated[float, Meta(ge=0, le=1)] = 0.5
    dlq_consecutive: NonNegative = 100
    # Containers that start together are all up within a minute.
    start_ms: Positive = 60_000
    # Twice the longest wait of ours that ends by itself: a store gets two minutes for an object,
    # Kafka for a batch.
    stall_ms: Positive = 300_000


class Scenes(Section, frozen=True):
    input_topic: str = "predictions"
    topic: str = "scenes"
    late_topic: str = "scenes.late"
    group: str = "penstock-scenes"
    engine: Literal["penstock", "faust"] = "penstock"
    site: str = "(?P<site>[^/]+)/(?P<member>.+)"
    members: Literal["learned"] | dict[str, list[str]] = "learned"
    anchor: str = "grid"
    # Cameras and sensors at 20 Hz; half of it, so that every time has a place on the grid.
    period_ms: Positive = 50
    tolerance_ms: NonNegative = 25
    offsets_ms: dict[str, int] = field(default_factory=dict)
    patience_ms: NonNegative = 100
    quorum: NonNegative = 0
    deadline_ms: Positive = 500
    # Half of the deadline is left for those whose clock is right.
    ahead_ms: NonNegative = 250
    late: Literal["topic", "amend", "drop"] = "topic"
    lease_ms: Positive = 10_000
    # At 20 Hz the deadline spans ten; the rest is for a backlog.
    max_open: Positive = 64
    max_members: Positive = 256
    inline: str | None = None
    fill: float | None = None


class Http(Section, frozen=True):
    host: str = "127.0.0.1"
    port: Annotated[int, Meta(ge=0, le=65_535)] = 8900
    token: str | None = None


class Log(Section, frozen=True):
    level: Literal["debug", "info", "warning", "error"] = "info"
    format: Literal["auto", "text", "json"] = "auto"


class Config(Section, frozen=True):
    """The whole of it; `load` is how to get one."""

    kafka: Kafka = field(default_factory=Kafka)
    objects: Objects = field(default_factory=Objects)
    stores: dict[str, Store] = field(default_factory=dict)
    rows: Rows = field(default_factory=Rows)
    window: Window = field(default_factory=Window)
    model: Model = field(default_factory=Model)
    output: Output = field(default_factory=Output)
    delivery: Delivery = field(default_factory=Delivery)
    limits: Limits = field(default_factory=Limits)
    scenes: Scenes = field(default_factory=Scenes)
    http: Http = field(default_factory=Http)
    log: Log = field(default_factory=Log)
    models: list[NamedModel] = field(default_factory=list)
    routes: list[Route] = field(default_factory=list)

    @property
    def topics(self) -> tuple[str, ...]:
        """The input topics that are named, the output and the dead-letter topic."""
        return *self.kafka.inputs, self.output.topic, self.output.dead_letter_topic

    def of_input(self, topic: str) -> "Config":
        """As if this were the only input."""
        kafka = msgspec.structs.replace(
            self.kafka, input_topic=topic, input_topics=None, input_pattern=None
        )
        return msgspec.structs.replace(self, kafka=kafka)

    def with_each_model(self) -> "dict[str, Config]":
        """As it is for each of `[[models]]`, by its name: the one is in `model`."""
        found: dict[str, Config] = {}
        for one in self.models:
            if one.name == self.model.name or one.name in found:
                raise usage(
                    f"two models are called {one.name!r}: give one another name, and say what its "
                    "server calls it by served_as"
                )
            kept = {name: getattr(one, name) for name in Model.__struct_fields__}
            model = Model(**(kept | {"name": one.served_as or one.name}))
            found[one.name] = replace(self, model=model, window=one.window or self.window)
        return found

    def masked(self) -> dict[str, Any]:
        """As nested dictionaries, secrets hidden: fit to print."""
        plain: dict[str, Any] = msgspec.to_builtins(self)
        for name, section in _sections(plain).items():
            if name.startswith("routes"):
                continue  # the `key` of a route is a glob
            for key in SECRET_KEYS & section.keys():
                if section[key] is not None:
                    section[key] = MASK
            for key in URL_KEYS & section.keys():
                if section[key] is not None:
                    section[key] = shown_url(section[key])
            options = section.get("options", {})
            options.update({key: MASK for key in options if _SECRET_OPTION.search(key)})
        return plain

    def secrets(self) -> set[str]:
        """What no line may show, in plain text and as an address writes it."""
        plain: dict[str, Any] = msgspec.to_builtins(self)
        found: set[str] = set()
        for name, section in _sections(plain).items():
            if name.startswith("routes"):
                continue
            found.update(section[key] for key in SECRET_KEYS & section.keys() if section[key])
            for key in URL_KEYS & section.keys():
                found |= url_secrets(section[key] or "")
            options = section.get("options", {})
            found.update(str(options[key]) for key in options if _SECRET_OPTION.search(key))
        return found

    def sections(self) -> dict[str, dict[str, Any]]:
        """Fit to print: every section by the name that a message gives it, `stores.NAME` too."""
        return _sections(self.masked())


# Sections of which there may be several, each with a name of its own: `[stores.NAME]`.
NAMED: dict[str, type[Section]] = {"stores": Store}
# Arrays of tables, `[[models]]`, which no variable sets.
TABLES: dict[str, type[Section]] = {"models": NamedModel, "routes": Route}
SECTIONS: dict[str, type[Section]] = {
    name: kind
    for name, kind in get_type_hints(Config).items()
    if name not in NAMED and name not in TABLES
}


def _sections(plain: dict[str, Any]) -> dict[str, dict[str, Any]]:
    found: dict[str, dict[str, Any]] = {}
    for section, keys in plain.items():
        if section in NAMED:
            found |= {f"{section}.{one}": keys[one] for one in keys}
        elif section in TABLES:
            found |= {f"{section}[{number}]": one for number, one in enumerate(keys, 1)}
        else:
            found[section] = keys
    return found


def shown_url(url: str) -> str:
    """The address without the credentials in it."""
    for secret in sorted(_credentials(url), key=len, reverse=True):
        url = url.replace(secret, MASK)
    return url


def url_secrets(url: str) -> set[str]:
    """The credentials in an address, as it writes them, as they are, and as a header has them."""
    written = _credentials(url)
    user_and_password = unquote(url.partition("://")[2].partition("/")[0].rpartition("@")[0])
    in_header = b64encode(user_and_password.encode()).decode()
    return (written | set(map(unquote, written)) | {in_header}) - {""}


def _credentials(url: str) -> set[str]:
    try:
        parts = urlsplit(url)
    except ValueError:
        return {url}
    user_and_password = parts.netloc.rpartition("@")[0]
    _, colon, password = user_and_password.partition(":")
    return {password if colon else user_and_password, parts.query} - {""}


class Resolved(NamedTuple):
    """A configuration, and where each key that is not a default comes from. `overridden` has the
    file's keys that a variable sets otherwise.
    """

    config: Config
    sources: Mapping[str, str]
    overridden: Mapping[str, str]


def load(path: Path | None = None, environ: Mapping[str, str] | None = None) -> Config:
    """Read `path` (if any), then the environment over it. Raises `Fatal` (exit 2) saying which
    key is wrong.
    """
    return resolve(path, environ).config


def resolve(path: Path | None = None, environ: Mapping[str, str] | None = None) -> Resolved:
    """As `load`, and where it all comes from."""
    tree = _read(path) if path else {}
    sources = {f"{name}.{key}": f"{path}" for name, keys in _sections(tree).items() for key in keys}
    overridden = {}
    environ = os.environ if environ is None else environ
    for name, section, key, value in variables(environ, SECTIONS, NAMED):
        keys = _table_of(tree, section)
        if key in keys and keys[key] != value:
            overridden[f"{section}.{key}"] = name
        keys[key] = value
        sources[f"{section}.{key}"] = name
    _take_aws_endpoint(tree, sources, environ)
    for section, kind in NAMED.items():
        for name, keys in tree.get(section, {}).items():
            try:
                msgspec.convert(keys, kind)
            except msgspec.ValidationError as error:
                raise usage(f"configuration: [{section}.{name}]: {error}") from None
    try:
        return Resolved(msgspec.convert(tree, Config), sources, overridden)
    except msgspec.ValidationError as error:
        raise usage(_explained(str(error), sources)) from None


def _table_of(tree: dict[str, Any], section: str) -> dict[str, Any]:
    """The keys of a section, or of `stores.NAME`, to be changed in place."""
    for name in section.split("."):
        tree = tree.setdefault(name, {})
    return tree


def _take_aws_endpoint(
    tree: dict[str, Any], sources: dict[str, str], environ: Mapping[str, str]
) -> None:
    """The address that every AWS client takes is taken here as well, where none is configured."""
    objects = tree.get("objects", {})
    name = next((name for name in AWS_ENDPOINTS if environ.get(name)), None)
    if name is not None and objects.get("endpoint_url") is None:
        tree["objects"] = {**objects, "endpoint_url": environ[name]}
        sources["objects.endpoint_url"] = name


def _explained(error: str, sources: Mapping[str, str]) -> str:
    """With the place where the value was written, and what it may be."""
    found = re.fullmatch(r"(.*) - at `\$\.(\w+)\.(\w+)(.*)`", error)
    if found is None or found[2] in TABLES:
        return f"configuration: {error}"
    what, section, key, _ = found.groups()
    allowed = choices(get_type_hints(SECTIONS[section])[key])
    which = f"; it is one of {', '.join(allowed)}" if allowed else ""
    return f"{sources[f'{section}.{key}']}: {section}.{key}: {what}{which}"


def _read(path: Path) -> dict[str, Any]:
    try:
        tree = tomllib.loads(path.read_text())
    except OSError as error:
        raise usage(f"configuration file {path}: {error.strerror}; correct --config") from None
    except (UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise usage(f"configuration file {path}: {error}") from None
    where = f"configuration file {path}"
    for section, keys in tree.items():
        if section in TABLES:
            _check_tables(section, keys, where)
            continue
        if section in SECTIONS or section in NAMED:
            _check_table(section, keys, where)
        if section in NAMED:
            for name, inner in keys.items():
                _check_table(f"{section}.{name}", inner, where)
                for key in inner:
                    check_key(section, key, NAMED, where=where)
            continue
        for key in keys if isinstance(keys, dict) else ("",):
            check_key(section, key, SECTIONS | NAMED, where=where)
    return tree


def _check_table(section: str, keys: Any, where: str) -> None:
    if not isinstance(keys, dict):
        raise usage(f"{where}: [{section}] must be a table")


def _check_tables(section: str, tables: Any, where: str) -> None:
    if not isinstance(tables, list):
        raise usage(f"{where}: write [[{section}]], there may be several")
    for table in tables:
        for key in table:
            check_key(section, key, TABLES, where=where)
