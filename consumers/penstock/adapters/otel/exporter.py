"""Sends spans by OTLP over HTTP, in protobuf, by the SDK's exporter on its own thread.

Rule: `send` never waits. At most `MOST_WAITING` spans wait; further ones, and those that the
receiver did not take, are dropped and counted. The SDK's tracer is not used: it makes a span's id
only when the span begins, while we need it earlier, and takes six times as long.
"""

import asyncio
import logging
import os
import socket
import threading
from collections.abc import Mapping, Sequence
from typing import Final
from urllib.parse import urlsplit, urlunsplit

from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import OTELResourceDetector, Resource
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter, SpanExportResult
from opentelemetry.sdk.util.instrumentation import InstrumentationScope
from opentelemetry.trace import Link, SpanContext, SpanKind, Status, StatusCode, TraceFlags

from penstock import config
from penstock.ports import Span, SpanIdentity

log = logging.getLogger(__name__)

# 1 % of the objects of 60 streams at 20 Hz make this many spans in some ten seconds. These spans
# take 3 MB.
MOST_WAITING: Final = 2_048
# Encoding a request of this many spans holds the interpreter for some 5 ms. With more spans, rows
# would wait for longer.
BATCH: Final = 128
DELAY_MS: Final = 1_000
# How long one request may take, with its repetitions. The time is short, because spans that wait
# meanwhile are dropped if they become too many.
REQUEST_S: Final = 5.0
FLUSH_S: Final = 2.0
_PATH: Final = "/v1/traces"

_SAMPLED: Final = TraceFlags(TraceFlags.SAMPLED)
_KINDS: Final = {
    "consumer": SpanKind.CONSUMER,
    "producer": SpanKind.PRODUCER,
    "client": SpanKind.CLIENT,
    "internal": SpanKind.INTERNAL,
}
_SCOPE: Final = InstrumentationScope("penstock")
_UNSET: Final = Status(StatusCode.UNSET)


class _Counting(SpanExporter):
    """The SDK's exporter, with counts of exported and failed spans. The SDK's thread writes the
    counts, the event loop reads them.
    """

    def __init__(self, inner: SpanExporter) -> None:
        self._inner = inner
        self.exported = 0
        self.failed = 0

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        result = SpanExportResult.FAILURE
        try:
            result = self._inner.export(spans)
        finally:
            if result is SpanExportResult.SUCCESS:
                self.exported += len(spans)
            else:
                self.failed += len(spans)
        return result

    def shutdown(self) -> None:
        self._inner.shutdown()


class OtlpSpans:
    """Implements the port `Spans`. `endpoint`: the URL of the receiver, either without a path or
    with its whole path.
    """

    def __init__(self, endpoint: str, headers: Mapping[str, str]) -> None:
        self._shown_endpoint = config.shown_url(endpoint)
        inner = OTLPSpanExporter(whole(endpoint), headers=dict(headers), timeout=REQUEST_S)
        self._exporter = _Counting(inner)
        self._processor = BatchSpanProcessor(self._exporter, MOST_WAITING, DELAY_MS, BATCH)
        self._resource = _resource()
        self._accepted = 0
        self._refused = 0

    @property
    def exported(self) -> int:
        return self._exporter.exported

    @property
    def dropped(self) -> int:
        return self._refused + self._exporter.failed

    @property
    def _waiting(self) -> int:
        return self._accepted - self._exporter.exported - self._exporter.failed

    def send(self, spans: Sequence[Span]) -> None:
        # The processor would drop the oldest spans without counting them. So the new spans are
        # dropped here, and counted.
        if self._waiting + len(spans) > MOST_WAITING:
            self._refused += len(spans)
            return
        self._accepted += len(spans)
        for span in spans:
            self._processor.on_end(self._readable(span))

    async def aclose(self) -> None:
        # The processor's own shutdown may take half a minute. A receiver that hangs must not keep
        # the worker from ending.
        ending = threading.Thread(target=self._processor.shutdown, daemon=True)
        ending.start()
        await asyncio.to_thread(ending.join, FLUSH_S)
        if lost := self._waiting + self.dropped:
            log.warning("%d spans did not reach %s", lost, self._shown_endpoint)

    def _readable(self, span: Span) -> ReadableSpan:
        status = _UNSET if span.error is None else Status(StatusCode.ERROR, span.error)
        parent = SpanIdentity(span.identity.trace_id, span.parent_id)
        return ReadableSpan(
            span.name,
            context=_context(span.identity, is_remote=False),
            parent=_context(parent, is_remote=span.kind == "consumer") if span.parent_id else None,
            resource=self._resource,
            attributes=span.attributes,
            links=[Link(_context(link, is_remote=False)) for link in span.links],
            kind=_KINDS[span.kind],
            status=status,
            start_time=span.start_ns,
            end_time=span.end_ns,
            instrumentation_scope=_SCOPE,
        )


def whole(endpoint: str) -> str:
    """Returns the URL. If the URL has no path, the protocol's path is added."""
    parts = urlsplit(endpoint)
    return urlunsplit(parts._replace(path=_PATH)) if parts.path in ("", "/") else endpoint


def _context(identity: SpanIdentity, *, is_remote: bool) -> SpanContext:
    return SpanContext(identity.trace_id, identity.span_id, is_remote, _SAMPLED)


def _resource() -> Resource:
    """The attributes of the process that makes the spans. `OTEL_SERVICE_NAME` and
    `OTEL_RESOURCE_ATTRIBUTES` override our own attributes.
    """
    host, process = socket.gethostname(), os.getpid()
    ours = Resource(
        {
            "service.name": "penstock",
            "service.instance.id": f"{host}/{process}",
            "host.name": host,
            "process.pid": process,
        }
    )
    return ours.merge(OTELResourceDetector().detect())
