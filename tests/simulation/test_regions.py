"""Three regions, of which one is cut off: nothing lost, order kept, and the bytes stay near."""

from collections import Counter

import pytest

from penstock.tools.simulation import regions
from penstock.tools.simulation.checks.history import Violation
from penstock.tools.simulation.regions import simulate_regions

SEEDS = 12


def test_a_region_that_is_cut_off_costs_no_row_and_no_order() -> None:
    counts: Counter[str] = Counter()
    for seed in range(SEEDS):
        counts.update(simulate_regions(seed).counts)
    assert min(counts["cut off"], counts["killed"], counts["help"]) >= SEEDS


def test_a_seed_is_one_history() -> None:
    assert simulate_regions(0).digest == simulate_regions(0).digest


def test_a_promise_that_is_broken_at_the_end_is_raised_alone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(regions, "RECOVERY_S", -1.0)
    with pytest.raises(Violation, match="seed 1: not all is answered"):
        simulate_regions(1)
