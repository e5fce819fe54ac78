"""Bad rows and a sick server, on the real TorchServe.

The short forms run always. The long ones, with figures in the log (`--log-cli-level=info`):

    SICK_ROWS=200000 SICK_SECONDS=60 pytest -o timeout=600 tests/integration/test_sick_server.py
"""

import asyncio
import logging
import os
import time
from typing import Any

import numpy as np
import pytest
from prometheus_client.parser import text_string_to_metric_families

from penstock.core.bad_rows.verdicts import LONE_DEATHS
from tests.support.deployed_model import deployed
from tests.support.loads import csv
from tests.support.reference_model import Rows
from tests.support.services import Services, Topics
from tests.support.sick_handler import KILLS, RAISES
from tests.support.topic_tools import Broker, Message
from tests.support.worker import Worker, environment, running_worker

log = logging.getLogger(__name__)

SICK_ROWS = int(os.environ.get("SICK_ROWS", "20000"))
SICK_SECONDS = int(os.environ.get("SICK_SECONDS", "8"))
POISON_EVERY = 1_000
ROWS_PER_OBJECT = 5_000
# On a busy machine a new worker process of the model's takes 15 s instead of two, and the deaths of
# a row that is blamed are up to twenty; the later a death comes, the more of them.
DEATHS_S = 400


def numbered(count: int, start: int = 0) -> Rows:
    """Row i begins with start + i; float32 tells these apart."""
    rows = np.zeros((count, 4), np.float32)
    rows[:, 0] = np.arange(start, start + count)
    return rows


async def metrics(worker: Worker) -> dict[str, float]:
    """Every sample, by name and the values of its labels."""
    _, page = await worker.get("/metrics")
    return {
        " ".join([sample.name, *sample.labels.values()]): sample.value
        for family in text_string_to_metric_families(page)
        for sample in family.samples
    }


def total(samples: dict[str, float], name: str) -> float:
    return sum(value for key, value in samples.items() if key.split()[0] == name)


def store(s3: Any, bucket: str, prefix: str, rows: Rows) -> list[Message]:
    """In objects, to be announced on partition 0."""
    parts = [rows[at : at + ROWS_PER_OBJECT] for at in range(0, len(rows), ROWS_PER_OBJECT)]
    keys = [f"{prefix}/{number:04}.csv" for number in range(len(parts))]
    for key, part in zip(keys, parts, strict=True):
        s3.put_object(Bucket=bucket, Key=key, Body=csv(part))
    return [Message({"bucket": bucket, "key": key, "stream": key}) for key in keys]


async def time_to_answer(
    broker: Broker, topics: Topics, messages: list[Message], committed: int
) -> float:
    began_s = time.monotonic()
    await broker.publish(topics.input, messages)
    await broker.until_committed(topics.input, topics.input, {0: committed})
    return time.monotonic() - began_s


async def answers(broker: Broker, topics: Topics) -> list[tuple[Any, str | None]]:
    """(prediction, code of the error) of every record, in order."""
    records = (await broker.records(topics.output))[0]
    documents = [record.document for record in records]
    return [
        (document["prediction"], document.get("error", {}).get("code")) for document in documents
    ]


