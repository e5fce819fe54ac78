"""The sections and their keys, with their defaults and the reasons for the numbers; values only."""

from typing import Annotated, Literal

from msgspec import Meta, Struct, field

from penstock.config.marks import Address, File, Options, Secret

Positive = Annotated[int, Meta(gt=0)]
NonNegative = Annotated[int, Meta(ge=0)]
Isolation = Literal["read_uncommitted", "read_committed"]
MIB = 1 << 20
# A site of scenes takes some 5 kB, so these take 250 MB.
SITES = 50_000
# Four times Kafka's largest record by default, which a row's answer becomes.
ANSWER_BYTES_PER_ROW = 4 * MIB
BUFFER_BYTES = 256 * MIB


class Section(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Base of all sections: immutable, strict, keyword only."""


class OAuth(Section, frozen=True):
    """Where the tokens of `kafka.sasl_mechanism = "OAUTHBEARER"` come from."""

    provider: Literal["oidc", "aws-msk-iam", "azure", "gcp", "file"]
    # The token endpoint of "oidc", and how it knows us: by a secret, or by a signature with a
    # private key (RFC 7523).
    token_url: Address | None = None
    client_id: str | None = None
    client_secret: Secret | None = None
    client_key_file: File | None = None
    ssl_cafile: File | None = None
    scope: str | None = None
    audience: str | None = None
    # What the broker is told beside the token, such as `logicalCluster` of Confluent Cloud.
    extensions: dict[str, str] = field(default_factory=dict)
    # The file of "file", which somebody else writes anew before the token ends.
    token_file: File | None = None
    # The region of "aws-msk-iam". None: the one in the brokers' names.
    region: str | None = None


class Kafka(Section, frozen=True):
    bootstrap_servers: Annotated[str, Meta(min_length=1)] = "localhost:9092"
    input_topic: str = "refs"
    # Several topics, which one group reads, instead of `input_topic`.
    input_topics: Annotated[list[str], Meta(min_length=1)] | None = None
    input_pattern: Annotated[str, Meta(min_length=1)] | None = None
    group: str = "penstock"
    # A topic of ours between the input topics and the worker. Its messages are keyed by stream.
    rekey: Annotated[str, Meta(min_length=1)] | None = None
    # A message waits at most this long for earlier messages of other partitions. A running broker
    # sends earlier messages within milliseconds.
    rekey_wait_ms: Positive = 1_000
    isolation: Isolation = "read_uncommitted"
    # The client that joins the group and reads. aiokafka always writes.
    client: Literal["aiokafka", "confluent"] = "aiokafka"
    stream_from: str | None = None
    time_from: str | None = None
    security_protocol: Literal["PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"] = "PLAINTEXT"
    sasl_mechanism: (
        Literal["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER", "GSSAPI"] | None
    ) = None
    sasl_username: str | None = None
    sasl_password: Secret | None = None
    # Read for each new connection, so that a password may change without a restart.
    sasl_password_file: File | None = None
    oauth: OAuth | None = None
    # GSSAPI: tickets are fetched by this keytab, and renewed. None: those of the ticket cache.
    kerberos_keytab: File | None = None
    ssl_cafile: File | None = None
    ssl_certfile: File | None = None
    ssl_keyfile: File | None = None
    client_rack: str | None = None
    dedupe: bool = False
    # How long a broker without records may wait before it answers a fetch. None: the client's own
    # default.
    fetch_wait_ms: Positive | None = None
    # "consumer": the broker assigns partitions, and the broker's settings alone decide session and
    # heartbeat.
    group_protocol: Literal["classic", "consumer"] = "classic"
    # The name under which a worker keeps its partitions over a restart (Kafka's group.instance.id).
    # None: a worker that stops gives up its partitions at once.
    instance_id: Annotated[str, Meta(min_length=1)] | None = None
    # After this time a killed worker's partitions move to other workers. 6 s is the broker's own
    # minimum (group.min.session.timeout.ms).
    session_ms: Annotated[int, Meta(ge=6_000, le=45_000)] = 8_000
    # By its heartbeat a member learns that another member has come or gone. Until then the
    # partitions of a member that has gone stand still. 500 ms means two small requests a second.
    heartbeat_ms: Positive = 500
    # A connection without traffic is closed after this time, before the way to the broker forgets
    # it: Azure's load balancers do so after 4 minutes, AWS's NLB after 350 s. Event Hubs asks for
    # this value.
    idle_ms: Positive = 180_000
    # This is longer than the restart of a broker or the election of a leader, which take 10 to 60
    # s.
    timeout_ms: Positive = 120_000

    @property
    def inputs(self) -> list[str]:
        """The topics to read. Empty if a pattern is configured."""
        if self.input_pattern is not None:
            return []
        return self.input_topics or [self.input_topic]

    @property
    def input_name(self) -> str:
        """The input topics, or the pattern, as a text for people."""
        return self.input_pattern or ", ".join(self.inputs)


Auto = Literal["auto"]
# A learned number of fetches begins with as many as suit a store on the same network. With more,
# such a store answers no faster.
BEGIN_FETCHES = 16


class Access(Section, frozen=True):
    """How a store is reached: the keys that `[objects]` and each `[stores.NAME]` have in common."""

    client: Literal["obstore", "s3fs"] = "obstore"
    endpoint_url: Address | None = None
    region: str | None = None
    key: Secret | None = None
    secret: Secret | None = None
    token: Secret | None = None
    profile: str | None = None
    anon: bool = False
    ssl_cafile: File | None = None
    addressing: Literal["auto", "path", "virtual"] = "auto"
    replicas: list[str] | None = None
    hedge: bool = True
    # `auto`: as many as bring more answers, up to `most_concurrency`.
    concurrency: Positive | Auto = "auto"
    # 256 objects at a time are 5,000 a second of a store that takes 50 ms.
    most_concurrency: Positive = 256

    @property
    def most_fetches(self) -> int:
        return self.most_concurrency if self.concurrency == "auto" else self.concurrency

    def fetches_within(self, files: int | None) -> int:
        """The most fetches of a process that may have this many files open. A learned number keeps
        three quarters of them for other stores, the model, Kafka and decoders.
        """
        if files is None or self.concurrency != "auto":
            return self.most_fetches
        return min(self.most_fetches, max(BEGIN_FETCHES, files // 4))

    @property
    def begin_fetches(self) -> int | None:
        """How many objects are fetched at a time at the start, if the best number is learned."""
        return BEGIN_FETCHES if self.concurrency == "auto" else None


class Store(Access, frozen=True, kw_only=True):
    url: Address
    route: list[str] | None = None
    account: str | None = None
    key_file: File | None = None
    options: Options = field(default_factory=dict)


class TopLevel(Section, frozen=True):
    """The keys that stand in the file above all sections."""

    region: str | None = None


class Region(Section, frozen=True):
    """The topics, stores and model servers of a region. If a value is None, the other sections
    decide.
    """

    topics: Annotated[list[str], Meta(min_length=1)] | None = None
    stores: Annotated[list[str], Meta(min_length=1)] | None = None
    models: Annotated[list[Address], Meta(min_length=1)] | None = None
    # The regions that this one helps, and whose model servers it asks while its own are
    # unavailable.
    fallback: list[str] = field(default_factory=list)
    # The references of one second at 1,000 references/s. A healthy region never has such a lag for
    # long.
    help_lag: Positive = 1_000
    # A group notices a dead member after `session_ms`. This time is longer, so that a mere restart
    # of a worker calls no help.
    help_after_ms: Positive = 10_000


class Objects(Access, frozen=True):
    allow: list[str] | None = None
    pin: bool = True
    wait_for_object_ms: NonNegative = 0


class Rows(Section, frozen=True):
    format: str = "auto"
    text: Literal["line", "file"] = "line"
    # A JSON Pointer to the array of rows inside a JSON value. None: the value has no such array.
    path: str | None = None
    header: Literal["auto", "yes", "no"] | bool = "auto"
    columns: list[str | int] | None = None
    keep: list[str] | None = None
    time: str | None = None
    delimiter: Literal["auto", "comma", "semicolon", "tab", "pipe"] = "auto"
    decimal: Literal[".", ","] = "."
    comment: Annotated[str, Meta(min_length=1)] | None = None
    quote: Literal["auto", '"', "'", "none"] = "auto"
    escape: Literal["auto", "none", "backslash"] = "auto"
    missing: Literal["reject", "nan"] | float = "reject"
    # uint8: of pixels, and of opaque rows, whose bytes are the numbers.
    dtype: Literal["float32", "uint8"] = "float32"
    member: str | None = None
    on_bad_row: Literal["reject", "fail_object"] = "reject"
    # Width x height. None: the row is the picture's own bytes.
    image_size: str | None = None
    image_layout: Literal["nchw", "nhwc"] = "nchw"
    image_scale: str = "none"
    # Off by default: the pixels are then those of a scaling in one step.
    image_draft: bool = False
    fps: Annotated[float, Meta(gt=0)] | None = None
    window_ms: Positive = 1_000
    hop_ms: Positive | None = None


class Window(Section, frozen=True):
    # With more than 512 rows a request TorchServe answers hardly more rows a second.
    max_rows: Positive = 512
    # This is below 6,553,500 bytes, TorchServe's default of max_request_size.
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
    # 500 rows are about 150 kB of JSON, well below the 1 MB that a consumer fetches by default.
    block_rows: Positive = 500
    block_form: Literal["json", "arrow"] = "json"
    # The template for the names of result objects, one for each input object. None: answers are
    # only records.
    objects: str | None = None
    records: Literal["rows", "objects", "both"] = "rows"

    @property
    def dead_letter_topic(self) -> str:
        return self.dlq_topic or f"{self.topic}.dlq"

    @property
    def shadow_topic(self) -> str:
        return f"{self.topic}.shadow"


class Results(Section, frozen=True):
    nested: Literal["columns", "json"] = "json"


class Delivery(Section, frozen=True):
    guarantee: Literal["at_least_once", "exactly_once"] = "at_least_once"
    commit_interval_ms: Positive = 500
    drain_ms: NonNegative = 15_000

    @property
    def isolation(self) -> Isolation:
        """How the output topics must be read: if we write in transactions, only committed records
        count.
        """
        return "read_committed" if self.guarantee == "exactly_once" else "read_uncommitted"


class Limits(Section, frozen=True):
    # The minimum is one chunk of an object, because with less nothing could be read.
    buffer_bytes: Annotated[int, Meta(ge=MIB)] = BUFFER_BYTES
    # Four partitions then answer 5,000 objects a second that take 200 ms each, as they do with
    # services at a distance. The bytes of these objects count in `buffer_bytes`.
    in_flight_objects: Positive = 256
    object_bytes: Positive | None = None
    expansion_ratio: Positive = 200
    expanded_bytes: Positive | None = None
    # A compressed table may need less than a bit for a row, so even a small object may have this
    # many rows. Reading them takes seconds.
    rows: Positive = 100_000_000
    members: Positive = 100_000
    member_bytes: Positive | None = None
    row_bytes: Positive = 6_000_000
    # 500 x 500 numbers. Splitting a row costs some 80 bytes a cell, so a row of this many columns
    # costs 20 MB.
    columns: Positive = 250_000
    # Pillow's own bound: a quarter of a gigabyte at three bytes a pixel.
    pixels: Positive = 89_478_485
    # The number of decoder processes. None: one per core, but at least two and at most four.
    decoders: Positive | None = None
    # For which objects a decoder is used again: those of the same stream, none, or any.
    decoder_reuse: Literal["stream", "object", "any"] = "stream"
    # This is twice the time of the slowest known objects: videos of still scenes.
    decode_ms_per_mib: Positive = 4_000
    # An object up to this size may be decoded in the worker, in turns of its event loop: a CSV of
    # 5,000 rows in 3 ms, of 16 numbers each.
    inline_bytes: Positive = 1 << 20
    # A worker repeats and remembers names of streams. A key has at most 1,024 bytes in S3, Google
    # Cloud Storage and Azure, so no folder of a bucket has a longer name.
    stream_bytes: Positive = 1_024
    sites: Positive = SITES
    answer_bytes_per_row: Positive = ANSWER_BYTES_PER_ROW
    # A stream stops if more than `dlq_ratio` of its last 100 objects fail, or more than
    # `dlq_consecutive` objects in a row. Otherwise it could turn its whole topic into dead letters.
    # 0: no limit.
    dlq_ratio: Annotated[float, Meta(ge=0, le=1)] = 0.5
    dlq_consecutive: NonNegative = 100
    # Services that start at the same time are all up within a minute.
    start_ms: Positive = 60_000
    # A wait for the store or for Kafka ends by itself after at most two minutes. This is more than
    # twice as long.
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
    anchor: str = "rhythm"
    # `auto`: learned from the members. A grid has 50 ms then, the period of cameras at 20 Hz.
    period_ms: Positive | Auto = "auto"
    # `auto`: half a period, so that every time belongs to an instant.
    tolerance_ms: NonNegative | Auto = "auto"
    offsets_ms: dict[str, int] = field(default_factory=dict)
    patience_ms: NonNegative = 100
    quorum: NonNegative = 0
    deadline_ms: Positive = 500
    # A member's clock may be this far ahead. Then half of the deadline is left for the other
    # members.
    ahead_ms: NonNegative = 250
    late: Literal["topic", "amend", "drop"] = "topic"
    lease_ms: Positive = 10_000
    # Kafka keeps records this long by default, so nobody reads older ones again.
    forget_ms: Positive = 604_800_000
    # At 20 Hz a site has ten scenes open within the deadline, and more only during a backlog.
    max_open: Positive = 64
    max_members: Positive = 256
    inline: str | None = None
    fill: float | None = None


class Traces(Section, frozen=True):
    # None: there are no traces, and nothing of OpenTelemetry is imported.
    endpoint: Address | None = None
    sample: Annotated[float, Meta(ge=0, le=1)] = 0.01
    slowest: Annotated[float, Meta(ge=0, le=1)] = 0.01
    # Most headers carry the receiver's credentials, so every value is kept as a secret.
    headers: dict[str, Secret] = field(default_factory=dict)


class Http(Section, frozen=True):
    host: str = "127.0.0.1"
    port: Annotated[int, Meta(ge=0, le=65_535)] = 8900
    token: Secret | None = None
    hosts: list[str] | None = None
    peers: list[str] | None = None
    samples: bool = False


class Log(Section, frozen=True):
    level: Literal["debug", "info", "warning", "error"] = "info"
    format: Literal["auto", "text", "json"] = "auto"
