"""Request by error: what a worker does with each answer that a broker may give.

Rule: a pipeline on the real broker, through a proxy that spoils one request at a time; store and
model are in memory. A step is one row of the table: what is spoilt, then a message, which must be
answered and committed. Where exactly once is promised, readers of committed records see it once.
"""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import NamedTuple

import pytest
from msgspec.structs import replace

from penstock import config
from penstock.adapters.kafka.client import KafkaLogin
from penstock.adapters.kafka.sink import KafkaSink
from penstock.errors import Fatal
from penstock.ops.topic_checks import mind_topics
from penstock.ports import Outgoing
from penstock.process.asyncio_additions import SystemClock, stopped_after
from tests.integration.conftest import MakeTopics
from tests.support.broker_stage import CLIENTS, GOES_ON, OLDER, Client, Stage, ending, stage
from tests.support.kafka_proxy import (
    CUT,
    LOSE,
    TWICE,
    Act,
    Api,
    hold,
    parts,
    proxy_before,
    refuse,
    spoil,
)
from tests.support.services import Services, Topics
from tests.support.topic_tools import broker_of
from tests.support.waiting import until

# A broker's codes, as its protocol numbers them.
UNKNOWN, CORRUPT, NO_TOPIC, NO_LEADER, NOT_LEADER, TIMED_OUT = -1, 2, 3, 5, 6, 7
TOO_LARGE, METADATA_TOO_LARGE, LOADING, NOT_AVAILABLE, MOVED = 10, 12, 14, 15, 16
FEW_REPLICAS, FEW_REPLICAS_AFTER, GENERATION, PROTOCOL, MEMBER = 19, 20, 22, 23, 25
SESSION, REBALANCING, COMMIT_TOO_LARGE, TOPIC_RIGHTS, GROUP_RIGHTS = 26, 27, 28, 29, 30
LIST_TOO_LARGE, INVALID_TIME, TXN_TIMEOUT, INVALID_RECORD = 18, 32, 50, 87
OUT_OF_ORDER, FENCED, TXN_STATE, PID_MAPPING, CONCURRENT = 45, 47, 48, 49, 51
TXN_RIGHTS, STORAGE, UNKNOWN_PRODUCER, ABORTABLE = 53, 56, 59, 120
# Newer than aiokafka's table of codes.
FENCED_EPOCH, OFFSET_NOT_AVAILABLE, GROUP_FULL, FENCED_INSTANCE = 74, 78, 81, 82


class Step(NamedTuple):
    """What happens to the next requests of some kinds."""

    acts: dict[Api, Sequence[Act]]

    def __str__(self) -> str:
        return " ".join(
            f"{api.name}:{','.join(f'{act.how}{act.code or str()}' for act in acts)}"
            for api, acts in self.acts.items()
        )


def each(api: Api, *acts: Act) -> list[Step]:
    """One after the other."""
    return [Step({api: (act,)}) for act in acts]


def rejoining(api: Api, *acts: Act) -> Step:
    """All of them in one rebalance, as each is tried again."""
    return Step({Api.HEARTBEAT: (refuse(REBALANCING),), api: acts})


def looking_up(*acts: Act) -> Step:
    return Step({Api.OFFSET_COMMIT: (refuse(MOVED),), Api.FIND_COORDINATOR: acts})


