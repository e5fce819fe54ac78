"""The sections on models: `[model]`, its shadow, `[[models]]`, and `[[routes]]` to them.

Rule: values only, as in `sections`. Owner: `Config`.
"""

from typing import Annotated, Literal

from msgspec import Meta, field

from consumers.config.sections import MIB, Positive, Section, Window

Protocol = Literal["torchserve", "oip", "oip-grpc", "http", "openai-embeddings"]
Preset = Literal[
    "kserve-v1", "tf-serving", "vertex", "mlflow", "sagemaker", "bentoml", "litserve", "ray-serve"
]


Percent = Annotated[float, Meta(ge=0, le=100)]


class Shadow(Section, frozen=True, kw_only=True):
    """A model of `[[models]]` that is asked what `[model]` was, and whose answers are compared."""

    model: str
    percent: Percent = 10.0
    # Float32 has seven digits; sums of them in another order differ in the last.
    tolerance: Annotated[float, Meta(ge=0)] = 1e-6
    pointers: list[str] = field(default_factory=list)
    # Twenty batches of the largest usual size.
    buffer_rows: Positive = 10_000
    buffer_bytes: Positive = 16 * MIB


class Model(Section, frozen=True):
    url: str = "http://localhost:8080"
    # Other servers of the same model, for while `url` is away.
    replicas: list[str] | None = None
    # With what the replica takes below the 5 s after which a region that is cut off is felt.
    failover_ms: Positive = 4_000
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
    shadow: Shadow | None = None


class NamedModel(Model, frozen=True, kw_only=True):
    """One beside `model`. `served_as`: its name on its server, where that is another."""

    name: Annotated[str, Meta(min_length=1)]
    served_as: str | None = None
    window: Window | None = None


class Route(Section, frozen=True, kw_only=True):
    """Which models answer what matches all of its globs."""

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
        """Of all models that may answer by it."""
        return *self.models, *self.split
