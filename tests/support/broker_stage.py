"""A pipeline on the real broker through a proxy that spoils chosen requests; store and model are in
memory.

Rule: a message is done when it is answered and its offset is committed. Owner: the tests.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Literal, NamedTuple

from penstock import config
from penstock.adapters.inputs.kafka_sources import open_source
from penstock.adapters.kafka.exactly_once.transactions import KafkaProducers
from penstock.adapters.kafka.sink import KafkaSink
from penstock.adapters.memory import MemoryObjects
from penstock.core.records.output_records import Labels
from penstock.decoders.simulated import DecodersAtHand
from penstock.errors import Fatal
from penstock.failures.outage import until_answered
from penstock.pipeline.life import Pipeline
from penstock.pipeline.wiring import Wiring
from penstock.ports import Adapters, Transactions
from penstock.process.asyncio_additions import SystemClock, stopped_after
from penstock.stages.reject import LetterTerms
from penstock.telemetry.worker import Telemetry
from penstock.tools.simulation.region_workers import MemoryModel
from penstock.tools.simulation.virtual_time import inline
from tests.support.kafka_proxy import KafkaProxy, proxy_before
from tests.support.pipelines import SETTINGS, changed
from tests.support.services import Services, Topics
from tests.support.topic_tools import Broker, Message, broker_of
from tests.support.waiting import DEADLINE_S, until

# Past the longest wait of a client: 5 s after a fencing, and a session of 10 s; several times that,
# as several workers share a busy machine.
STEP_S = DEADLINE_S

# What `ending` says of a worker that answers, and so does not end.
GOES_ON = "it went on"

# Exactly once, on brokers that have only the first version of transactions.
OLDER = "exactly_once_before_4"

Client = Literal["aiokafka", "confluent"]
CLIENTS: list[Client] = ["aiokafka", "confluent"]


class Stage(NamedTuple):
    """A worker that runs, and all around it."""

    proxy: KafkaProxy
    broker: Broker
    topics: Topics
    running: asyncio.Task[None]

    async def answer_one(self, offset: int, name: object, within_s: float = STEP_S) -> None:
        """Publish a message, and wait until it is answered and committed."""
        row = {"stream": "s", "inline": [[float(offset)] * 2]}
        await self.broker.publish(self.topics.input, [Message(row)])
        group = topic = self.topics.input
        seen: dict[int, int] = {}

        async def is_committed() -> bool:
            nonlocal seen
            if self.running.done():
                self.running.result()
            with suppress(Exception):
                seen = await self.broker.committed(group, topic)
            return seen.get(0) == offset + 1 and self.proxy.is_done

        await until(is_committed, lambda: f"{name}: {seen}, {self.proxy}", within_s=within_s)


@asynccontextmanager
async def stage(
    services: Services,
    topics: Topics,
    guarantee: str,
    client: Client = "aiokafka",
    timeout_ms: int = 60_000,
) -> AsyncIterator[Stage]:
    """`guarantee`: as in the settings, or `OLDER`."""
    is_once = guarantee != "at_least_once"
    async with (
        proxy_before(services.bootstrap_servers, is_old=guarantee == OLDER) as proxy,
        broker_of(services, "read_committed") as broker,
    ):
        kafka = config.Kafka(
            bootstrap_servers=proxy.address,
            input_topic=topics.input,
            group=topics.input,
            client=client,
            timeout_ms=timeout_ms,
        )
        running = asyncio.create_task(_run(kafka, topics, is_once))
        try:
            yield Stage(proxy, broker, topics, running)
        finally:
            proxy.forget()
            running.cancel()
            with suppress(BaseException):
                await running


async def _run(kafka: config.Kafka, topics: Topics, is_once: bool) -> None:
    clock, telemetry = SystemClock(), Telemetry()
    sink = KafkaSink(kafka, clock)
    settings = changed(
        SETTINGS,
        labels=Labels(topics.input, topics.output, "rows", None, markers=True),
        letters=LetterTerms(topics.dlq, 1),
        commit_interval_s=0.05,
        drain_s=2.0,
    )
    async with stopped_after(sink.stop):
        await until_answered("Kafka broker", sink.start, clock, STEP_S)
        source = open_source(kafka, drain_ms=2_000, decided=is_once)
        producers = KafkaProducers(kafka, clock, sink.batch_bytes, source.member_of)
        transactions = Transactions(producers, source) if is_once else None
        adapters = Adapters(source, MemoryObjects(), MemoryModel(), sink, clock, transactions)
        pipeline = Pipeline(
            Wiring(
                settings,
                adapters,
                telemetry,
                decoders=DecodersAtHand(),
                offload=inline,
                raises=True,
            )
        )
        await pipeline.run()


async def ending(world: Stage, offset: int = 0, within_s: float = STEP_S) -> tuple[int | None, str]:
    """The exit code, and the reason; None: it did not end."""
    try:
        async with asyncio.timeout(within_s + 5.0):
            await world.answer_one(offset, "the message", within_s)
    except Fatal as error:
        return error.exit_code, str(error)
    except BaseExceptionGroup as group:
        failures = leaves(group)
        fatal = next((failure for failure in failures if isinstance(failure, Fatal)), None)
        return (fatal.exit_code if fatal else None), str(failures)
    except (AssertionError, TimeoutError) as error:
        return None, repr(error)
    return None, GOES_ON


def leaves(error: BaseException) -> list[BaseException]:
    if isinstance(error, BaseExceptionGroup):
        return [leaf for inner in error.exceptions for leaf in leaves(inner)]
    return [error]
