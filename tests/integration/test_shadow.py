"""A shadow beside TorchServe: what is planted is reported, and live answers are what they are."""

import json
from collections.abc import AsyncIterator
from pathlib import Path
from random import Random
from typing import Any

import pytest
import pytest_asyncio

from penstock.core.rows.payload import Float32Matrix
from penstock.tools.embedded.model_server import EmbeddedModelServer
from penstock.tools.handlers import rows_model
from tests.support.job import Job
from tests.support.loads import Load
from tests.support.waiting import until
from tests.support.worker import Worker, penstock, running_worker

CONFIG = """
[model.shadow]
model = "other"
percent = 100
tolerance = 1e-4
buffer_rows = 100000

[[models]]
name = "other"
url = "{url}"
served_as = "{name}"
request = "float32"
"""


class OtherModel(EmbeddedModelServer):
    """Says what the model says, but of one row in a hundred."""

    def __init__(self) -> None:
        super().__init__()
        self.planted = 0
        self._dice = Random(14)

    def _predict(self, matrix: Float32Matrix) -> list[dict[str, Any]]:
        answers = super()._predict(matrix)
        for answer in answers:
            if self._dice.random() < 0.01:
                answer["label"] = -1
                self.planted += 1
        return answers


async def compared(worker: Worker) -> bool:
    """Nothing waits for the shadow."""
    status = json.loads((await worker.get("/api/status"))[1])
    return status["shadow"]["rows"] > 0 and not status["shadow"]["waiting_rows"]


async def records_of(job: Job, topic: str) -> list[dict[str, Any]]:
    return [
        record.document
        for of_partition in (await job.broker.records(topic)).values()
        for record in of_partition
    ]


@pytest.fixture(scope="module")
def load() -> Load:
    """Some 5,000 rows of 30 archives."""
    return Load(30, rows=500)


@pytest_asyncio.fixture(loop_scope="function")
async def shadow_topic(job: Job) -> AsyncIterator[str]:
    topic = f"{job.topics.output}.shadow"
    yield topic
    await job.broker.delete(await job.broker.topics() & {topic})


async def test_a_planted_disagreement_of_one_percent_is_reported_within_its_interval(
    job: Job, shadow_topic: str, tmp_path: Path
) -> None:
    environ = job.environment(MODEL__REQUEST="float32")
    file = tmp_path / "penstock.toml"
    async with OtherModel() as other:
        file.write_text(CONFIG.format(url=other.url, name=rows_model.NAME))
        made = await penstock("topics", "create", "--config", str(file), environ=environ)
        assert (made.code, shadow_topic in await job.broker.topics()) == (0, True), made.stderr
        async with running_worker(environ, "--config", str(file)) as worker:
            await job.announce()
            await job.done()
            await until(lambda: compared(worker), lambda: "the shadow is still asked")

            async def reported() -> bool:
                """At its end a worker has a moment for what is not on the topic yet."""
                records = await records_of(job, shadow_topic)
                wrong = [record for record in records if record["kind"] == "disagreement"]
                sums = {
                    record["id"]: record["rows"]
                    for record in records
                    if record["kind"] == "summary"
                }
                found = (sum(sums.values()), len(wrong))
                return found == (len(job.load.rows), other.planted)

            await until(reported, lambda: "all rows are in summaries")
            await job.finish(worker)
    await job.assert_answered()
    ended = await penstock("compare", "--json", "--config", str(file), environ=environ)
    (found,) = json.loads(ended.stdout)
    assert (found["rows"], found["dropped"], found["unanswered"]) == (len(job.load.rows), 0, 0)
    low, high = found["interval"]
    assert low <= 0.99 <= high
    assert found["rows"] - found["agreed"] == other.planted
    records = await records_of(job, shadow_topic)
    wrong = [record for record in records if record["kind"] == "disagreement"]
    assert len(wrong) == other.planted
    for one in wrong:
        assert one["shadow"]["prediction"]["label"] == -1 != one["live"]["prediction"]["label"]
    told = await penstock("compare", "--config", str(file), "--at-least", "99.9", environ=environ)
    assert told.code == 1
    assert f"of {found['rows']:,} rows" in told.stdout.decode()
    assert "not sure that they agree on 99.9 % of the rows" in told.stderr
