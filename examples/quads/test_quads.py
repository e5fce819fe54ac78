"""The format in the simulation: objects are cut, fetched again, resumed by other workers."""

from random import Random

import numpy as np
from quads import MAGIC

from penstock.testing import RowOptions, Scenario, simulate


def make_object(random: Random) -> tuple[str, bytes]:
    records = np.array([[random.random() for _ in range(4)] for _ in range(random.randint(0, 40))])
    return ".quads", MAGIC + records.astype("<f8").tobytes()


def test_no_row_is_lost_whatever_happens() -> None:
    scenario = Scenario(make_object=make_object, rows=RowOptions())
    assert sum(simulate(seed, scenario).rows for seed in range(20)) > 0
