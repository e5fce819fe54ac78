"""What is read of our counters is what the library's own would say."""

import re
from typing import Any

from prometheus_client import CollectorRegistry, Counter, Histogram, generate_latest
from prometheus_client.openmetrics.parser import text_string_to_metric_families

from penstock.ops.page.page import exposition
from penstock.telemetry.metric_types import Spread, Total, TotalBy
from penstock.telemetry.worker import Telemetry

BUCKETS = (1, 2.5, 10.0)
SEEN = (0.5, 1.0, 1.1, 2.5, 9.0, 10.0, 11.0, 400.0)


def exposed(registry: CollectorRegistry) -> str:
    """Without the times at which the counters were made."""
    return re.sub(r"(_created(?:\{.*\})?) \S+", r"\1", generate_latest(registry).decode())


def test_all_kinds_read_as_the_librarys() -> None:
    ours, theirs = CollectorRegistry(), CollectorRegistry()
    total, counter = Total("t", "all", ours), Counter("t", "all", registry=theirs)
    by = TotalBy("b", "each", "kind", ours, ["x"])
    labelled = Counter("b", "each", ["kind"], registry=theirs)
    labelled.labels("x")
    spread = Spread("s", "sizes", BUCKETS, ours)
    histogram = Histogram("s", "sizes", buckets=BUCKETS, registry=theirs)
    assert exposed(ours) == exposed(theirs)
    for value in SEEN:
        total.inc(value)
        counter.inc(value)
        by.inc("y", value)
        labelled.labels("y").inc(value)
        spread.observe(value)
        histogram.observe(value)
    total.inc()
    counter.inc()
    assert exposed(ours) == exposed(theirs)


def test_a_sample_is_found_by_its_labels() -> None:
    registry = CollectorRegistry()
    TotalBy("b", "each", "kind", registry).inc("x", 3)
    Spread("s", "sizes", BUCKETS, registry).observe(2)
    assert registry.get_sample_value("b_total", {"kind": "x"}) == 3
    assert registry.get_sample_value("s_bucket", {"le": "2.5"}) == 1


def test_a_reader_of_openmetrics_sees_the_trace_of_the_last_example_of_each_bucket() -> None:
    telemetry = Telemetry()
    plain = exposition(telemetry.registry).body
    for latency_s, trace_id in ((0.004, "a" * 32), (0.042, "b" * 32), (0.044, "c" * 32), (60, "d")):
        telemetry.latency_example(latency_s, trace_id)
    answer = exposition(telemetry.registry, "application/openmetrics-text;version=1.0.0;q=0.5")
    assert answer.headers["Content-Type"].startswith("application/openmetrics-text; version=1.0.0")
    assert isinstance(answer.body, bytes)
    read: Any = text_string_to_metric_families
    families = list(read(answer.body.decode()))
    examples = {
        sample.labels["le"]: (sample.exemplar.labels, sample.exemplar.value)
        for family in families
        for sample in family.samples
        if sample.exemplar
    }
    assert examples == {
        "0.005": ({"trace_id": "a" * 32}, 0.004),
        "0.05": ({"trace_id": "c" * 32}, 0.044),
        "+Inf": ({"trace_id": "d"}, 60.0),
    }
    assert exposition(telemetry.registry, "text/plain;version=0.0.4").body == plain