LATE = hold(1.0)
READING = [
    *(Step({api: (LATE,)}) for api in (Api.FETCH, Api.HEARTBEAT, Api.METADATA)),
    *each(Api.FETCH, *(parts(code) for code in (NO_TOPIC, NOT_LEADER, UNKNOWN, STORAGE))),
    *each(Api.FETCH, parts(FENCED_EPOCH), parts(OFFSET_NOT_AVAILABLE), spoil(UNKNOWN), CUT, LOSE),
    *(Step({Api.FETCH: (parts(NOT_LEADER),), Api.METADATA: (act,)}) for act in (CUT, LOSE)),
    # Its topic is gone from the client's list, and so from the group's partitions, until the next.
    *(
        Step({Api.FETCH: (parts(NOT_LEADER),), Api.METADATA: (spoil(code),)})
        for code in (NO_LEADER, NO_TOPIC)
    ),
]
MEMBERSHIP = [
    *each(Api.HEARTBEAT, refuse(NOT_AVAILABLE), refuse(MOVED), CUT),
    Step({Api.HEARTBEAT: (refuse(GENERATION),)}),
    Step({Api.HEARTBEAT: (refuse(MEMBER),)}),
    rejoining(
        Api.JOIN_GROUP, refuse(LOADING), refuse(NOT_AVAILABLE), refuse(MOVED), refuse(MEMBER), CUT
    ),
    rejoining(
        Api.SYNC_GROUP,
        *(refuse(code) for code in (NOT_AVAILABLE, MOVED, GENERATION, MEMBER, REBALANCING)),
        LOSE,
    ),
    rejoining(
        Api.OFFSET_FETCH,
        *(spoil(code) for code in (LOADING, NOT_AVAILABLE, MOVED, LOADING, LOADING)),
        *(parts(code) for code in (LOADING, MOVED)),
        CUT,
        LOSE,
    ),
]
COMMITS = [
    *each(Api.OFFSET_COMMIT, LATE),
    *each(Api.OFFSET_COMMIT, *(refuse(code) for code in (NO_TOPIC, TIMED_OUT, LOADING, MOVED))),
    *each(Api.OFFSET_COMMIT, refuse(NOT_AVAILABLE), spoil(TIMED_OUT), CUT, LOSE, TWICE),
    *each(Api.OFFSET_COMMIT, refuse(GENERATION), refuse(MEMBER), refuse(REBALANCING)),
    looking_up(spoil(NOT_AVAILABLE), spoil(LOADING), CUT, LOSE),
]
DELIVERIES = [
    *each(Api.PRODUCE, LATE),
    *each(
        Api.PRODUCE,
        *(refuse(code) for code in (NO_TOPIC, NO_LEADER, NOT_LEADER, TIMED_OUT)),
        *(refuse(code) for code in (FEW_REPLICAS, FEW_REPLICAS_AFTER, STORAGE)),
        # About the record: its time is moved, or it is answered by an error in its place.
        *(refuse(code) for code in (INVALID_TIME, TOO_LARGE, LIST_TOO_LARGE, INVALID_RECORD)),
        *(refuse(code) for code in (UNKNOWN, CORRUPT)),
        spoil(TIMED_OUT),
        spoil(FEW_REPLICAS_AFTER),
        CUT,
        LOSE,
        TWICE,
    ),
]
COORDINATOR = (LOADING, NOT_AVAILABLE, MOVED, CONCURRENT)
# What brokers before Kafka 4.0 are told first.
ADDING = [
    *(
        Step({api: tuple(refuse(code) for code in COORDINATOR)})
        for api in (Api.ADD_PARTITIONS_TO_TXN, Api.ADD_OFFSETS_TO_TXN)
    ),
    *(
        Step({api: (CUT, LOSE, spoil(NOT_AVAILABLE))})
        for api in (Api.ADD_PARTITIONS_TO_TXN, Api.ADD_OFFSETS_TO_TXN)
    ),
    Step({Api.ADD_PARTITIONS_TO_TXN: (LATE,)}),
    # A new producer, and so another transactional id's epoch.
    *each(Api.ADD_PARTITIONS_TO_TXN, refuse(TXN_STATE), refuse(PID_MAPPING), refuse(TIMED_OUT)),
    *each(Api.ADD_OFFSETS_TO_TXN, refuse(TXN_STATE)),
]
TRANSACTIONS = [
    *each(Api.END_TXN, LATE),
    Step({Api.END_TXN: tuple(refuse(code) for code in COORDINATOR)}),
    Step({Api.PRODUCE: (refuse(CONCURRENT),)}),
    Step({Api.TXN_OFFSET_COMMIT: tuple(refuse(code) for code in (*COORDINATOR, TIMED_OUT))}),
    Step({Api.TXN_OFFSET_COMMIT: (CUT, LOSE, spoil(NOT_AVAILABLE))}),
    *each(Api.END_TXN, CUT, LOSE, spoil(MOVED), TWICE),
    *each(Api.TXN_OFFSET_COMMIT, TWICE, refuse(PID_MAPPING), refuse(ABORTABLE), spoil(ABORTABLE)),
    *each(Api.END_TXN, refuse(TXN_STATE), spoil(TXN_STATE), refuse(ABORTABLE)),
    *each(Api.PRODUCE, refuse(OUT_OF_ORDER), refuse(UNKNOWN_PRODUCER), refuse(UNKNOWN)),
    *each(Api.PRODUCE, refuse(ABORTABLE), spoil(ABORTABLE)),
    Step(
        {
            Api.END_TXN: (refuse(TXN_STATE),),
            Api.INIT_PRODUCER_ID: (*(refuse(code) for code in COORDINATOR), CUT, LOSE),
        }
    ),
    Step({Api.END_TXN: (refuse(TXN_STATE),), Api.OFFSET_FETCH: (spoil(LOADING), spoil(MOVED))}),
    # Fenced, and yet the owner: it waits for 5 s each time.
    *each(Api.PRODUCE, refuse(FENCED)),
    *each(Api.END_TXN, spoil(FENCED)),
]

