"""How long requests of a trial wait on their way to a service that is far away."""

import random
import statistics

import pytest
from click.testing import CliRunner

from penstock.bench.distance import Slow, Way, wait_s
from penstock.commands.demo_and_bench import bench


def waits_ms(way: Way) -> list[float]:
    chance = random.Random(1)
    return [1000 * wait_s(way, chance) for _ in range(20_000)]


def test_half_of_the_requests_wait_longer_than_the_distance() -> None:
    found = waits_ms(Way("store", 80, "http", wait_ms=30, spread=0.4))
    assert statistics.median(found) == pytest.approx(30, rel=0.02)
    assert statistics.quantiles(found, n=100)[-1] == pytest.approx(30 * 2.5, rel=0.1)


def test_a_share_of_the_requests_is_slow() -> None:
    found = waits_ms(Way("store", 80, "http", wait_ms=3, spread=0.4, slow=Slow(0.02, 1000)))
    assert found.count(1000) / len(found) == pytest.approx(0.02, rel=0.2)


@pytest.mark.parametrize("text", ["0.002", "a:b", "2:1000", "0.1:-1", "0.1:70000"])
def test_a_share_that_is_none_is_refused(text: str) -> None:
    answer = CliRunner().invoke(bench, ["streams", "--slow", text])
    assert answer.exit_code == 2
    assert "--slow" in answer.output
