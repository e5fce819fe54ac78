"""All adapters of one pipeline, with the small ports among them: the model, spans, the clock.

Rule: there is one adapter for each port, chosen where the pipeline is made. A model gives one
answer for each row, in order, or an error that says whether the rows, the server or the settings
are at fault. A span is complete when it is handed over, and handing over never waits: a receiver
that is away or slow costs spans, never rows. No part of the pipeline asks the system for the time;
it asks the clock. Owner: the application.
"""

from collections.abc import Mapping, Sequence
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Literal, NamedTuple, Protocol

from penstock.core.rows.payload import Payload
from penstock.ports.objects import Objects, Results
from penstock.ports.sink import Producers, Sink
from penstock.ports.source import Neighbours, Source


class Answers(NamedTuple):
    """What the model said, with one entry for each row of the batch, in order.

    `values[i]` is prediction i as JSON text. `errors`: the rows that the model rejected one by one;
    their value is `b"null"`. `nbytes`: an upper bound of the size of all values, if the adapter
    knows it without counting.
    """

    values: Sequence[bytes]
    errors: Mapping[int, str]
    nbytes: int | None = None


class Model(Protocol):
    """The model server. Any number of tasks may use it; the caller bounds them."""

    async def predict(self, payloads: Sequence[Payload]) -> Answers:
        """Send one request with all rows of `payloads`, which have equal shapes, in order. Without
        payloads it asks whether the model is there, in a way that the adapter knows.

        Raises `Rejected` or `Poison` for the rows, `Transient` or `Unreachable` for the server,
        `Fatal` for settings.
        """
        ...

    async def ready(self) -> bool:
        """Does the model answer? Raises nothing for a server that is away."""
        ...

    @property
    def version(self) -> str | None: ...

    @property
    def most_rows(self) -> int | None:
        """The most rows of one request, if the server tells; None: any number."""
        ...

    async def aclose(self) -> None: ...


Attribute = str | int | float | bool

# The `traceparent` of the request that this task makes, which clients of model servers send along.
# It is a variable of the context, because the five calls between the stage and the connection know
# nothing of traces.
outgoing_traceparent: ContextVar[str | None] = ContextVar("outgoing_traceparent", default=None)


class SpanIdentity(NamedTuple):
    """A span's identity in the protocol."""

    trace_id: int
    span_id: int


class Span(NamedTuple):
    """One step of a trace. `parent_id` 0: the first span of its trace."""

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
    """Used by the event loop alone."""

    @property
    def exported(self) -> int:
        """How many spans the receiver took."""
        ...

    @property
    def dropped(self) -> int:
        """How many spans were lost: the receiver did not take them, or there were too many."""
        ...

    def send(self, spans: Sequence[Span]) -> None: ...

    async def aclose(self) -> None:
        """Send what is left, within the adapter's deadline."""
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
    positions: Source


class Guest(NamedTuple):
    """A shadow model, and a sink of its own, so that it shares nothing with live work."""

    model: Model
    sink: Sink


@dataclass(frozen=True, slots=True)
class Adapters:
    """One adapter for each port. `transactions`: given for exactly-once delivery. `results`: given
    if answers are written as objects. `models`: the models besides the default one, by name.
    `neighbours`: the regions that may be helped. `shadow`: the model that gets copies of the
    default model's requests. `spans`: gets the spans of sampled objects.
    """

    source: Source
    objects: Objects
    model: Model
    sink: Sink
    clock: Clock
    transactions: Transactions | None = None
    results: Results | None = None
    models: Mapping[str, Model] = field(default_factory=dict)
    neighbours: Neighbours | None = None
    shadow: Guest | None = None
    spans: Spans | None = None
