"""The format in the simulation: objects are cut, fetched again, resumed by other workers."""

from random import Random

import numpy as np
from quads import MAGIC

from penstock.testing import Answers, Payload, RowOptions, Scenario, simulate


def answer(payload: Payload) -> Answers:
    """A model of your own: the same answer to a row, whatever other rows come with it."""
    return Answers([b"%g" % mean for mean in np.mean(payload.values, axis=1)], {})


def make_object(random: Random) -> tuple[str, bytes]:
    records = np.array([[random.random() for _ in range(4)] for _ in range(random.randint(1, 40))])
    return ".quads", MAGIC + records.astype("<f8").tobytes()


def test_no_row_is_lost_whatever_happens() -> None:
    scenario = Scenario(answer=answer, make_object=make_object, rows=RowOptions())
    assert sum(simulate(seed, scenario).rows for seed in range(20)) > 100
