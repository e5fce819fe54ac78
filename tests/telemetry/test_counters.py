"""What is read of our counters is what the library's own would say."""

import re

from prometheus_client import CollectorRegistry, Counter, Histogram, generate_latest

from penstock.telemetry.counters import Spread, Total, TotalBy

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
