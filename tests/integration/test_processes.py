"""`penstock run --processes`: several members of the group as one, on the real services."""

import json
import os
import re
import signal
from pathlib import Path
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from tests.support.gone import until_gone
from tests.support.loads import Load, assert_predicted, first_of_each, places_of
from tests.support.model_proxy import proxy_of
from tests.support.reference_model import numpy_answers
from tests.support.services import Services, Topics
from tests.support.topic_tools import broker_of
from tests.support.waiting import until
from tests.support.worker import Worker, environment, running_worker

# About half of the 40 archives' requests; the rest is held back.
PASSED_REQUESTS = 60


def members_of(worker: Worker) -> list[int]:
    children = Path(f"/proc/{worker.pid}/task/{worker.pid}/children")
    return [int(pid) for pid in children.read_text().split()]


async def until_shared(worker: Worker) -> None:
    page = ""

    async def is_shared() -> bool:
        nonlocal page
        status, page = await worker.get("/readyz")
        return status == 200 and page.count("ready: 2 partitions") == 2

    await worker.alive()
    await until(is_shared, lambda: f"two partitions each; {page}; {worker.said}")


async def samples(worker: Worker, name: str) -> dict[str, float]:
    """By process."""
    _, page = await worker.get("/metrics")
    return {
        sample.labels["process"]: sample.value
        for family in text_string_to_metric_families(page)
        for sample in family.samples
        if sample.name == name
    }


def assigned(worker: Worker) -> list[str]:
    """What the members got in each rebalance of their own, in the order of their logs."""
    return re.findall(r"assigned partitions (\[.*?\])", worker.said)


@pytest.mark.parametrize("options", [(), ("--spare",)], ids=["alone", "spare"])
async def test_two_processes_share_the_partitions_and_survive_the_kill_of_one(
    services: Services, topics: Topics, bucket: str, s3: Any, options: tuple[str, ...]
) -> None:
    """Without a reserve the other takes the dead one's partitions, as soon as the group is told.
    With one the other is not asked to hand anything back.
    """
    load = Load(40, rows=100)
    load.store(s3, bucket)
    async with broker_of(services) as broker, proxy_of(services.model_url) as proxy:
        proxy.hold_after(PASSED_REQUESTS)
        environ = environment(
            services,
            topics,
            MODEL__URL=proxy.url,
            MODEL__REQUEST="float32",
            WINDOW__MAX_ROWS=16,
            OBJECTS__CONCURRENCY=4,
            LIMITS__IN_FLIGHT_OBJECTS=2,
        )
        async with running_worker(environ, "--processes", "2", *options) as worker:
            await until_shared(worker)
            await broker.publish(topics.input, load.messages(bucket))

            async def is_held() -> bool:
                committed = await broker.committed(topics.input, topics.input)
                return len(proxy.requests) > PASSED_REQUESTS and sum(committed.values()) > 0

            await until(is_held, lambda: f"a load in the middle: {worker.said}")
            delivered = await samples(worker, "penstock_rows_delivered_total")
            assert delivered.keys() == {"0", "1"}
            assert 0 < sum(delivered.values()) < len(load.rows)

            killed, spared, *_ = members_of(worker)
            before = len(assigned(worker))
            os.kill(killed, signal.SIGKILL)
            proxy.release()
            await broker.until_committed(topics.input, topics.input, load.ends)
            await until_shared(worker)
            restarts = await samples(worker, "penstock_process_restarts_total")
            assert sorted(restarts.values()) == [0, 1]
            assert spared in members_of(worker)
            after = assigned(worker)[before:]
            if options:
                assert [each.count(",") + 1 for each in after] == [2], worker.said
            else:
                # Its own go on; those of the dead one come to it.
                took = re.search(r"partitions (\[.+\]) as .+; (\[.+\]) go on", worker.said)
                assert took, worker.said
                assert sorted(json.loads(took[1]) + json.loads(took[2])) == [0, 1, 2, 3]
            members = members_of(worker)
            assert await worker.stop() == 0, worker.said
            await until_gone(*members)
        records = await broker.records(topics.output)
    assert first_of_each(places_of(records)) == load.places(topics.input)
    assert_predicted(records, load.answers(topics.input, numpy_answers(load.rows)))