# Each with a worker of its own, at the same time: most of it is pauses of the clients.
TABLE = {
    "at_least_once": [READING, MEMBERSHIP, COMMITS, DELIVERIES],
    "exactly_once": [
        TRANSACTIONS[::2],
        TRANSACTIONS[1::2],
        DELIVERIES,
        READING[:3] + MEMBERSHIP[-2:],
    ],
    OLDER: [ADDING, TRANSACTIONS[:10], TRANSACTIONS[-2:]],
}

# Guarantee, request, what happens to it, exit code: restarting mends 3; 2 and 4 want a person.
ENDS: list[tuple[str, Api, Act, int]] = [
    *(("at_least_once", Api.PRODUCE, refuse(code), 4) for code in (FENCED, OUT_OF_ORDER)),
    ("at_least_once", Api.PRODUCE, refuse(TOPIC_RIGHTS), 2),
    ("at_least_once", Api.FETCH, parts(TOPIC_RIGHTS), 2),
    *(
        ("at_least_once", Api.OFFSET_COMMIT, refuse(code), 2)
        for code in (METADATA_TOO_LARGE, COMMIT_TOO_LARGE)
    ),
    *(
        ("at_least_once", Api.OFFSET_COMMIT, refuse(code), 2)
        for code in (TOPIC_RIGHTS, GROUP_RIGHTS)
    ),
    ("at_least_once", Api.FIND_COORDINATOR, spoil(GROUP_RIGHTS), 2),
    *(("at_least_once", Api.JOIN_GROUP, refuse(code), 2) for code in (PROTOCOL, SESSION)),
    *(("at_least_once", Api.JOIN_GROUP, refuse(code), 3) for code in (GROUP_FULL, TIMED_OUT)),
    ("at_least_once", Api.JOIN_GROUP, refuse(GROUP_RIGHTS), 2),
    ("at_least_once", Api.SYNC_GROUP, refuse(GROUP_RIGHTS), 2),
    ("at_least_once", Api.SYNC_GROUP, refuse(TIMED_OUT), 3),
    ("at_least_once", Api.HEARTBEAT, refuse(GROUP_RIGHTS), 2),
    ("at_least_once", Api.HEARTBEAT, refuse(FENCED_INSTANCE), 2),
    ("at_least_once", Api.OFFSET_FETCH, spoil(GROUP_RIGHTS), 2),
    ("exactly_once", Api.INIT_PRODUCER_ID, refuse(TXN_RIGHTS), 2),
    ("exactly_once", Api.PRODUCE, refuse(TXN_RIGHTS), 2),
    ("exactly_once", Api.PRODUCE, refuse(TOPIC_RIGHTS), 2),
    (OLDER, Api.ADD_PARTITIONS_TO_TXN, refuse(TXN_RIGHTS), 2),
    (OLDER, Api.ADD_PARTITIONS_TO_TXN, refuse(TOPIC_RIGHTS), 2),
    (OLDER, Api.ADD_OFFSETS_TO_TXN, refuse(GROUP_RIGHTS), 2),
    ("exactly_once", Api.TXN_OFFSET_COMMIT, refuse(GROUP_RIGHTS), 2),
    ("exactly_once", Api.INIT_PRODUCER_ID, refuse(TXN_TIMEOUT), 2),
]


