"""A counter by stream of which only the largest are named."""

from prometheus_client import CollectorRegistry

from penstock.telemetry.streams import OTHERS, SHOWN
from penstock.telemetry.worker import TopTotals


def test_the_largest_are_named_the_others_are_summed_and_no_series_falls() -> None:
    registry = CollectorRegistry()
    metric = TopTotals("spent", "Spent", registry)

    def value(stream: str) -> float | None:
        return registry.get_sample_value("spent_total", {"stream": stream})

    totals = {f"s{number}": 100.0 + number for number in range(SHOWN)}
    metric.set(totals)
    assert value(OTHERS) is None
    totals["small"] = 5.0
    metric.set(totals)
    assert (value("s0"), value("small"), value(OTHERS)) == (100.0, None, 5.0)
    # It grows past another one: from then on it is named, and what it had stays with the others.
    totals["small"] = 500.0
    metric.set(totals)
    assert (value("s0"), value("small"), value(OTHERS)) == (None, 495.0, 5.0)
    totals["s0"] += 0.5
    metric.set(totals)
    assert value(OTHERS) == 5.5
    # A stream that was forgotten begins again.
    totals["small"] = 3.0
    totals["s0"] = 400.0
    metric.set(totals)
    assert value(OTHERS) == 8.5
