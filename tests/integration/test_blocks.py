"""Arrow blocks on the real services: every row, in order, judged and traced by their records."""

import pytest

from penstock.encodings.output_values import records_of
from tests.support.job import Job
from tests.support.loads import Load, assert_predicted, places_of
from tests.support.reference_model import numpy_answers
from tests.support.topic_tools import Record
from tests.support.worker import penstock, running_worker

BLOCKS = {"OUTPUT__GRANULARITY": "block", "OUTPUT__BLOCK_FORM": "arrow", "OUTPUT__BLOCK_ROWS": 200}


@pytest.fixture(scope="module")
def load() -> Load:
    return Load(8, rows=700)


async def test_arrow_blocks_have_every_row_in_order_and_are_verified_and_traced(job: Job) -> None:
    environ = job.environment(**BLOCKS)
    async with running_worker(environ) as worker:
        await job.announce()
        await job.finish(worker)
    values = await job.broker.records(job.topics.output)
    found = {
        number: [Record(one.offset, one.key, text) for one in log for text in records_of(one.value)]
        for number, log in values.items()
    }
    assert places_of(found) == job.expected()
    right = job.load.answers(job.topics.input, numpy_answers(job.load.rows))
    assert_predicted(found, right)
    assert sum(map(len, values.values())) < sum(map(len, found.values())) / 50
    verified = await penstock("verify", environ=environ)
    assert verified.code == 0, verified.stdout
    id = next(log for log in found.values() if log)[-1].document["id"]
    traced = await penstock("trace", id, environ=environ)
    assert traced.code == 0, traced.stderr
    assert b"ms later" in traced.stdout
