"""Workers come and go: what stays with its worker goes on; every row is there once, in order."""

from typing import Any

import pytest

from tests.support.model_proxy import ModelProxy
from tests.support.relay import Relay, relay_to
from tests.support.services import Services, Topics
from tests.support.topic_tools import Broker, Message
from tests.support.waiting import until
from tests.support.worker import environment, running_worker

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


@pytest.mark.parametrize("guarantee", ["at_least_once", "exactly_once"])
async def test_workers_that_come_and_go_cost_no_row_and_no_second_fetch_of_what_stays(
    services: Services,
    topics: Topics,
    bucket: str,
    s3: Any,
    broker: Broker,
    proxy: ModelProxy,
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
                MODEL__REQUEST="float32",
                MODEL__URL=proxy.url,
                OBJECTS__ENDPOINT_URL=f"http://{store.address}",
            )

        async with running_worker(environ()) as first, running_worker(environ()) as second:
            await first.ready(partitions=2)
            await second.ready(partitions=2)
            await announce(s3, bucket, broker, topics)
            await until_fetched(store, PARTITIONS * OBJECTS)
            async with running_worker(environ()) as third:
                await third.ready(partitions=1)
                await until_fetched(store, (PARTITIONS + 1) * OBJECTS)
                assert await third.stop() == 0, third.said
            await first.ready(partitions=2)
            await second.ready(partitions=2)
            await until_fetched(store, (PARTITIONS + 2) * OBJECTS)
            proxy.release()
            await broker.until_committed(
                topics.input, topics.input, dict.fromkeys(range(PARTITIONS), OBJECTS)
            )
            for worker in (first, second):
                assert await worker.stop() == 0, worker.said
                assert "Traceback" not in worker.said
    counts = sorted((set(counts) for counts in fetches(store).values()), key=max)
    assert counts == [{1}, {1}, {1}, {3}], "only what moved is fetched again"
    answers = await broker.records(topics.output)
    for number in range(PARTITIONS):
        found = [record.document for record in answers[number]]
        assert [(one["source"]["offset"], one["row"]) for one in found] == [
            (offset, row) for offset in range(OBJECTS) for row in range(ROWS)
        ]
