"""`penstock trace` on the real services: a row's model, its way through its worker, its letter, and
whether it is committed.
"""

import json
from typing import Any

import pytest

from tests.support.loads import csv
from tests.support.reference_model import random_rows
from tests.support.services import Services, Topics
from tests.support.topic_tools import Broker, Message
from tests.support.worker import environment, penstock, running_worker


@pytest.mark.parametrize("order", ["partition", "stream"])
async def test_a_row_s_way_is_told_with_its_model_its_letter_and_its_commit(
    services: Services, topics: Topics, bucket: str, s3: Any, broker: Broker, order: str
) -> None:
    environ = environment(services, topics, OUTPUT__ORDER=order)
    s3.put_object(Bucket=bucket, Key="a/good.csv", Body=csv(random_rows(700)))
    s3.put_object(Bucket=bucket, Key="a/bad.csv", Body=csv(random_rows(2)) + b"oops\n")
    messages = [{"bucket": bucket, "key": f"a/{name}.csv"} for name in ("good", "bad", "none")]
    await broker.publish(topics.input, [Message(message, 3) for message in messages])

    async def traced(id: str) -> dict[str, Any]:
        answer = await penstock("trace", "--json", f"{topics.input}/3/{id}", environ=environ)
        assert answer.code == 0, answer.stderr
        document: dict[str, Any] = json.loads(answer.stdout)
        assert document["next_offset"] == 3
        return document

    async with running_worker(environ) as worker:
        await broker.until_committed(topics.input, topics.input, {3: 3})
        way = (await traced("0/0/650"))["way"]
        assert way["pid"] == worker.pid
        assert way["times_ms"]["call"] > 0
        assert 0 < way["batch"]["rows"] <= 700
        assert (await traced("2/0/0"))["way"]["batch"] is None  # no model was asked
        assert await worker.stop() == 0
    good = await traced("0/0/650")
    assert good["way"] is None  # it is remembered as long as the worker runs
    assert good["answer"]["record"]["row"] == 650
    assert good["letter"] is None
    bad = await traced("1/0/2")
    assert bad["answer"]["record"]["error"]["code"] == bad["letter"]["record"]["code"] == "bad_row"
    assert bad["letter"]["record"]["rows"] == [[2, 3]]
    none = await traced("2/0/0")  # its object has no rows at all
    assert none["answer"]["record"]["row"] is None
    assert none["letter"]["record"]["code"] == "not_found"
    shown = await penstock("trace", f"{topics.input}/3/1/0/2", environ=environ)
    lines = shown.stdout.decode()
    assert "model     rows" in lines
    assert "bad_row at expand" in lines
    assert "committed yes: the group is at 3" in lines
