"""Decides which objects are traced, and sends their spans when they are delivered.

Rule: an object that is not sampled costs about a microsecond. The trace id decides, so all services
with the same ratio choose the same; an error or a long time can choose later, in limited number. A
step that took almost no time has no span. Names are OpenTelemetry's conventions for messaging where
there are any, else `penstock.*`.
"""

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from penstock.core.progress.order import Release
from penstock.core.rows.blocks import Block, Ticket, Trace, Why
from penstock.messages.traceparent import HEADER, Caller, in_cloud_event, read, written
from penstock.ports import Attribute, Clock, Record, Span, SpanIdentity, Spans, outgoing_traceparent

# At most this many characters of an error's text are sent. A library's text may be longer, and
# receivers would cut or refuse it.
MOST_MESSAGE_CHARS = 500
# A shorter step tells nothing and costs as much to encode as a long one.
LEAST_STEP_S = 0.0001


class TraceNames(NamedTuple):
    group: str
    output_topic: str
    model: str


def object_spans(
    release: Release,
    trace: Trace,
    names: TraceNames,
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
    topic = ticket.owner.where.topic
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
        [SpanIdentity(sample.trace_id, sample.span_id) for sample in sampled],
        None if error is None else str(error)[:MOST_MESSAGE_CHARS],
    )


