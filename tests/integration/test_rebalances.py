"""Workers come and go: what stays with its worker goes on; every row is there once, in order."""

import re
from collections import Counter
from typing import Any

import pytest

from tests.support.model_proxy import ModelProxy
from tests.support.relay import Relay, relay_to
from tests.support.services import Services, Topics, needs_kafka_4
from tests.support.topic_tools import Broker, Message
from tests.support.waiting import until
from tests.support.worker import Worker, environment, running_worker

PARTITIONS = 4
OBJECTS = 20
ROWS = 3


async def announce(s3: Any, bucket: str, broker: Broker, topics: Topics) -> None:
    row = ",".join(["0.5"] * 16) + "\n"
    keys = [(n, f"{n}-{number}.csv") for n in range(PARTITIONS) for number in range(OBJECTS)]
    for _, key in keys:
        s3.put_object(Bucket=bucket, Key=key, Body=(row * ROWS).encode())
    await broker.publish(
        topics.input,
        [Message({"bucket": bucket, "key": key, "stream": key}, number) for number, key in keys],
    )


def fetches(store: Relay) -> dict[int, list[int]]:
    """By partition how often each of its objects was asked for."""
    found: dict[int, list[int]] = {number: [] for number in range(PARTITIONS)}
    for path, count in store.asked.items():
        if path.partition("?")[0].endswith(".csv"):
            found[int(path.rpartition("/")[2].partition("-")[0])].append(count)
    return found


async def until_fetched(store: Relay, objects: int) -> None:
    async def are() -> bool:
        return sum(map(sum, fetches(store).values())) >= objects

    await until(are, lambda: f"{objects} objects fetched; there are {fetches(store)}")


BEGUN = re.compile(r"assigned partitions \[(\S+/\d+(?:, \S+/\d+)*)\] as generation")


def begun(*workers: Worker) -> Counter[int]:
    """How often each partition was begun; those that went on are left out."""
    return Counter(
        int(name.rpartition("/")[2])
        for worker in workers
        for found in BEGUN.findall(worker.said)
        for name in found.split(", ")
    )


@pytest.mark.parametrize(
    ("client", "protocol", "guarantee"),
    [
        ("aiokafka", "classic", "at_least_once"),
        ("aiokafka", "classic", "exactly_once"),
        ("confluent", "classic", "at_least_once"),
        ("confluent", "classic", "exactly_once"),
        pytest.param("confluent", "consumer", "at_least_once", marks=needs_kafka_4),
    ],
)
async def test_workers_that_come_and_go_cost_no_row_and_no_second_fetch_of_what_stays(
    services: Services,
    topics: Topics,
    bucket: str,
    s3: Any,
    broker: Broker,
    proxy: ModelProxy,
    client: str,
    protocol: str,
    guarantee: str,
) -> None:
    proxy.hold_after(0)  # so that all work is in progress while partitions move
    host = services.endpoint_url.rpartition("/")[2]
    async with relay_to(host) as store:
        await store.listen()

        def environ() -> dict[str, str]:
            return environment(
                services,
                topics,
                DELIVERY__GUARANTEE=guarantee,
                DELIVERY__DRAIN_MS=500,
                KAFKA__CLIENT=client,
                KAFKA__GROUP_PROTOCOL=protocol,
                # A worker that gets no processor for a while must not lose its partitions.
                KAFKA__SESSION_MS=45_000,
                MODEL__REQUEST="float32",
                MODEL__URL=proxy.url,
                OBJECTS__ENDPOINT_URL=f"http://{store.address}",
                OBJECTS__HEDGE="false",  # a late read would be sent, and counted, twice
            )

        async with running_worker(environ()) as first, running_worker(environ()) as second:
            await first.ready(partitions=2)
            await second.ready(partitions=2)
            await announce(s3, bucket, broker, topics)
            await until_fetched(store, PARTITIONS * OBJECTS)
            # Now, as what is fetched was begun: whatever came before a fetch is no second one.
            before = begun(first, second)
            async with running_worker(environ()) as third:
                await third.ready()
                await until_fetched(store, (PARTITIONS + 1) * OBJECTS)
                assert await third.stop() == 0, third.said
                begun_anew = begun(third)
            await first.ready(partitions=2)
            await second.ready(partitions=2)
            await until_fetched(store, (PARTITIONS + 2) * OBJECTS)
            proxy.release()
            await broker.until_committed(
                topics.input, topics.input, dict.fromkeys(range(PARTITIONS), OBJECTS)
            )
            # Before the first stops: the second then begins its partitions, where nothing is left.
            begun_anew += begun(first, second) - before
            for worker in (first, second):
                assert await worker.stop() == 0, worker.said
                assert "Traceback" not in worker.said
    found = fetches(store)
    assert {number for number in found if set(found[number]) == {1}} == (
        set(found) - set(begun_anew)
    ), "what stays is fetched once"
    assert all(max(found[number]) <= 1 + begun_anew[number] for number in found)
    # librdkafka's way of assigning moves more than it must; the others move one, there and back.
    is_sticky = (client, protocol) != ("confluent", "classic")
    stays = len(set(found) - set(begun_anew))
    assert stays == PARTITIONS - 1 if is_sticky else stays >= 1, begun_anew
    answers = await broker.records(topics.output)
    for number in range(PARTITIONS):
        documents = [record.document for record in answers[number]]
        assert [(document["source"]["offset"], document["row"]) for document in documents] == [
            (offset, row) for offset in range(OBJECTS) for row in range(ROWS)
        ]
