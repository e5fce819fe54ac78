"""How the view puts numbers."""

import pytest

from consumers.demo.view import percentile


@pytest.mark.parametrize(
    ("latencies_ms", "text"),
    [([], "-"), ([17.2], "17 ms"), ([0.0, 999.0], "500 ms"), ([9_130.0], "9.1 s")],
)
def test_latencies_are_shown_in_the_unit_that_fits(latencies_ms: list[float], text: str) -> None:
    assert percentile(latencies_ms, 50) == text
