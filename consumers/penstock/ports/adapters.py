"""The small ports: the model, spans, the clock; and `Adapters`, which holds all of one pipeline.

Rule: a model gives one answer for each row, in order, or an error that says whether rows, server or
settings are at fault. Handing a span over never waits; spans may be lost, rows never. All parts ask
the clock for the time, never the system.
"""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextvars import ContextVar
from dataclasses import dataclass, field
from datetime import datetime
from typing import Literal, NamedTuple, Protocol

from penstock.core.rows.payload import Payload
from penstock.ports.objects import Objects, ResultStore
from penstock.ports.sink import Producers, Sink
from penstock.ports.source import InputSource, Neighbours


class Tokens(NamedTuple):
    """How many tokens a model of language read and wrote for a request."""

    read: int
    written: int


class Answers(NamedTuple):
    """The model's answers, with one entry for each row of the batch, in order.

    `values`: for each row, its prediction as JSON text. `errors`: for each row that the model
    rejected by itself, by its index, the model's message; the value of such a row is `b"null"`.
    `nbytes`: an upper bound of the size of all values together; None if the adapter does not know
    one without counting. `tokens`: None if the model counts none.
    """

    values: Sequence[bytes]
    errors: Mapping[int, str]
    nbytes: int | None = None
    tokens: Tokens | None = None


class Model(Protocol):
    """The model server. Any number of tasks may use it at the same time; the caller limits their
    number.
    """

    async def predict(self, payloads: Sequence[Payload]) -> Answers:
        """Send one request with all rows of `payloads`, in order. All payloads have the same shape.
        Without payloads the request only asks whether the model is there, in a way that the adapter
        knows.

        Raises `Rejected` or `Poison` if the rows are at fault, `Transient` or `Unreachable` if the
        server is, and `Fatal` if the settings are.
        """
        ...

    async def ready(self) -> bool:
        """Does the model answer? If the server is away, this returns False and raises nothing."""
        ...

    @property
    def version(self) -> str | None: ...

    @property
    def most_rows(self) -> int | None:
        """The most rows that the server takes in one request. None: the server does not tell a
        limit.
        """
        ...

    async def aclose(self) -> None: ...


Attribute = str | int | float | bool

# The `traceparent` header of the request that this task makes; clients of model servers send it
# along. It is a context variable, because the functions between the stage and the connection
# know nothing of traces.
outgoing_traceparent: ContextVar[str | None] = ContextVar("outgoing_traceparent", default=None)


class SpanIdentity(NamedTuple):
    """The two numbers by which the tracing protocol knows a span."""

    trace_id: int
    span_id: int


class Span(NamedTuple):
    """One step of a trace. `parent_id`: 0 if this is the first span of its trace."""

    name: str
    kind: Literal["consumer", "producer", "client", "internal"]
    identity: SpanIdentity
    parent_id: int
    start_ns: int
    end_ns: int
    attributes: Mapping[str, Attribute]
    links: Sequence[SpanIdentity] = ()
    error: str | None = None


class Spans(Protocol):
    """Takes the finished spans. Only the thread of the event loop may use it."""

    @property
    def exported(self) -> int:
        """How many spans the receiver took."""
        ...

    @property
    def dropped(self) -> int:
        """How many spans were lost, because the receiver did not take them or because there were
        too many.
        """
        ...

    def send(self, spans: Sequence[Span]) -> None: ...

    async def aclose(self) -> None:
        """Send the spans that are left, within the adapter's deadline."""
        ...


class Clock(Protocol):
    """The clock of a whole pipeline."""

    def now(self) -> float:
        """Monotonic seconds: the time of the running event loop."""
        ...

    def wall_ms(self) -> int:
        """Epoch milliseconds."""
        ...


class Transactions(NamedTuple):
    """What exactly-once delivery needs: the transactional producers, and the source that knows the
    committed positions.
    """

    producers: Producers
    positions: InputSource


class Guest(NamedTuple):
    """A shadow model, and a sink that only the shadow uses, so that it shares nothing with live
    work.
    """

    model: Model
    sink: Sink


@dataclass(frozen=True, slots=True)
class Adapters:
    """One adapter for each port. `transactions`: given for exactly-once delivery. `results`: given
    if answers are written as objects. `models`: the models besides the default one, by name.
    `neighbours`: the regions that may be helped. `shadow`: the model that gets copies of the
    default model's requests. `spans`: gets the spans of sampled objects. `store_time`: asks the
    default store for its time, where it tells one.
    """

    source: InputSource
    objects: Objects
    model: Model
    sink: Sink
    clock: Clock
    transactions: Transactions | None = None
    results: ResultStore | None = None
    models: Mapping[str, Model] = field(default_factory=dict)
    neighbours: Neighbours | None = None
    shadow: Guest | None = None
    spans: Spans | None = None
    store_time: Callable[[], Awaitable[datetime | None]] | None = None
