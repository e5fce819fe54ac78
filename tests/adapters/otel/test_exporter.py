"""Spans as a receiver of OpenTelemetry's protocol gets them."""

import logging
import os
import re
import socket
import subprocess
import sys
import threading

import pytest
from opentelemetry.proto.trace.v1.trace_pb2 import Span as Sent
from opentelemetry.proto.trace.v1.trace_pb2 import Status

from penstock import config
from penstock.adapters.otel import open_spans
from penstock.adapters.otel.exporter import FLUSH_S, MOST_WAITING, OtlpSpans, whole
from penstock.errors import EXIT_USAGE, Fatal
from penstock.packages import install_command
from penstock.ports import Span, SpanIdentity
from tests.support.otlp_receiver import OtlpReceiver, values

IDENTITY = SpanIdentity(0x0AF7651916CD43DD8448EB211C80319C, 0xB7AD6B7169203331)
SPAN = Span(
    "process refs",
    "consumer",
    IDENTITY,
    0x00F067AA0BA902B7,
    1_795_208_217_412_000_000,
    1_795_208_217_450_000_001,
    {"penstock.stream": "cam", "penstock.rows": 3, "penstock.latency_ms": 1.5},
    [SpanIdentity(7, 8)],
    "oops",
)


@pytest.fixture
def end_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    """Long enough for a receiver that answers, however busy the machine is."""
    monkeypatch.setattr("penstock.adapters.otel.exporter.FLUSH_S", 60.0)


@pytest.mark.usefixtures("end_waits")
async def test_a_span_arrives_as_it_was_made() -> None:
    async with OtlpReceiver() as receiver:
        spans = OtlpSpans(receiver.url, {"authorization": "Bearer secret"})
        spans.send([SPAN, SPAN._replace(parent_id=0, links=(), error=None, kind="internal")])
        await spans.aclose()
    [(path, headers)] = receiver.requests
    assert path == "/v1/traces"
    assert headers["authorization"] == "Bearer secret"
    assert headers["content-type"] == "application/x-protobuf"
    # The processor begins with the newest where it may; their order says nothing.
    whole_span, plain = sorted(receiver.spans, key=lambda span: -len(span.links))
    assert whole_span.trace_id == IDENTITY.trace_id.to_bytes(16)
    assert whole_span.span_id == IDENTITY.span_id.to_bytes(8)
    assert whole_span.parent_span_id == SPAN.parent_id.to_bytes(8)
    assert (whole_span.name, whole_span.kind) == ("process refs", Sent.SPAN_KIND_CONSUMER)
    assert whole_span.start_time_unix_nano == SPAN.start_ns
    assert whole_span.end_time_unix_nano == SPAN.end_ns
    assert values(whole_span.attributes) == SPAN.attributes
    [link] = whole_span.links
    assert (link.trace_id, link.span_id) == ((7).to_bytes(16), (8).to_bytes(8))
    assert whole_span.status.code == Status.STATUS_CODE_ERROR
    assert whole_span.status.message == "oops"
    assert (plain.parent_span_id, plain.status.code) == (b"", Status.STATUS_CODE_UNSET)
    resource = receiver.resources[0]
    assert resource["service.name"] == "penstock"
    assert resource["service.instance.id"] == f"{socket.gethostname()}/{os.getpid()}"
    assert (spans.exported, spans.dropped) == (2, 0)


async def test_spans_leave_by_themselves_while_the_worker_runs() -> None:
    async with OtlpReceiver() as receiver:
        spans = OtlpSpans(f"{receiver.url}/own/path", {})
        spans.send([SPAN])
        await receiver.until(1)
        assert receiver.requests[0][0] == "/own/path"
        await spans.aclose()


@pytest.mark.usefixtures("end_waits")
async def test_the_environment_may_name_the_service(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OTEL_SERVICE_NAME", "cameras")
    monkeypatch.setenv("OTEL_RESOURCE_ATTRIBUTES", "deployment.environment.name=prod")
    async with OtlpReceiver() as receiver:
        spans = OtlpSpans(receiver.url, {})
        spans.send([SPAN])
        await spans.aclose()
    [resource] = receiver.resources
    assert resource["service.name"] == "cameras"
    assert resource["deployment.environment.name"] == "prod"


@pytest.mark.usefixtures("end_waits")
async def test_what_the_receiver_refuses_is_counted_and_said_at_the_end(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with OtlpReceiver(status=400) as receiver:
        spans = OtlpSpans(receiver.url, {})
        spans.send([SPAN] * 3)
        await spans.aclose()
    assert (spans.exported, spans.dropped) == (0, 3)
    assert f"3 spans did not reach {receiver.url}" in caplog.text


async def test_a_receiver_that_hangs_costs_spans_and_at_the_end_two_seconds(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    waits: list[tuple[threading.Thread, float | None]] = []
    join = threading.Thread.join

    def noted(thread: threading.Thread, timeout: float | None = None) -> None:
        if thread.name.endswith("(shutdown)"):
            waits.append((thread, timeout))
        join(thread, timeout)

    monkeypatch.setattr(threading.Thread, "join", noted)
    async with OtlpReceiver(hangs=True) as receiver:
        spans = OtlpSpans(receiver.url, {})
        for _ in range(MOST_WAITING + 50):
            spans.send([SPAN])
        assert spans.dropped == 50
        with caplog.at_level(logging.WARNING):
            await spans.aclose()
        [(ending, waited_s)] = waits
        assert waited_s == FLUSH_S == 2.0
        # Which takes half a minute, or until the receiver answers: nobody waited for that.
        assert ending.is_alive()
    assert f"{MOST_WAITING + 50} spans did not reach" in caplog.text


@pytest.mark.parametrize(
    ("endpoint", "expected"),
    [
        ("http://h:4318", "http://h:4318/v1/traces"),
        ("http://h:4318/", "http://h:4318/v1/traces"),
        ("https://h/api/otlp", "https://h/api/otlp"),
    ],
)
def test_an_endpoint_without_a_path_gets_the_protocols(endpoint: str, expected: str) -> None:
    assert whole(endpoint) == expected


def test_without_an_endpoint_nothing_of_opentelemetry_is_imported() -> None:
    code = (
        "import sys, penstock.worker.run_worker\n"
        "from penstock import config\n"
        "from penstock.adapters.otel import open_spans\n"
        "assert open_spans(config.Traces()) is None\n"
        "assert not [name for name in sys.modules if name.startswith('opentelemetry')]\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_a_missing_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "penstock.adapters.otel.exporter")
    monkeypatch.setitem(sys.modules, "opentelemetry.sdk.trace", None)
    with pytest.raises(Fatal, match=re.escape(install_command("otel"))) as raised:
        open_spans(config.Traces(endpoint="http://h:4318"))
    assert raised.value.exit_code == EXIT_USAGE
