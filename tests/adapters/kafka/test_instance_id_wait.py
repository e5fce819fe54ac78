"""How long a place in use is waited for."""

import asyncio

import pytest

from penstock.adapters.kafka.group.membership import MARGIN_S, InstanceIdWait
from penstock.errors import EXIT_UNREACHABLE, Fatal
from penstock.tools.simulation.virtual_time import virtual_time


@virtual_time
async def test_a_place_is_waited_for_as_long_as_a_dead_member_may_have_it() -> None:
    wait = InstanceIdWait(session_s=45.0)
    now = asyncio.get_running_loop().time
    began_s = now()

    async def wait_forever() -> None:
        while True:
            await wait.pause("pod-7")

    with pytest.raises(Fatal, match="another worker has it") as ended:
        await wait_forever()
    assert ended.value.exit_code == EXIT_UNREACHABLE
    assert 45.0 < now() - began_s <= 45.0 + MARGIN_S + 2.0


@virtual_time
async def test_after_a_place_was_had_the_next_is_waited_for_as_long_again() -> None:
    wait = InstanceIdWait(session_s=45.0)
    await wait.pause("pod-7")
    wait.end()
    await asyncio.sleep(3_600.0)
    await wait.pause("pod-7")


@virtual_time
async def test_a_refusal_long_after_the_last_one_begins_a_wait_of_its_own() -> None:
    wait = InstanceIdWait(session_s=45.0)
    await wait.pause("pod-7")
    await asyncio.sleep(3_600.0)  # as a member without a partition, which nobody tells
    await wait.pause("pod-7")
