"""The sections about models: `[model]`, its shadow, `[[models]]`, `[[routes]]` to them, and the
`[[priorities]]` of streams. Also
reads a model's name and version from the path of its URL.

Rule: as in `sections`, the sections are values only. A URL means the same wherever a user writes
it.
"""

import re
from collections.abc import Callable, Mapping
from typing import Annotated, Final, Literal
from urllib.parse import unquote

from msgspec import Meta, field

from penstock.config.marks import Address, File, Secret
from penstock.config.sections import MIB, Auto, Positive, Section, Window

Protocol = Literal["torchserve", "oip", "oip-grpc", "http", "openai-embeddings", "openai-chat"]
Preset = Literal[
    "kserve-v1", "tf-serving", "vertex", "mlflow", "sagemaker", "bentoml", "litserve", "ray-serve"
]


# A learned number of calls begins with as many as saturate a TorchServe worker: 2-4.
BEGIN_CALLS: Final = 4
# At most this many calls: 64 at a time are 1,280 a second of a server that takes 50 ms, and more
# than the server's own queue should hold (TorchServe's has 100 places).
MOST_CALLS: Final = 64
Percent = Annotated[float, Meta(ge=0, le=100)]


class Shadow(Section, frozen=True, kw_only=True):
    """The setting that one of `[[models]]` gets the same rows as `[model]`, so that the answers of
    the two models can be compared.
    """

    model: str
    percent: Percent = 10.0
    # Float32 has seven digits. If a sum is added up in another order, the last digit may differ.
    tolerance: Annotated[float, Meta(ge=0)] = 1e-6
    pointers: list[str] = field(default_factory=list)
    # This is twenty batches of the largest usual size.
    buffer_rows: Positive = 10_000
    buffer_bytes: Positive = 16 * MIB


class Model(Section, frozen=True):
    url: Address = "http://localhost:8080"
    # Other servers of the same model. They are asked while `url` is unavailable.
    replicas: list[Address] | None = None
    # After this time without an answer, a replica is asked. Rows may be late by at most 5 s when a
    # region fails, and 1 s of that is left for the replica's answer.
    failover_ms: Positive = 4_000
    # Off by default: a call that is sent twice must have no side effects.
    hedge: bool = False
    name: str = "rows"
    version: str | None = None
    protocol: Protocol = "torchserve"
    # The keys from here to `binary` are for oip. If `inputs` or `outputs` is not set, the server's
    # description of the model names the tensors.
    inputs: list[str] | None = None
    outputs: list[str] | None = None
    binary: Literal["auto", "yes", "no"] = "auto"
    # The six keys from here to `row_error` are for http. A key that is not set has the preset's
    # value.
    preset: Preset | None = None
    path: str | None = None
    health: str | None = None
    template: str | None = None
    answers: str | None = None
    row_error: str | None = None
    # The six keys from here to `cost_per_million_written` are for openai-chat.
    prompt: str | None = None
    answer_schema: File | None = None
    # A model that does not end its answer would go on up to its whole context.
    max_tokens: Positive = 512
    # None: the server's own. Some models take no other.
    temperature: Annotated[float, Meta(ge=0, le=2)] | None = None
    cost_per_million_read: Annotated[float, Meta(ge=0)] = 0.0
    cost_per_million_written: Annotated[float, Meta(ge=0)] = 0.0
    # One of json, instances, float32, bytes, raw and arrow, or a form that a user's package adds.
    request: str = "json"
    timeout_ms: Positive = 30_000
    # `auto`: as many as bring more answers.
    max_in_flight: Positive | Auto = "auto"
    # The price of the hardware that answers this worker's calls, in any currency.
    cost_per_hour: Annotated[float, Meta(gt=0)] | None = None
    token: Secret | None = None
    token_file: File | None = None
    ssl_cafile: File | None = None
    canary: str | None = None
    # None: the address of `url`, with the port number plus one, as in TorchServe's own defaults.
    management_url: Address | None = None
    shadow: Shadow | None = None

    @property
    def most_calls(self) -> int:
        return MOST_CALLS if self.max_in_flight == "auto" else self.max_in_flight

    @property
    def begin_calls(self) -> int | None:
        """How many calls are made at a time at the start, if the best number is learned."""
        return BEGIN_CALLS if self.max_in_flight == "auto" else None


class NamedModel(Model, frozen=True, kw_only=True):
    """A model beside `[model]`. `served_as`: its name on its server, if that differs."""

    name: Annotated[str, Meta(min_length=1)]
    served_as: str | None = None
    window: Window | None = None


class Route(Section, frozen=True, kw_only=True):
    """Decides which models answer the rows of an object. A route holds for an object that matches
    every glob of the route.
    """

    model: str | list[str]
    stream: str | None = None
    bucket: str | None = None
    key: str | None = None
    split: dict[str, Percent] = field(default_factory=dict)

    @property
    def models(self) -> tuple[str, ...]:
        return (self.model,) if isinstance(self.model, str) else tuple(self.model)

    @property
    def names(self) -> tuple[str, ...]:
        """All models that may answer by this route."""
        return *self.models, *self.split


class Priority(Section, frozen=True, kw_only=True):
    """Decides which streams go before others. The first entry whose glob matches a stream holds."""

    stream: str
    weight: Annotated[int, Meta(ge=1, le=1_000)] = 1
    class_: Literal["live", "backlog"] | None = field(default=None, name="class")


_TORCHSERVE: Final = re.compile(r"/predictions/(?P<name>[^/]+)(/(?P<version>[^/]+))?/?")
_OIP: Final = re.compile(
    r"(?P<root>.*?)/v2/models/(?P<name>[^/]+)(/versions/(?P<version>[^/]+))?(/infer)?/?"
)
_KSERVE_V1: Final = re.compile(r"/v1/models/(?P<name>[^/:]+):predict/?")
_CHAT: Final = re.compile(r"/v1/chat/completions/?")
_EMBEDDINGS: Final = re.compile(r"/v1/embeddings/?")
_MLFLOW: Final = re.compile(r"/invocations/?")
# A mapping from a protocol or preset to the function that recognises the paths of its URLs. If two
# servers have the same path, either server's preset works for both.
MODEL_PATHS: Final[Mapping[str, Callable[[str], re.Match[str] | None]]] = {
    "torchserve": _TORCHSERVE.fullmatch,
    "oip": _OIP.fullmatch,
    "kserve-v1": _KSERVE_V1.fullmatch,
    "openai-embeddings": _EMBEDDINGS.fullmatch,
    "openai-chat": _CHAT.fullmatch,
    "mlflow": _MLFLOW.fullmatch,
}


def path_before_name(match: re.Match[str]) -> str:
    """The part of the path that stands before the protocol's own path. Only OIP allows such a
    part.
    """
    return match.groupdict().get("root") or ""


def name_and_version(match: re.Match[str]) -> dict[str, str | None]:
    """The model's `name` and `version`, as far as the path can hold them."""
    parts = match.groupdict()
    keys = parts.keys() & {"name", "version"}
    return {key: unquote(parts[key]) if parts[key] else None for key in sorted(keys)}
