"""Where spans of traces go, and the trace context that travels to model servers.

Rule: a span is complete when it is handed over, and handing over never waits: a receiver that is
away or slow costs spans, never rows. Owner: the application, which closes the adapter.
"""

from collections.abc import Mapping, Sequence
from contextvars import ContextVar
from typing import Literal, NamedTuple, Protocol

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
        """How many spans the receiver did not take, or came faster than they could be sent."""
        ...

    def send(self, spans: Sequence[Span]) -> None: ...

    async def aclose(self) -> None:
        """Send what is left, within the adapter's deadline."""
        ...
