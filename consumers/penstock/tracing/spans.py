"""Makes the spans of an object, and the span of a request to the model, after the object or the
request has ended.

Rule: an object's times are the times that the metrics count, and are measured on the object's last
rows. A step that did not happen, or took almost no time, has no span. If OpenTelemetry's
conventions for messaging have a name for an attribute, this name is used; if not, the name is
`penstock.*`. Owner: the tracer.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

from penstock.core.order.releases import Release
from penstock.core.rows.blocks import Trace
from penstock.ports import Attribute, Span, SpanIdentity

# At most this many characters of an error's text are sent. A library's text may be longer, and
# receivers would cut or refuse it.
MOST_MESSAGE_CHARS = 500
# A shorter step tells nothing and costs as much to encode as a long one.
LEAST_STEP_S = 0.0001


class Names(NamedTuple):
    group: str
    output_topic: str
    model: str


def object_spans(
    release: Release,
    trace: Trace,
    names: Names,
    latency_s: float,
    released_s: float,
    now_s: float,
    ns: Callable[[float], int],
    draw: Callable[[int], int],
) -> list[Span]:
    """The spans of a finished object: first the span of the whole object, then the spans of its
    steps. `ns`: a function that converts a time of our clock to nanoseconds of the system's clock.
    `draw`: a function; `draw(n)` gives n random bits.
    """
    ticket = release.ticket
    received_s, error = ticket.received_s, None
    attributes = _attributes(release, trace, names)
    attributes["penstock.latency_ms"] = round(latency_s * 1000, 3)
    attributes["penstock.kafka_in_ms"] = round((latency_s - (now_s - received_s)) * 1000, 3)
    if trace.code is not None:
        attributes["error.type"], error = trace.code, trace.message[:MOST_MESSAGE_CHARS]
    whole = SpanIdentity(trace.trace_id, trace.span_id)
    topic = ticket.owner.topic
    spans = [
        Span(
            f"process {topic}",
            "consumer",
            whole,
            trace.parent_id,
            ns(received_s),
            ns(now_s),
            attributes,
            error=error,
        )
    ]
    for name, begin_s, end_s in _steps(release, released_s, now_s):
        is_call, is_publish = name == "call", name == "publish"
        spans.append(
            Span(
                name,
                "producer" if is_publish else "internal",
                SpanIdentity(trace.trace_id, draw(64)),
                trace.span_id,
                ns(begin_s),
                ns(end_s),
                {"messaging.destination.name": names.output_topic} if is_publish else {},
                [SpanIdentity(*trace.batch)] if is_call and trace.batch is not None else (),
            )
        )
    return spans


def batch_span(
    identity: SpanIdentity,
    sampled: Sequence[Trace],
    start_ns: int,
    end_ns: int,
    model: str,
    *,
    objects: int,
    rows: int,
    error: Exception | None,
) -> Span:
    """The span of one request to the model. It belongs to the trace of the request's first sampled
    object, and is linked to all `sampled` objects. `objects`: how many objects the request had,
    sampled or not.
    """
    attributes: dict[str, Attribute] = {
        "penstock.model": model,
        "penstock.objects": objects,
        "penstock.rows": rows,
    }
    if error is not None:
        attributes["error.type"] = type(error).__name__
    return Span(
        f"predict {model}",
        "client",
        identity,
        sampled[0].span_id,
        start_ns,
        end_ns,
        attributes,
        [SpanIdentity(one.trace_id, one.span_id) for one in sampled],
        None if error is None else str(error)[:MOST_MESSAGE_CHARS],
    )


def _attributes(release: Release, trace: Trace, names: Names) -> dict[str, Any]:
    ticket = release.ticket
    topic, partition, offset = ticket.owner.topic, ticket.owner.partition, ticket.record.offset
    found: dict[str, Any] = {
        "messaging.system": "kafka",
        "messaging.operation.type": "process",
        "messaging.operation.name": "process",
        "messaging.destination.name": topic,
        "messaging.destination.partition.id": str(partition),
        "messaging.consumer.group.name": names.group,
        "messaging.kafka.offset": offset,
        "penstock.id": ticket.name,
        "penstock.stream": ticket.stream,
        "penstock.model": ticket.model or names.model,
        "penstock.rows": ticket.rows,
        "penstock.sampled_for": trace.why,
    }
    if ticket.reference is not None:
        found["penstock.object"] = f"{ticket.reference.bucket}/{ticket.reference.key}"
        found["penstock.object_bytes"] = ticket.read_bytes
    return found


def _steps(release: Release, released_s: float, now_s: float) -> Iterator[tuple[str, float, float]]:
    """Name, begin and end of each step, in the order of the steps."""
    ticket = release.ticket
    stamps = [
        ("queue", ticket.received_s, ticket.fetching_s),
        ("fetch", ticket.fetching_s, ticket.fetched_s),
    ]
    if release.blocks:
        last = release.blocks[-1]
        stamps += [
            ("decode", ticket.fetched_s, last.arrived_s),
            ("wait", last.arrived_s, last.called_s),
            ("call", last.called_s, last.answered_s),
            ("hold_back", last.answered_s, released_s),
        ]
    stamps.append(("publish", released_s, now_s))
    # If a time is 0, it was never set, because the object did not reach that step.
    return (one for one in stamps if one[1] > 0 and one[2] - one[1] >= LEAST_STEP_S)