# A step of 23 refusals, each with a client's pause, on a machine that has much else to do.
BUSY_S = 120.0
# Longer than a rebalance.
NUDGE_S = 10.0
# So long a worker waits for a batch that nobody takes, before it asks whether the topic is there.
UNTAKEN_MS = 15_000
# librdkafka tries these again, and three refusals pass over.
TRIED_AGAIN = {
    (Api.JOIN_GROUP, GROUP_FULL),
    (Api.JOIN_GROUP, TIMED_OUT),
    (Api.SYNC_GROUP, TIMED_OUT),
    (Api.SYNC_GROUP, GROUP_RIGHTS),
    (Api.HEARTBEAT, GROUP_RIGHTS),
}


# 80 s on two free cores, nearly all of it pauses of the clients: so up to eight parts at once.
@pytest.mark.timeout(900)
@pytest.mark.stack
@pytest.mark.parametrize("client", CLIENTS)
@pytest.mark.parametrize("guarantee", list(TABLE))
async def test_what_passes_over_costs_no_row(
    services: Services, make_topics: MakeTopics, guarantee: str, client: Client
) -> None:
    async with asyncio.TaskGroup() as tasks:
        for part in TABLE[guarantee]:
            for steps in (part[::2], part[1::2]):
                topics = await make_topics(1)
                tasks.create_task(costs_no_row(services, topics, guarantee, steps, client))


@asynccontextmanager
async def nudged(world: Stage, step: Step) -> AsyncIterator[None]:
    """A member that is joining already does not hear that it should: it is told again."""

    async def nudge() -> None:
        while step.acts.get(Api.HEARTBEAT) == (refuse(REBALANCING),) and len(step.acts) > 1:
            await asyncio.sleep(NUDGE_S)
            world.proxy.plan(Api.HEARTBEAT, refuse(REBALANCING))

    async with asyncio.TaskGroup() as tasks:
        nudging = tasks.create_task(nudge())
        yield
        nudging.cancel()


async def costs_no_row(
    services: Services, topics: Topics, guarantee: str, steps: Sequence[Step], client: Client
) -> None:
    async with stage(services, topics, guarantee, client) as world:
        await world.answer_one(0, "the start")
        for number, step in enumerate(steps, start=1):
            for api, acts in step.acts.items():
                world.proxy.plan(api, *acts)
            async with nudged(world, step):
                await world.answer_one(number, step, within_s=BUSY_S)
        found: Counter[int] = Counter()

        async def are_read() -> bool:
            # The broker ends a transaction first where the positions are, or first in the output.
            records = (await world.broker.records(topics.output))[0]
            found.clear()
            found.update(record.document["source"]["offset"] for record in records)
            return len(found) > len(steps)

        await until(are_read, lambda: f"{len(steps) + 1} answers; there are {found}")
    assert sorted(found) == list(range(len(steps) + 1))
    if guarantee != "at_least_once":
        assert max(found.values()) == 1, found


# 28 workers, eight at a time.
@pytest.mark.timeout(900)
@pytest.mark.stack
@pytest.mark.parametrize("client", CLIENTS)
async def test_what_does_not_pass_over_ends_the_worker_with_the_code_that_says_so(
    services: Services, make_topics: MakeTopics, client: Client
) -> None:
    wrong: list[str] = []
    at_a_time = asyncio.Semaphore(8)

    async def one(guarantee: str, api: Api, act: Act, code: int | None) -> None:
        if client == "confluent" and (api, act.code) in TRIED_AGAIN:
            code = None
        async with at_a_time:
            topics = await make_topics(1)
            async with stage(services, topics, guarantee, client) as world:
                world.proxy.plan(api, *[act] * 3)
                ended = await ending(world)
            if ended[0] != code:
                wrong.append(f"{guarantee} {api.name} {act.how} {act.code}: {ended}, not {code}")

    async with asyncio.TaskGroup() as tasks:
        for row in ENDS:
            tasks.create_task(one(*row))
    assert not wrong, "\n".join(wrong)


