"""What was announced before is answered again, on the real services, beside the live group."""

import json
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from tests.support.job import Job
from tests.support.loads import Load
from tests.support.topic_tools import Record
from tests.support.worker import penstock, running_worker


@pytest.fixture(scope="module")
def load() -> Load:
    """Some 4,000 rows of 24 archives."""
    return Load(24, rows=300)


@pytest_asyncio.fixture(loop_scope="function")
async def answered(job: Job) -> Job:
    """A live worker has answered all."""
    await job.announce()
    async with running_worker(job.environment()) as worker:
        await job.finish(worker)
    return job


@pytest_asyncio.fixture(loop_scope="function")
async def to(job: Job) -> AsyncIterator[str]:
    """A name for the topic of the replay, which removes what it made."""
    topic = f"{job.topics.output}.v2"
    yield topic
    made = await job.broker.topics() & {topic, f"{topic}.dlq"}
    await job.broker.delete(made)


def replay_of(to: str, *more: str) -> list[str]:
    return ["replay", "--since", "1h", "--to", to, "--json", *more]


def predictions(records: dict[int, list[Record]]) -> dict[int, list[tuple[str, bytes]]]:
    """Id and the bytes of all that is said of the row from there on, by partition."""
    return {
        number: [(one.document["id"], one.value[one.value.index(b'"row":') :]) for one in found]
        for number, found in records.items()
    }


async def test_an_unchanged_model_answers_the_same_bytes_and_the_live_group_stays(
    answered: Job, to: str
) -> None:
    job, broker = answered, answered.broker
    committed = await broker.positions(job.topics.input, job.topics.input)
    before = await broker.ends(job.topics.output)
    ended = await penstock(*replay_of(to), environ=job.environment())
    assert ended.code == 0, ended.stderr
    summary = json.loads(ended.stdout)
    assert (summary["complete"], summary["rows"]) == (True, len(job.load.rows))
    assert f"created {to} (4 partitions, as {job.topics.output})" in ended.stderr
    then = predictions(await broker.records(job.topics.output))
    assert predictions(await broker.records(to)) == then
    assert await broker.positions(job.topics.input, job.topics.input) == committed
    assert await broker.ends(job.topics.output) == before
    again = await penstock(*replay_of(to), environ=job.environment())
    assert (again.code, json.loads(again.stdout)["rows"]) == (0, 0)
