"""The sections and their keys, each with its default and where the number comes from.

Rule: values only; what follows from them is decided by `settings.py`. Those of models are in
`model_sections`. Owner: `Config`.
"""

from typing import Annotated, Any, Literal

from msgspec import Meta, Struct, field

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


class Place(Section, frozen=True):
    """What stands above all sections."""

    region: str | None = None


class Region(Section, frozen=True):
    """What is near to the workers of a region. None: what the other sections say."""

    topics: Annotated[list[str], Meta(min_length=1)] | None = None
    stores: Annotated[list[str], Meta(min_length=1)] | None = None
    models: Annotated[list[str], Meta(min_length=1)] | None = None
    # Regions that this one helps, and whose model servers it asks when its own are away.
    fallback: list[str] = field(default_factory=list)
    # A second of 1,000 references/s: more than a region that is well ever has for long.
    help_lag: Positive = 1_000
    # Above the 8 s in which a group notices a dead member, so that a restart calls nobody.
    help_after_ms: Positive = 10_000


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
    target_p99_ms: NonNegative = 50


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
    block_form: Literal["json", "arrow"] = "json"
    # Where the answers of each object are written as one; none: they are records alone.
    objects: str | None = None
    records: Literal["rows", "objects", "both"] = "rows"

    @property
    def dead_letter_topic(self) -> str:
        return self.dlq_topic or f"{self.topic}.dlq"

    @property
    def shadow_topic(self) -> str:
        return f"{self.topic}.shadow"


class Delivery(Section, frozen=True):
    guarantee: Literal["at_least_once", "exactly_once"] = "at_least_once"
    commit_interval_ms: Positive = 500
    drain_ms: NonNegative = 15_000


class Limits(Section, frozen=True):
    # Less than a few chunks of what is being read would let nothing through.
    buffer_bytes: Annotated[int, Meta(ge=MIB)] = 256 * MIB
    in_flight_objects: Positive = 64
    object_bytes: Positive | None = None
    expansion_ratio: Positive = 200
    expanded_bytes: Positive | None = None
    # A table may hold a row in less than a bit: of these it takes seconds.
    rows: Positive = 100_000_000
    members: Positive = 100_000
    member_bytes: Positive | None = None
    row_bytes: Positive = 6_000_000
    # 500 x 500 numbers; taking a row apart costs some 80 bytes a cell, so 20 MB.
    columns: Positive = 250_000
    # Pillow's own bound: a quarter of a gigabyte at three bytes a pixel.
    pixels: Positive = 89_478_485
    # Processes that decode; None: as many as there are cores, two at least and four at most.
    decoders: Positive | None = None
    # The slowest that is known, video of still scenes, takes half of it.
    decode_ms_per_mib: Positive = 4_000
    # 8 ms of the event loop at most, in turns.
    inline_bytes: Positive = 256 << 10
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
    model: str | None = None
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
    # Half of the deadline is left for members whose clock is right.
    ahead_ms: NonNegative = 250
    late: Literal["topic", "amend", "drop"] = "topic"
    lease_ms: Positive = 10_000
    # As long as Kafka keeps records by default: what is older is not read again.
    forget_ms: Positive = 604_800_000
    # At 20 Hz the deadline spans ten; the rest is for a backlog.
    max_open: Positive = 64
    max_members: Positive = 256
    inline: str | None = None
    fill: float | None = None


class Http(Section, frozen=True):
    host: str = "127.0.0.1"
    port: Annotated[int, Meta(ge=0, le=65_535)] = 8900
    token: str | None = None
    hosts: list[str] | None = None


class Log(Section, frozen=True):
    level: Literal["debug", "info", "warning", "error"] = "info"
    format: Literal["auto", "text", "json"] = "auto"
