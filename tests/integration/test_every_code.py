"""Every request by every code that a broker can give: 1,100 pairs, some 40 minutes.

Rule: whatever one answer says, the message is answered, by this worker or by the next one; a worker
that ends says so with a code of its own, and never hangs. It runs with EVERY_CODE=1, as
`scripts/test long` has it.
"""

import asyncio
import os
from collections import Counter
from collections.abc import Callable

import pytest

from tests.integration.conftest import MakeTopics
from tests.support.broker_stage import OLDER, ending, stage
from tests.support.kafka_proxy import Act, Api, parts, refuse, spoil
from tests.support.services import Services

MakeAct = Callable[[int], Act]
# The protocol's codes as of Kafka 4.1, and one that nobody has given out.
CODES = [-1, *range(1, 134), 999]
# Where the code stands: beside each partition, or at the top.
ACTS: dict[str, dict[Api, tuple[MakeAct, ...]]] = {
    "at_least_once": {
        Api.FETCH: (parts, spoil),
        Api.OFFSET_COMMIT: (refuse,),
        Api.OFFSET_FETCH: (parts, spoil),
        Api.FIND_COORDINATOR: (spoil,),
        Api.JOIN_GROUP: (refuse,),
        Api.SYNC_GROUP: (refuse,),
        Api.HEARTBEAT: (refuse,),
        Api.PRODUCE: (refuse,),
    },
    "exactly_once": {
        Api.INIT_PRODUCER_ID: (refuse,),
        Api.TXN_OFFSET_COMMIT: (refuse,),
        Api.END_TXN: (refuse,),
        Api.PRODUCE: (refuse,),
    },
    OLDER: {
        Api.ADD_PARTITIONS_TO_TXN: (refuse,),
        Api.ADD_OFFSETS_TO_TXN: (refuse,),
        Api.END_TXN: (refuse,),
    },
}
CASES = [
    (guarantee, api, act)
    for guarantee, apis in ACTS.items()
    for api, acts in apis.items()
    for act in acts
]


@pytest.mark.stack
@pytest.mark.timeout(1_800)
@pytest.mark.skipif(not os.environ.get("EVERY_CODE"), reason="some 40 minutes: scripts/test long")
@pytest.mark.parametrize(
    "case", CASES, ids=lambda case: f"{case[0]}-{case[1].name}-{case[2].__name__}"
)
async def test_whatever_one_answer_says_the_message_is_answered(
    services: Services, make_topics: MakeTopics, case: tuple[str, Api, MakeAct]
) -> None:
    guarantee, api, act = case
    wrong: list[str] = []
    outcomes: Counter[str] = Counter()
    at_a_time = asyncio.Semaphore(8)

    async def one(code: int) -> None:
        async with at_a_time:
            topics = await make_topics(1)
            async with stage(services, topics, guarantee) as world:
                world.proxy.plan(api, act(code))
                exit_code, log = await ending(world)
            if log == "it went on":
                outcomes["answered"] += 1
                return
            outcomes[f"exit {exit_code}"] += 1
            if exit_code not in (2, 3, 4):
                wrong.append(f"{code}: {exit_code}, {log}")
                return
            async with stage(services, topics, guarantee) as world:
                _, log = await ending(world, offset=1)
            if log != "it went on":
                wrong.append(f"{code}: the next worker: {log}")

    async with asyncio.TaskGroup() as tasks:
        for code in CODES:
            tasks.create_task(one(code))
    print(f"{guarantee} {api.name} {act.__name__}: {dict(outcomes)}")  # noqa: T201
    assert not wrong, "\n".join(wrong)
