"""`penstock run --dry-run` on the real services: what a worker would do, and all is as it was."""

import json
from collections import Counter
from typing import Any

import pytest

from tests.support.job import Job
from tests.support.loads import Load, csv
from tests.support.reference_model import random_rows
from tests.support.services import Services, Topics
from tests.support.topic_tools import Broker, Message
from tests.support.worker import environment, penstock, running_worker


@pytest.fixture(scope="module")
def load() -> Load:
    return Load(8, rows=12)


async def test_it_shows_what_a_worker_then_publishes_and_leaves_all_as_it_was(job: Job) -> None:
    await job.announce()
    environ = job.environment(DELIVERY__GUARANTEE="exactly_once")
    shown = await penstock("run", "--dry-run", "5", "--json", environ=environ)
    assert shown.code == 0, shown.stderr
    assert await job.committed() == {}
    assert not any((await job.places()).values())
    async with running_worker(environ) as worker:
        await job.finish(worker)
    found = await job.broker.records(job.topics.output)
    published = [
        (job.topics.output, number, record.document)
        for number, records in found.items()
        for record in records
    ]
    lines = [json.loads(line) for line in shown.stdout.splitlines()]
    told = [(str(line["topic"]), int(line["partition"]), line["record"]) for line in lines]
    told.sort(key=_by_id)
    published.sort(key=_by_id)
    # The two may have asked in other batches, which torch sums in another order.
    scores = [[one["prediction"].pop("score") for _, _, one in each] for each in (told, published)]
    assert told == published
    assert scores[0] == pytest.approx(scores[1], abs=1e-5)
    assert all(line["key"] == line["record"]["stream"] for line in lines)


def _by_id(told: tuple[str, int, dict[str, Any]]) -> str:
    return str(told[2]["id"])


async def test_it_reads_on_from_the_group_and_shows_letters(
    services: Services, topics: Topics, bucket: str, s3: Any, broker: Broker
) -> None:
    environ = environment(services, topics)
    s3.put_object(Bucket=bucket, Key="a/1.csv", Body=csv(random_rows(20)))
    done, good = ({"bucket": bucket, "key": "a/1.csv", "n": n} for n in (0, 1))
    bad = {"bucket": bucket, "key": "a/none.csv"}
    await broker.publish(topics.input, [Message(done, 0)])
    async with running_worker(environ) as worker:
        await broker.until_committed(topics.input, topics.input, {0: 1})
        assert await worker.stop() == 0
    messages = [Message(good, 0), Message(good, 0), Message(bad, 0), Message(bad, 2)]
    await broker.publish(topics.input, messages)
    shown = await penstock("run", "--dry-run", "2", environ=environ)
    assert shown.code == 1, shown.stderr
    lines = shown.stdout.decode().splitlines()
    assert Counter(line.split("  ")[0] for line in lines) == {
        f"{topics.output}/0": 8,  # of each of two objects the first three rows and the last
        f"{topics.output}/2": 1,
        f"{topics.dlq}/2": 1,
    }
    assert any("row 19" in line and "(the last of 20 rows, 16 rows" in line for line in lines)
    assert any("letter: not_found" in line and "a/none.csv" in line for line in lines)
    assert "3 messages of 2 partitions; nothing waits in 2 other" in shown.stderr
    assert "41 answers, 1 of them errors, and 1 dead letters; nothing was published" in shown.stderr
    assert await broker.committed(topics.input, topics.input) == {0: 1}


async def test_with_nothing_to_read_it_asks_neither_store_nor_model(
    services: Services, topics: Topics
) -> None:
    environ = environment(services, topics, MODEL__URL="http://127.0.0.1:1")
    shown = await penstock("run", "--dry-run", "3", environ=environ)
    assert shown.code == 0
    assert "0 messages of 0 partitions; nothing waits in 4 other" in shown.stderr
