"""How long a member may be without its group."""

import asyncio
from collections.abc import Callable

import pytest

from penstock.adapters.kafka.group.membership import JoinDeadline
from penstock.errors import EXIT_UNREACHABLE, Fatal, Unreachable
from penstock.tools.simulation.virtual_time import virtual_time

REBALANCE_S, SESSION_S, TIMEOUT_S = 30.0, 8.0, 120.0


def now_s() -> float:
    return asyncio.get_running_loop().time()


async def ends_s(answers: Callable[[], bool]) -> float:
    """When a member ends that is never let in."""

    async def ask() -> None:
        if not answers():
            raise Unreachable("refused")

    membership = JoinDeadline(
        "g", ask, timeout_s=TIMEOUT_S, rebalance_s=REBALANCE_S, session_s=SESSION_S
    )
    began_s = now_s()

    async def wait() -> None:
        while True:
            await membership.check(began_s)
            await asyncio.sleep(0.5)

    with pytest.raises(Fatal, match="group g") as ended:
        await wait()
    assert ended.value.exit_code == EXIT_UNREACHABLE
    return now_s() - began_s


@virtual_time
async def test_where_the_broker_answers_a_rebalance_and_twice_the_session_are_the_most() -> None:
    bound_s = REBALANCE_S + 2 * SESSION_S
    assert bound_s <= await ends_s(lambda: True) <= bound_s + 5.0


@virtual_time
async def test_a_broker_that_is_away_is_waited_for_and_then_lets_the_member_join_in_peace() -> None:
    assert await ends_s(lambda: False) >= TIMEOUT_S
    back_s = now_s() + 60.0
    assert await ends_s(lambda: now_s() > back_s) >= 60.0 + REBALANCE_S + 2 * SESSION_S - 5.0
