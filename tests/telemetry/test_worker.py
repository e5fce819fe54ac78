"""What a worker counts, and what it does not count where it is not configured."""

from prometheus_client import generate_latest

from penstock.telemetry.per_service import ELSEWHERE, OTHER_STREAMS, SHADOW_STREAMS
from penstock.telemetry.streams import SHOWN
from penstock.telemetry.worker import Telemetry
from tests.support.memory import MemorySpans
from tests.support.partitions import P0


def test_what_is_not_configured_is_not_on_the_page() -> None:
    telemetry = Telemetry()
    page = generate_latest(telemetry.registry)
    assert not any(name in page for name in (b"_region_", b"_shadow_", b"_models_", b"_spans_"))
    telemetry.of_traces(MemorySpans())
    telemetry.in_region("eu", {})
    telemetry.of_shadow()
    telemetry.of_models(["rows"])
    page = generate_latest(telemetry.registry)
    assert all(name in page for name in (b"_region_", b"_shadow_", b"_models_", b"_spans_"))


def test_bytes_of_a_region_are_those_of_its_stores() -> None:
    telemetry = Telemetry()
    region = telemetry.in_region("eu", {"near": "eu", "nearer": "eu", "far": "us"})
    assert region.local_share() == 1.0
    for store, nbytes in {"near": 1, "nearer": 2, "far": 3, "objects": 6}.items():
        telemetry.replicas.store_read(store, nbytes)
    assert region.bytes_by_region() == {"eu": 3, "us": 3, ELSEWHERE: 6}
    value = telemetry.registry.get_sample_value
    assert value("penstock_region_bytes_total", {"region": "us"}) == 3
    assert value("penstock_region_local_share", {"region": "eu"}) == 0.25


def test_the_latency_that_is_aimed_at_has_a_bucket_of_its_own() -> None:
    def bounds(telemetry: Telemetry) -> list[float]:
        samples = [sample for family in telemetry.registry.collect() for sample in family.samples]
        name = "penstock_latency_seconds_bucket"
        return [float(sample.labels["le"]) for sample in samples if sample.name == name]

    usual = [
        0.005, 0.01, 0.015, 0.02, 0.03, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.5, 1.0, 2.5, 5.0, 10.0,
        float("inf"),
    ]  # fmt: skip
    assert bounds(Telemetry()) == bounds(Telemetry(0.05)) == usual
    assert bounds(Telemetry(0.08)) == sorted([*usual, 0.08])


def test_a_lag_that_nobody_knows_stays_as_it_was_last_seen() -> None:
    telemetry = Telemetry()
    region = telemetry.in_region("eu", {})
    region.seen("us", 7, is_helped=True)
    region.seen("us", None, is_helped=False)
    value = telemetry.registry.get_sample_value
    assert value("penstock_region_lag_records", {"region": "us"}) == 7
    assert value("penstock_region_helped", {"region": "us"}) == 0


def test_failovers_are_told_by_what_was_left() -> None:
    replicas = Telemetry().replicas
    replicas.store_failed_over("near")
    replicas.store_failed_over("near")
    replicas.model_failed_over("http://near")
    assert replicas.failovers() == {"near": 2, "http://near": 1}


def test_health_of_all_models_is_the_sum_of_each() -> None:
    telemetry = Telemetry()
    one, two = telemetry.of_models(["one", "two"]).values()
    one.model_health(is_open=True, calls=1)
    two.model_health(is_open=False, calls=4)
    value = telemetry.registry.get_sample_value
    assert value("penstock_models_breaker_open", {"model": "two"}) == 0
    assert value("penstock_model_breaker_open") == 1
    assert value("penstock_model_calls_allowed") == 5


def test_streams_beyond_the_first_hundred_are_one() -> None:
    telemetry = Telemetry()
    shadow = telemetry.of_shadow()
    for number in range(SHADOW_STREAMS + 2):
        shadow.compared(f"s{number}", agreed=1, disagreed=0)
    value = telemetry.registry.get_sample_value
    name = "penstock_shadow_stream_rows_total"
    assert value(name, {"stream": "s0", "outcome": "agreed"}) == 1
    assert value(name, {"stream": OTHER_STREAMS, "outcome": "agreed"}) == 2


def test_a_thousand_streams_make_a_small_page() -> None:
    telemetry = Telemetry(0.05)
    for number in range(1_000):
        telemetry.streams.delivered(f"site-{number // 10}/cam-{number}", P0, 8, 0.02, 1000.0)
    flow = {
        "backlog_bytes": 1,
        "drain_s": 1.0,
        "utilisation": 0.5,
        "busy": {"loop": 0.5, "calls": 0.1, "buffer": 0.1},
        "bound_by": "model",
    }
    figures = telemetry.streams.told({}, set(), 1001.0)
    telemetry.status_gauges.show(flow, 5, figures)
    page = generate_latest(telemetry.registry)
    assert page.count(b"penstock_stream_p99_seconds{") == SHOWN + 1
    assert b'penstock_stream_p99_seconds{stream="*others*"}' in page
    # What a scrape may be; the client library stops the event loop 12 µs for each sample.
    assert sum(len(family.samples) for family in telemetry.registry.collect()) <= 3_000
    assert len(page) <= 300_000
