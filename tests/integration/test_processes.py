"""`penstock run --processes`: several members of the group as one, on the real services."""

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

# About half of what the 40 archives have; the rest is held back.
PASSED_ROWS = 1000


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


async def delivered_rows(worker: Worker) -> dict[str, float]:
    """By process, once the pages of both have answered: a late one is left out."""
    found: dict[str, float] = {}

    async def both_tell() -> bool:
        nonlocal found
        found = await samples(worker, "penstock_rows_delivered_total")
        return found.keys() == {"0", "1"}

    await until(both_tell, lambda: f"the metrics of both: {found}; {worker.said}")
    return found


def assigned(worker: Worker) -> list[str]:
    """What the members got in each rebalance of their own, in the order of their logs."""
    return re.findall(r"assigned partitions (\[.*?\])", worker.said)


def taken_over(worker: Worker) -> list[int]:
    """The partitions of a member that took some and went on with its own."""
    took = re.search(r"partitions \[.+\] as .+; \[.+\] go on", worker.said)
    return sorted(map(int, re.findall(r"/(\d+)[,\]]", took[0]))) if took else []


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
        proxy.hold_after(PASSED_ROWS)
        # The reserve is in its place before the group misses the dead one.
        session: dict[str, object] = {"KAFKA__SESSION_MS": 45_000} if options else {}
        environ = environment(
            services,
            topics,
            None,
            MODEL__URL=proxy.url,
            MODEL__REQUEST="float32",
            WINDOW__MAX_ROWS=16,
            OBJECTS__CONCURRENCY=4,
            LIMITS__IN_FLIGHT_OBJECTS=2,
            **session,
        )
        async with running_worker(environ, "--processes", "2", *options) as worker:
            await until_shared(worker)
            await broker.publish(topics.input, load.messages(bucket))

            async def is_held() -> bool:
                committed = await broker.committed(topics.input, topics.input)
                return proxy.held > 0 and sum(committed.values()) > 0

            await until(is_held, lambda: f"a load in the middle: {worker.said}")
            delivered = await delivered_rows(worker)
            assert 0 < sum(delivered.values()) < len(load.rows)

            killed, spared, *_ = members_of(worker)
            before = len(assigned(worker))

            async def others_have_it() -> bool:
                return taken_over(worker) == [0, 1, 2, 3]

            if not options:
                proxy.hold_probes()  # the one that is started again comes after the other
            os.kill(killed, signal.SIGKILL)
            proxy.release()
            if not options:
                # Its own go on; those of the dead one come to it.
                await until(others_have_it, lambda: f"all with the other: {worker.said}")
                proxy.release_probes()
            await broker.until_committed(topics.input, topics.input, load.ends)
            await until_shared(worker)
            restarts = await samples(worker, "penstock_process_restarts_total")
            assert sorted(restarts.values()) == [0, 1]
            assert spared in members_of(worker)
            after = assigned(worker)[before:]
            if options:
                assert [each.count(",") + 1 for each in after] == [2], worker.said
            members = members_of(worker)
            assert await worker.stop() == 0, worker.said
            await until_gone(*members)
        records = await broker.records(topics.output)
    assert first_of_each(places_of(records)) == load.places(topics.input)
    assert_predicted(records, load.answers(topics.input, numpy_answers(load.rows)))
