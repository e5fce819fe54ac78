"""One seed is one history; a world of your own is simulated like ours."""

import os
import re
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pytest

from penstock.core.rows.payload import Matrix, Payload
from penstock.errors import Rejected
from penstock.formats.runs import RowOptions
from penstock.formats.text.csv_dialect import CsvOptions
from penstock.ports import Answers
from penstock.tools.simulation import simulation
from penstock.tools.simulation.checks.history import Violation
from penstock.tools.simulation.simulation import Scenario, simulate
from penstock.tools.simulation.world import MANNERS

PRINT_DIGESTS = """
from penstock.tools.simulation.simulation import simulate
print(*(simulate(seed).digest for seed in range(12)))
"""


def test_a_seed_replays_exactly_in_any_process() -> None:
    def digests(hash_seed: str) -> Sequence[str]:
        environment = os.environ | {"PYTHONHASHSEED": hash_seed}
        return subprocess.run(
            [sys.executable, "-c", PRINT_DIGESTS],
            env=environment,
            check=True,
            capture_output=True,
            text=True,
        ).stdout.split()

    here = [simulate(seed).digest for seed in range(12)]
    assert digests("1") == digests("2") == here
    assert len(set(here)) == 12


def test_with_a_shadow_each_history_is_the_one_without_it() -> None:
    """Whatever the shadow does, live work does the same at the same instants."""
    seen: set[str] = set()
    for seed in range(40):
        alone, shaded = simulate(seed), simulate(seed, Scenario(shadow=True))
        assert (shaded.instants, shaded.rows) == (alone.instants, alone.rows), seed
        seen |= shaded.counts.keys()
    assert seen >= {f"shadow {manner}" for manner in MANNERS}


def test_a_promise_that_is_broken_at_the_end_is_raised_alone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(simulation, "MOVES_S", -1.0)
    for seed in (2, 3, 6):  # in these something is left to do after the last trouble
        with pytest.raises(Violation, match=f"seed {seed}: refs/. does not move"):
            simulate(seed)


def means(payload: Payload) -> Answers:
    """A model of one's own; it cannot take rows that hold a negative number."""
    assert isinstance(payload, Matrix)
    if (payload.values < 0).any():
        raise Rejected("model_rejected", "negative")
    return Answers([b"%g" % mean for mean in np.mean(payload.values, axis=1)], {})


def sheets(random: Random) -> tuple[str, bytes]:
    """Objects of one's own: three columns under a header."""
    rows = [[random.randint(-1, 50) for _ in range(3)] for _ in range(random.randint(1, 20))]
    lines = ["a,b,c", *(",".join(map(str, row)) for row in rows)]
    return ".csv", "\n".join(lines).encode()


def test_a_model_and_objects_of_ones_own_are_simulated() -> None:
    own = Scenario(
        answer=means, make_object=sheets, rows=RowOptions(own=(CsvOptions(header="yes"),))
    )
    assert sum(simulate(seed, own).rows for seed in range(30)) > 300


def test_the_example_of_the_documentation_runs() -> None:
    page = (Path(__file__).parents[2] / "docs" / "simulation.md").read_text()
    (example,) = re.findall(r"^```python\n(.*?)^```$", page, re.MULTILINE | re.DOTALL)
    names: dict[str, Any] = {}
    exec(example, names)
    names["test_my_pipeline_keeps_its_promises"]()