def _attributes(release: Release, trace: Trace, names: TraceNames) -> dict[str, Any]:
    ticket = release.ticket
    (topic, partition), offset = ticket.owner.where, ticket.record.offset
    attributes: dict[str, Any] = {
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
        attributes["penstock.object"] = f"{ticket.reference.bucket}/{ticket.reference.key}"
        attributes["penstock.object_bytes"] = ticket.read_bytes
    return attributes


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
    return (stamp for stamp in stamps if stamp[1] > 0 and stamp[2] - stamp[1] >= LEAST_STEP_S)


# The SDK and most receivers keep at most this many links of a span.
MOST_LINKS = 128
# Spans are dated by our own clock plus its difference from the system's clock. The system's clock
# may be set while we run. If the difference has changed by more than this, the new difference is
# used.
MOST_DRIFT_S = 0.05
_NOT_SAMPLED = nullcontext()


@dataclass(frozen=True, slots=True)
class TraceTerms:
    """`sample`: the share of traces that are sampled by their id. `slowest`: the share of objects
    that are sampled because they took long.
    """

    sample: float
    slowest: float
    names: TraceNames


class Tracer:
    """Traces the objects of one worker, from `begin` to `delivered`. `draw`: a function; `draw(n)`
    gives a number of n random bits.
    """

    def __init__(
        self, terms: TraceTerms, spans: Spans, clock: Clock, draw: Callable[[int], int]
    ) -> None:
        self._names = terms.names
        self._ratio = Ratio(terms.sample)
        self._slowest = Slowest(terms.slowest)
        self._errors = Errors()
        self._spans = spans
        self._clock = clock
        self._draw = draw
        self._offset_s = clock.wall_ms() / 1000 - clock.now()

    def begin(self, record: Record, tickets: Sequence[Ticket]) -> None:
        """Give each object its trace: the trace of the record's caller, or a new one if no caller
        sent one.
        """
        text = record.traceparent or in_cloud_event(record.value)
        caller = read(text) if text is not None else None
        for ticket in tickets:
            trace_id, parent_id = (
                (caller.trace_id, caller.span_id) if caller else (self._draw(128), 0)
            )
            why = self._ratio.why(trace_id, caller)
            span_id = self._draw(64) if why else 0
            ticket.trace = Trace(trace_id, parent_id, span_id, why, text if caller else None)

    def call(self, model: str, blocks: Sequence[Block]) -> AbstractContextManager[None]:
        """The context of one request to the model. If one of its objects is sampled, the request
        has a span in the trace of the first such object, and the server is told of that span.
        """
        for block in blocks:
            if block.ticket.trace is not None and block.ticket.trace.why:
                return self._sampled_call(model, blocks)
        return _NOT_SAMPLED

    @contextmanager
    def _sampled_call(self, model: str, blocks: Sequence[Block]) -> Iterator[None]:
        tickets = dict.fromkeys(block.ticket for block in blocks)
        sampled = [
            ticket.trace for ticket in tickets if ticket.trace is not None and ticket.trace.why
        ]
        identity = SpanIdentity(sampled[0].trace_id, self._draw(64))
        for trace in sampled:
            trace.batch = identity
        token = outgoing_traceparent.set(written(Caller(*identity, is_sampled=True)))
        began_s, error = self._clock.now(), None
        try:
            yield
        except Exception as failure:
            error = failure
            raise
        finally:
            outgoing_traceparent.reset(token)
            span = batch_span(
                identity,
                sampled[:MOST_LINKS],
                self._ns(began_s),
                self._ns(self._clock.now()),
                model,
                objects=len(tickets),
                rows=sum(block.rows for block in blocks),
                error=error,
            )
            self._spans.send([span])

    def delivered(
        self,
        finished: Sequence[Release],
        latencies_s: Sequence[float],
        released_s: float,
        now_s: float,
    ) -> Iterator[tuple[float, str]]:
        """Send the spans of the finished objects that are sampled. Yields the latency of each such
        object and its trace's id.
        """
        for release, latency_s in zip(finished, latencies_s, strict=True):
            trace = release.ticket.trace
            if trace is not None and self._is_sent(trace, latency_s, now_s):
                self._look_at_clock(now_s)
                spans = object_spans(
                    release, trace, self._names, latency_s, released_s, now_s, self._ns, self._draw
                )
                self._spans.send(spans)
                yield latency_s, trace.hex_id

    def _is_sent(self, trace: Trace, latency_s: float, now_s: float) -> bool:
        is_slow = self._slowest.is_one(latency_s)
        if trace.why is None:
            if trace.code is not None and self._errors.passes(now_s):
                trace.why = "error"
            elif is_slow:
                trace.why = "slow"
            else:
                return False
            trace.span_id = self._draw(64)
        return True

    def headers(self, ticket: Ticket) -> list[tuple[str, bytes]] | None:
        """The trace header of the records with the ticket's answers. The header names the ticket's
        own span if the ticket is sampled, and the caller's span if not.
        """
        trace = ticket.trace
        if trace is None:
            return None
        if trace.why is None:
            return None if trace.given is None else [(HEADER, trace.given)]
        return [(HEADER, written(Caller(trace.trace_id, trace.span_id, is_sampled=True)).encode())]

    def _ns(self, at_s: float) -> int:
        return int((at_s + self._offset_s) * 1e9)

    def _look_at_clock(self, now_s: float) -> None:
        # The spans of one object are made at different moments. If we followed every small change
        # of the offset, these spans would not fit together.
        offset_s = self._clock.wall_ms() / 1000 - now_s
        if abs(offset_s - self._offset_s) > MOST_DRIFT_S:
            self._offset_s = offset_s


_LOW_BITS: Final = (1 << 64) - 1
# Objects above a certain time count as slow. After each block of this many objects, this time is
# computed anew from the times of the block.
BLOCK: Final = 200
# At most this many objects a second are sampled because of an error. The errors of further objects
# would most likely be the same.
MOST_ERRORS_PER_S: Final = 50


class Ratio:
    """Decides as OpenTelemetry's `TraceIdRatioBased` does: a trace is sampled if the low 8 bytes of
    its id, read as a number, are less than `share` times the highest such number.
    """

    def __init__(self, share: float) -> None:
        self._bound = round(share * (_LOW_BITS + 1))

    def why(self, trace_id: int, caller: Caller | None) -> Why | None:
        if caller is not None and caller.is_sampled:
            return "caller"
        return "ratio" if trace_id & _LOW_BITS < self._bound else None


class Slowest:
    """Recognises the slowest `share` of objects by the times of the last full block of objects. At
    most `share` of all objects count as slow, even while all objects become slower.
    """

    def __init__(self, share: float) -> None:
        self._share = share
        self._seen_s: list[float] = []
        self._bound_s = math.inf
        self._credit = 0.0

    def is_one(self, took_s: float) -> bool:
        self._credit = min(self._credit + self._share, 2.0)
        self._seen_s.append(took_s)
        is_slow = took_s > self._bound_s and self._credit >= 1
        if is_slow:
            self._credit -= 1
        if len(self._seen_s) == BLOCK:
            last = min(int(BLOCK * (1 - self._share)), BLOCK - 1)
            self._bound_s = sorted(self._seen_s)[last] if self._share else math.inf
            self._seen_s.clear()
        return is_slow


class Errors:
    """Lets the first `MOST_ERRORS_PER_S` objects of each second pass."""

    def __init__(self) -> None:
        self._second = -1
        self._passed = 0

    def passes(self, now_s: float) -> bool:
        if int(now_s) != self._second:
            self._second, self._passed = int(now_s), 0
        self._passed += 1
        return self._passed <= MOST_ERRORS_PER_S
