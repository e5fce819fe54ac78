"""Partitions that the output topic is given while a worker writes to it."""

import pytest

from penstock import config
from penstock.adapters.kafka.sink import KafkaSink
from penstock.ports import Outgoing
from penstock.process.asyncio_additions import SystemClock
from tests.integration.conftest import MakeTopics
from tests.support.services import Services
from tests.support.topic_tools import Broker
from tests.support.waiting import until


@pytest.mark.parametrize("is_written_to", [False, True])
async def test_a_partition_that_the_sink_has_counted_can_be_written_to(
    services: Services, make_topics: MakeTopics, broker: Broker, is_written_to: bool
) -> None:
    topics = await make_topics(1)
    settings = config.Kafka(bootstrap_servers=services.bootstrap_servers)
    sink = KafkaSink(settings, SystemClock())
    await sink.start()
    try:
        assert await sink.partitions(topics.output) == 1
        if is_written_to:
            await (await sink.send(Outgoing(topics.output, 0, [None], [b"before"])))
        await broker.add_partitions(topics.output, 3)

        async def are_counted() -> bool:
            return await sink.partitions(topics.output) == 3

        await until(are_counted, lambda: "the new partitions")
        await (await sink.send(Outgoing(topics.output, 2, [None], [b"behind"])))
    finally:
        await sink.stop()
    records = await broker.records(topics.output)
    assert [record.value for record in records[2]] == [b"behind"]
