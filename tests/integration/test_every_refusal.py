"""Every code of a refused request, for each of those that publish without a pipeline: the announcer
of commands and jobs, the writer of scenes, and the rekeyer's transactions.

Rule: a code about the brokers passes over. A code about a record ends nobody who has something to
send in its place. Every other code ends with a code of its own, never with a trace; and the next
life goes on.
"""

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable

import pytest

from penstock import config
from penstock.adapters.kafka.announcer import announcing
from penstock.adapters.kafka.error_codes import BROKER, CODES, RECORD, about
from penstock.adapters.kafka.exactly_once.transactions import open_transactions
from penstock.adapters.kafka.keyed_writer import KeyedWriter
from penstock.errors import (
    EXIT_FATAL,
    EXIT_UNREACHABLE,
    EXIT_USAGE,
    Fatal,
    PenstockError,
    Transient,
)
from penstock.ports import Commit, Outgoing, Where
from penstock.process.asyncio_additions import SystemClock, stopped_after
from tests.support.kafka_proxy import Api, proxy_before, refuse
from tests.support.services import Services, Topics

# Those that aiokafka takes for a success: the broker has the batch already.
DUPLICATE = 46
INVALID_TIME = 32
AT_A_TIME = 8

Publishes = Callable[[config.Kafka, Topics], Awaitable[None]]


async def announce(kafka: config.Kafka, topics: Topics) -> None:
    async with announcing(kafka) as announcer:
        await announcer.send(b"{}", b"k")


async def write(kafka: config.Kafka, topics: Topics) -> None:
    writer = KeyedWriter(kafka, SystemClock())
    async with stopped_after(writer.abandon):
        await writer.start([topics.output])
        await (await writer([(topics.output, b"k", b"{}", None, None, None)]))


async def write_elsewhere(kafka: config.Kafka, topics: Topics) -> None:
    """What is refused is not written, but a letter about it, to another topic."""
    writer = KeyedWriter(kafka, SystemClock())
    letter = (topics.dlq, b"k", b"letter", 0, None, None)
    async with stopped_after(writer.abandon):
        await writer.start([topics.output, topics.dlq])
        await (await writer([(topics.output, b"k", b"{}", 0, None, lambda reason: [letter])]))


async def rekey(kafka: config.Kafka, topics: Topics) -> None:
    name = f"{topics.output}.rekey"
    passage = await open_transactions(kafka, name, SystemClock(), {})
    async with stopped_after(passage.close):
        out = Outgoing(topics.output, 0, [b"k"], [b"{}"], None, [1_795_000_000_000])
        out.instead = lambda index, value, reason: [b"cut"]
        await passage.publish([out], {Where(topics.input, 0): Commit(1)})


CASES: list[tuple[Publishes, Api]] = [
    (announce, Api.PRODUCE),
    (write, Api.PRODUCE),
    (write_elsewhere, Api.PRODUCE),
    (rekey, Api.PRODUCE),
    (announce, Api.INIT_PRODUCER_ID),
    (rekey, Api.INIT_PRODUCER_ID),
    (rekey, Api.ADD_PARTITIONS_TO_TXN),
    (rekey, Api.ADD_OFFSETS_TO_TXN),
    (rekey, Api.TXN_OFFSET_COMMIT),
    (rekey, Api.END_TXN),
]


@pytest.mark.stack
@pytest.mark.timeout(600)
@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case[0].__name__}-{case[1].name}")
async def test_a_refusal_ends_only_what_it_is_about(
    services: Services, topics: Topics, case: tuple[Publishes, Api]
) -> None:
    publish, api = case
    wrong: list[str] = []
    outcomes: Counter[str] = Counter()
    at_a_time = asyncio.Semaphore(AT_A_TIME if publish is not rekey else 1)

    async def one(code: int) -> None:
        async with at_a_time, proxy_before(services.bootstrap_servers) as proxy:
            kafka = config.Kafka(
                bootstrap_servers=proxy.address,
                input_topic=topics.input,
                group=topics.input,
                timeout_ms=20_000,
            )
            proxy.plan(api, refuse(code))
            try:
                await publish(kafka, topics)
                outcome = "went on"
            except Transient:
                outcome = "tried again"  # by its caller, with a new producer
            except Fatal as error:
                outcome = f"exit {error.exit_code}"
                if error.exit_code not in (EXIT_USAGE, EXIT_UNREACHABLE, EXIT_FATAL):
                    wrong.append(f"{code}: {outcome}")
            outcomes[outcome] += 1
            if outcome != "went on":
                proxy.forget()
                try:
                    await publish(kafka, topics)
                except PenstockError as error:
                    wrong.append(f"{code}: {outcome}, and the next life: {error!r}")
            if api is not Api.PRODUCE:
                return
            has_instead = publish in (rekey, write_elsewhere)
            is_mended = about(code) is RECORD and (has_instead or code == INVALID_TIME)
            if (about(code) is BROKER or is_mended or code == DUPLICATE) != (outcome == "went on"):
                wrong.append(f"{code}, about {about(code).name}: {outcome}")

    async with asyncio.TaskGroup() as tasks:
        for code in CODES:
            tasks.create_task(one(code))
    print(f"{publish.__name__} {api.name}: {dict(outcomes)}")  # noqa: T201
    assert not wrong, "\n".join(wrong)
