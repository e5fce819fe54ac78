"""Several input topics in one group: each partition a lane of its own, and the id says which."""

from collections import defaultdict
from typing import Any

import orjson
import pytest

from tests.integration.conftest import MakeTopics
from tests.support.broker_stage import CLIENTS, Client
from tests.support.services import Services
from tests.support.topic_tools import Broker, Message
from tests.support.worker import environment, penstock, running_worker

MESSAGES = 6
ROWS = 3


def messages() -> list[Message]:
    """For two partitions in turn."""
    rows = [[0.5] * 16] * ROWS
    value = orjson.dumps({"stream": "s", "inline": rows})
    return [Message(value=value, partition=number % 2) for number in range(MESSAGES)]


@pytest.mark.parametrize("client", CLIENTS)
@pytest.mark.parametrize(
    ("by_pattern", "guarantee"),
    [(False, "at_least_once"), (True, "at_least_once"), (False, "exactly_once")],
)
async def test_topics_of_one_group_are_answered_on_one_output(
    services: Services,
    make_topics: MakeTopics,
    broker: Broker,
    *,
    by_pattern: bool,
    guarantee: str,
    client: Client,
) -> None:
    topics, other = await make_topics(2), await make_topics(2)
    inputs = [topics.input, other.input]
    named: dict[str, object] = (
        {"KAFKA__INPUT_PATTERN": f"^({'|'.join(inputs)})$"}
        if by_pattern
        else {"KAFKA__INPUT_TOPICS": ",".join(inputs)}
    )
    environ = environment(
        services, topics, None, DELIVERY__GUARANTEE=guarantee, KAFKA__CLIENT=client, **named
    )
    for topic in inputs:
        await broker.publish(topic, messages())
    async with running_worker(environ) as worker:
        for topic in inputs:
            await broker.until_committed(topics.input, topic, {0: 3, 1: 3})
        assert await worker.stop() == 0
    found: dict[tuple[str, int], list[str]] = defaultdict(list)
    for partition, records in (await broker.records(topics.output)).items():
        for record in records:
            document: dict[str, Any] = record.document
            source = document["source"]
            assert source["partition"] == partition
            found[source["topic"], partition].append(document["id"])
    assert found == {
        (topic, partition): [
            f"{topic}/{partition}/{offset}/0/{row}" for offset in range(3) for row in range(ROWS)
        ]
        for topic in inputs
        for partition in (0, 1)
    }
    verdict = await penstock("verify", "--json", environ=environ)
    report = orjson.loads(verdict.stdout)
    assert (verdict.code, report["rows"], report["outside"]) == (0, 2 * MESSAGES * ROWS, 0)
