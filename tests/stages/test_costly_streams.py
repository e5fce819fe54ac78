"""Streams whose rows take the model much longer than others', beside those that they must not hold
up.
"""

from collections.abc import Sequence
from typing import Any, cast

import pytest

from penstock.core.rows.payload import Matrix, Payload
from penstock.errors import Poison
from penstock.ports import Answers
from penstock.tools.simulation.virtual_time import virtual_time
from tests.support.shared_model import SharedModel

HZ, SECONDS = 5, 15.0
SETTLED_S = 8.0
DEAR = "s0"
OTHERS = [f"s{number}" for number in range(1, 8)]


async def eight(dear_s: float, *, servers: int, **terms: Any) -> SharedModel:
    """Eight streams, whose rows take 4 ms. Those of one take `dear_s`."""
    row_s = dict.fromkeys((DEAR, *OTHERS), 0.004) | {DEAR: dear_s}
    model = SharedModel(row_s, servers=servers, **terms)
    await model.run(SECONDS, HZ)
    return model


ALONE_S = 0.011
ELSEWHERE = OTHERS[:6]


@pytest.mark.parametrize(
    ("dear_s", "most", "terms"),
    [
        (0.2, 1.5, {"servers": 2, "callers": 2}),
        (1.5, 1.5, {"servers": 2, "callers": 2}),
        (1.5, 1.5, {"servers": 4, "callers": 4}),
        # Ever more calls at a time are tried, as long as they bring more answers.
        (1.5, 2.0, {"servers": 4, "callers": 64, "begin_calls": 2}),
    ],
)
@virtual_time
async def test_seven_streams_are_as_soon_as_without_the_dear_one(
    dear_s: float, most: float, terms: dict[str, int]
) -> None:
    model = await eight(dear_s, **terms)
    assert model.quantile_s(0.99, OTHERS, since_s=SETTLED_S) <= most * ALONE_S
    # What the others leave is its own.
    free = min(HZ * SECONDS, (terms["servers"] - 1) * SECONDS / dear_s)
    assert model.answered[DEAR] >= 0.7 * free


@virtual_time
async def test_the_seven_alone_take_as_long_as_the_tests_above_take_for_granted() -> None:
    model = await eight(0.004, servers=4)
    assert model.quantile_s(0.99, OTHERS, since_s=SETTLED_S) == pytest.approx(ALONE_S, abs=0.002)


@pytest.mark.parametrize("callers", [1, 4])
@virtual_time
async def test_on_a_server_that_takes_one_call_at_a_time_the_others_wait_for_one_row(
    callers: int,
) -> None:
    model = await eight(0.2, servers=1, callers=callers)
    assert model.quantile_s(0.5, OTHERS, since_s=SETTLED_S) <= 0.2
    assert model.quantile_s(0.99, OTHERS, since_s=SETTLED_S) <= 1.6 * 0.2
    assert model.answered[DEAR] >= 0.6 * SECONDS / 0.2


def slow_and_mate(*, by_stream: bool) -> SharedModel:
    """A row of one stream takes five seconds. One of the others has the same partition."""
    row_s = {"slow": 5.0, "mate": 0.004, **dict.fromkeys(ELSEWHERE, 0.004)}
    model = SharedModel(row_s, by_stream=by_stream)
    model.partition_of |= dict.fromkeys(("slow", "mate"), 0)
    return model


@virtual_time
async def test_a_slow_call_holds_only_answers_that_the_order_puts_behind_it() -> None:
    model = slow_and_mate(by_stream=False)
    await model.run(25.0, HZ)
    assert model.quantile_s(0.99, ELSEWHERE, since_s=20.0) <= 0.05
    assert model.quantile_s(0.5, ["mate"], since_s=20.0) > 5.0


@virtual_time
async def test_with_order_for_each_stream_it_holds_only_those_of_its_stream() -> None:
    model = slow_and_mate(by_stream=True)
    await model.run(25.0, HZ)
    assert model.quantile_s(0.99, ["mate", *ELSEWHERE], since_s=20.0) <= 0.05


@virtual_time
async def test_a_stream_whose_answers_are_too_long_takes_others_with_it_once() -> None:
    model = SharedModel(dict.fromkeys((DEAR, *OTHERS), 0.004))
    answer, shared = model.world.model.script, 0
    assert answer is not None

    async def script(payloads: Sequence[Payload]) -> Answers | None:
        nonlocal shared
        streams = {number for one in payloads for number in cast("Matrix", one).values[:, 0]}
        if 0.0 in streams:
            shared += len(streams) > 1
            raise Poison("result_too_large", "an answer of 62 MiB")
        return await answer(payloads)

    model.world.model.script = script
    await model.run(SECONDS, HZ, rows=3)
    assert shared <= 3  # the halves of the first call
    assert min(model.answered.values()) >= (HZ * SECONDS - 1) * 3
