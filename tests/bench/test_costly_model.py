"""The model server whose time for a row depends on the stream."""

import numpy as np
import pytest

from penstock.tools.bench.costly_model import BASE_S, CostlyModel, Costs
from penstock.tools.bench.object_bodies import csv_body
from penstock.tools.bench.tick_generator import OBJECTS_PER_STREAM

ROWS, STREAMS = 8, 5


def firsts(stream: int, tick: int) -> list[float]:
    """The first numbers of an object's rows, as a worker reads them."""
    body = csv_body(ROWS, stream * OBJECTS_PER_STREAM + tick).decode()
    return [float(np.float32(line.split(",")[0])) for line in body.splitlines()]


def test_a_row_of_the_nth_stream_takes_the_nth_part_of_what_the_first_ones_takes() -> None:
    model = CostlyModel(Costs("zipf", 2.0, ROWS, STREAMS))
    for stream in range(STREAMS):
        for tick in (0, OBJECTS_PER_STREAM - 1):
            rows_s = model.takes_s(firsts(stream, tick)) - BASE_S
            assert rows_s == pytest.approx(ROWS * 0.002 / (stream + 1))


def test_a_call_takes_as_long_as_all_its_rows() -> None:
    model = CostlyModel(Costs("zipf", 2.0, ROWS, STREAMS))
    together = model.takes_s([*firsts(0, 1), *firsts(1, 2)])
    assert together == pytest.approx(BASE_S + ROWS * 0.002 * 1.5)


def test_one_stream_is_fifty_times_as_dear_as_each_other() -> None:
    costs = Costs("one", 200.0, ROWS, 8)
    assert [costs.row_s(stream) for stream in range(8)] == [0.2] + 7 * [0.004]


def test_equal_streams_take_together_what_sixty_of_a_zipf_law_take() -> None:
    laws = [Costs(law, 2.0, ROWS, 60) for law in ("equal", "zipf")]
    sums = [sum(law.row_s(stream) for stream in range(60)) for law in laws]
    assert sums[0] == pytest.approx(sums[1])
    assert laws[0].row_s(0) == laws[0].row_s(59)