async def test_exactly_the_rows_that_make_the_handler_raise_are_rejected(
    services: Services, topics: Topics, bucket: str, s3: Any, broker: Broker
) -> None:
    rows = numbered(SICK_ROWS)
    bad = list(range(POISON_EVERY // 2, SICK_ROWS, POISON_EVERY))
    sick = rows.copy()
    sick[bad, 0] = RAISES
    async with deployed(services, "raises") as model:
        environ = environment(services, topics, MODEL__NAME=model.name, MODEL__REQUEST="float32")
        async with running_worker(environ) as worker:
            await worker.ready()
            messages = store(s3, bucket, "clean", rows)
            clean_s = await time_to_answer(broker, topics, messages, len(messages))
            before = await metrics(worker)
            messages = store(s3, bucket, "sick", sick)
            sick_s = await time_to_answer(broker, topics, messages, 2 * len(messages))
            after = await metrics(worker)
            assert await worker.stop() == 0, worker.said
    found = await answers(broker, topics)
    clean: list[tuple[Any, str | None]] = [(float(row), None) for row in range(SICK_ROWS)]
    expected = list(clean)
    for row in bad:
        expected[row] = (None, "model_rejected")
    assert found == clean + expected
    requests, batches = (
        total(after, name) - total(before, name)
        for name in ("penstock_model_requests_total", "penstock_batches_total")
    )
    log.info("clean %.2f s, %d bad rows %.2f s", clean_s, len(bad), sick_s)
    log.info("%.1f extra requests per bad row", (requests - batches) / len(bad))
    assert requests - batches <= 15 * len(bad)


async def test_an_object_of_which_every_row_is_refused_costs_few_requests_and_no_neighbour(
    services: Services, topics: Topics, bucket: str, s3: Any, broker: Broker
) -> None:
    bad, good = numbered(ROWS_PER_OBJECT), numbered(8)
    bad[:, 0] = RAISES
    ticks = SICK_SECONDS * 10
    async with deployed(services, "refuses") as model:
        s3.put_object(Bucket=bucket, Key="good.csv", Body=csv(good))
        s3.put_object(Bucket=bucket, Key="bad.csv", Body=csv(bad))
        environ = environment(
            services, topics,
            MODEL__NAME=model.name, MODEL__REQUEST="float32", MODEL__CANARY="[1, 2, 3, 4]",
        )  # fmt: skip
        async with running_worker(environ) as worker:
            await worker.ready()
            for tick in range(ticks):
                if tick == ticks // 4:
                    message = Message({"bucket": bucket, "key": "bad.csv"}, partition=1)
                    await broker.publish(topics.input, [message])
                await broker.publish(topics.input, [Message({"bucket": bucket, "key": "good.csv"})])
                await asyncio.sleep(0.1)
            await broker.until_committed(topics.input, topics.input, {0: ticks, 1: 1})
            seen = await metrics(worker)
            assert await worker.stop() == 0, worker.said
            assert "row after row" in worker.said
    refused = seen["penstock_model_requests_total refused"]
    log.info("%d requests were refused for %d rows", refused, len(bad))
    log.info("%s", {key: seen[key] for key in seen if key.startswith("penstock_latency")})
    assert refused < 300
    records = await broker.records(topics.output)
    codes = {record.document["error"]["code"] for record in records[1]}
    assert (len(records[1]), codes) == (len(bad), {"model_rejected"})
    values = [record.document["prediction"] for record in records[0]]
    assert values == [float(row) for row in range(8)] * ticks


async def test_a_worker_process_killed_again_and_again_blames_no_row_and_loses_none(
    services: Services, topics: Topics, bucket: str, s3: Any, broker: Broker
) -> None:
    rows, announced = 500, 0
    async with deployed(services, "killed") as model:
        s3.put_object(Bucket=bucket, Key="a.csv", Body=csv(numbered(rows)))
        environ = environment(services, topics, MODEL__NAME=model.name, MODEL__REQUEST="float32")
        async with running_worker(environ) as worker:
            await worker.ready()
            kills = 0
            # On a busy machine its worker may need longer than 5 s to come up again.
            while kills < 2 or announced < SICK_SECONDS * 10:
                if announced % 50 == 25:
                    kills += await model.kill_worker()
                await broker.publish(topics.input, [Message({"bucket": bucket, "key": "a.csv"})])
                announced += 1
                await asyncio.sleep(0.1)
            await broker.until_committed(topics.input, topics.input, {0: announced})
            seen = await metrics(worker)
            assert await worker.stop() == 0, worker.said
    log.info("%d kills, %d rows", kills, rows * announced)
    log.info("%s", {key: seen[key] for key in seen if key.startswith("penstock_model_requests")})
    assert await answers(broker, topics) == [(float(row), None) for row in range(rows)] * announced
    assert (await broker.ends(topics.dlq))[0] == 0


async def test_a_full_queue_blames_no_row_and_is_not_stormed(
    services: Services, topics: Topics, bucket: str, s3: Any, broker: Broker
) -> None:
    rows = numbered(SICK_ROWS)
    async with deployed(services, "slow", queue_size=4) as model:
        messages = store(s3, bucket, "slow", rows)
        await broker.publish(topics.input, messages)
        environ = environment(
            services, topics,
            MODEL__NAME=model.name, MODEL__REQUEST="float32", MODEL__MAX_IN_FLIGHT=16,
            WINDOW__MAX_ROWS=16,
        )  # fmt: skip
        async with running_worker(environ) as worker:
            await worker.ready()
            await broker.until_committed(topics.input, topics.input, {0: len(messages)})
            seen = await metrics(worker)
            assert await worker.stop() == 0, worker.said
    refused = seen["penstock_model_requests_total overloaded"]
    requests = total(seen, "penstock_model_requests_total")
    log.info("%d of %d requests were refused", refused, requests)
    assert 0 < refused < 0.05 * requests
    assert await answers(broker, topics) == [(float(row), None) for row in range(SICK_ROWS)]


@pytest.mark.timeout(DEATHS_S + 480)
async def test_a_row_that_kills_the_worker_process_is_rejected_alone(
    services: Services, topics: Topics, bucket: str, s3: Any, broker: Broker
) -> None:
    rows = numbered(3)
    rows[1, 0] = KILLS
    async with deployed(services, "kills") as model:
        await broker.publish(topics.input, store(s3, bucket, "kills", rows))
        environ = environment(
            services, topics,
            MODEL__NAME=model.name, MODEL__REQUEST="float32", MODEL__CANARY="[1, 2, 3, 4]",
            # In company it takes some more deaths, of two seconds each.
            WINDOW__MAX_ROWS=1,
        )  # fmt: skip
        async with running_worker(environ) as worker:
            await worker.ready()
            await broker.until_committed(topics.input, topics.input, {0: 1}, DEATHS_S)
            seen = await metrics(worker)
            assert await worker.stop() == 0, worker.said
    assert await answers(broker, topics) == [(0.0, None), (None, "model_rejected"), (2.0, None)]
    # The later a death the less it proves, and twenty of any lateness are enough.
    assert LONE_DEATHS <= seen["penstock_model_requests_total worker_died"] <= 20


async def test_a_model_that_is_not_there_ends_the_worker_at_once_and_one_that_goes_stops_the_line(
    services: Services, topics: Topics, bucket: str, s3: Any, broker: Broker
) -> None:
    async with deployed(services, "goes") as model:
        environ = environment(services, topics, MODEL__NAME="none", MODEL__REQUEST="float32")
        code, output = await ended_by_itself(environ)
        assert (code, "model.name" in output) == (2, True)
        environ |= {"PENSTOCK_MODEL__NAME": model.name}
        async with running_worker(environ) as worker:
            worker.may_end()
            await worker.ready()
            await broker.publish(topics.input, store(s3, bucket, "few", numbered(3)))
            await broker.until_committed(topics.input, topics.input, {0: 1})
            await model.unregister()
            await broker.publish(topics.input, store(s3, bucket, "few", numbered(3)))
            assert await worker.ended() == 4
            assert "worked before" in worker.said
    assert (await broker.committed(topics.input, topics.input))[0] == 1
    assert len(await answers(broker, topics)) == 3
    assert (await broker.ends(topics.dlq))[0] == 0


async def ended_by_itself(environ: dict[str, str]) -> tuple[int, str]:
    async with running_worker(environ) as worker:
        worker.may_end()
        return await worker.ended(), worker.said