@pytest.mark.stack
async def test_a_member_that_its_group_does_not_take_ends_with_3(
    services: Services, make_topics: MakeTopics
) -> None:
    """The broker answers all else, so waiting longer than a rebalance takes mends nothing."""

    async def ends(topics: Topics, client: Client) -> None:
        async with stage(services, topics, "at_least_once", client) as world:
            world.proxy.plan(Api.JOIN_GROUP, *[refuse(LOADING)] * 100_000)
            code, log = await ending(world, within_s=150.0)
        assert code == 3, (client, log)
        assert "has not had us as a member" in log

    async with asyncio.TaskGroup() as tasks:  # as each waits for half a minute
        for client in CLIENTS:
            tasks.create_task(ends(await make_topics(1), client))


@pytest.mark.stack
async def test_a_topic_that_is_deleted_is_called_gone_by_the_batch_that_nobody_takes(
    services: Services, topics: Topics
) -> None:
    async with stage(services, topics, "at_least_once", timeout_ms=UNTAKEN_MS) as world:
        await world.answer_one(0, "the start")
        await world.broker.delete([topics.output])
        code: int | None = None
        said, offset = GOES_ON, 1
        while said == GOES_ON:  # its leader may take a batch that comes at once
            code, said = await ending(world, offset, within_s=150.0)
            offset += 1
    assert code == 2, said
    assert f"there is no topic {topics.output}" in said
    assert "penstock topics create" in said


@pytest.mark.stack
async def test_a_topic_that_is_gone_before_a_batch_is_accepted_is_called_gone_too(
    services: Services,
) -> None:
    kafka = config.Kafka(bootstrap_servers=services.bootstrap_servers, timeout_ms=3_000)
    sink = KafkaSink(kafka, SystemClock())
    async with stopped_after(sink.stop):
        await sink.start()
        with pytest.raises(Fatal, match="there is no topic gone") as caught:
            await sink.send(Outgoing("gone", 0, [None], [b"{}"]))
    assert caught.value.exit_code == 2


@pytest.mark.stack
async def test_a_broker_that_does_not_know_the_topics_for_two_looks_ends_no_worker(
    services: Services, topics: Topics
) -> None:
    """The code means "ask again", as a broker says it, too, while it still reads what there is."""
    async with proxy_before(services.bootstrap_servers) as proxy:
        kafka = config.Kafka(bootstrap_servers=proxy.address, input_topic=topics.input)
        output = config.Output(topic=topics.output, dlq_topic=topics.dlq)
        cfg = replace(config.Config(), kafka=kafka, output=output)
        sink = KafkaSink(kafka, SystemClock())
        async with stopped_after(sink.stop):
            await sink.start()
            proxy.plan(Api.METADATA, *[spoil(NO_TOPIC)] * 1_000)
            before = proxy.seen[Api.METADATA]
            minding = asyncio.create_task(mind_topics(cfg, sink, KafkaLogin(kafka)))

            async def was_looked_twice() -> bool:
                # Of the client's own questions there may be one or two among them.
                return minding.done() or proxy.seen[Api.METADATA] - before >= 2 * 3 + 2

            await until(was_looked_twice, lambda: str(proxy))
            assert not minding.done()
            minding.cancel()


@pytest.mark.stack
async def test_a_batch_that_is_given_up_is_not_sent_when_the_broker_is_well_again(
    services: Services, topics: Topics
) -> None:
    async with (
        proxy_before(services.bootstrap_servers) as proxy,
        broker_of(services) as broker,
    ):
        kafka = config.Kafka(bootstrap_servers=proxy.address, input_topic=topics.input)
        sink = KafkaSink(kafka, SystemClock())
        async with stopped_after(sink.stop):
            await sink.start()
            proxy.plan(Api.PRODUCE, *[refuse(NOT_LEADER)] * 1_000)
            late = asyncio.ensure_future(
                await sink.send(Outgoing(topics.output, 0, [None], [b"{}"]))
            )

            async def is_tried() -> bool:
                return proxy.seen[Api.PRODUCE] >= 2

            await until(is_tried, lambda: str(proxy))
            late.cancel()
            await sink.forget()

            async def is_left() -> bool:
                return proxy.is_left

            # What the former producer sent at last is refused, too, before all passes.
            await until(is_left, lambda: str(proxy))
            proxy.forget()
            await (await sink.send(Outgoing(topics.output, 0, [None], [b"[]"])))
        assert [record.value for record in (await broker.records(topics.output))[0]] == [b"[]"]
