"""The real stack as others use it: its commands, its events, its model in every request form."""

import asyncio
import json
import subprocess
from collections.abc import Callable
from typing import Any

import aiohttp
import numpy as np
import pyarrow as pa
import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer

from tests.support.reference_model import Rows, numpy_answers, random_rows, torch_answers
from tests.support.services import EXPORT, STACK, Services, Topics, stack_status
from tests.support.waiting import DEADLINE_S

Request = tuple[bytes, dict[str, str]]
OPAQUE = "application/octet-stream"
BYTES = "application/x-bytes-tensor"


def as_json(rows: Rows) -> Request:
    return json.dumps(rows.tolist()).encode(), {"Content-Type": "application/json"}


def as_instances(rows: Rows) -> Request:
    body = json.dumps({"instances": rows.tolist()}).encode()
    return body, {"Content-Type": "application/json; charset=utf-8"}


def as_float32(rows: Rows) -> Request:
    return rows.astype("<f4").tobytes(), {"Content-Type": OPAQUE, "X-Rows": str(len(rows))}


def as_arrow(rows: Rows) -> Request:
    batch = pa.RecordBatch.from_arrays(list(rows.T), names=[f"c{i}" for i in range(rows.shape[1])])
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batch.schema) as writer:
        writer.write_batch(batch)
    body: bytes = sink.getvalue().to_pybytes()
    return body, {"Content-Type": "application/vnd.apache.arrow.stream"}


def as_raw(rows: Rows) -> Request:
    return rows.astype("<f4").tobytes(), {"Content-Type": OPAQUE}


def as_bytes(rows: Rows) -> Request:
    blobs = [row.astype("<f4").tobytes() for row in rows]
    body = b"".join(len(blob).to_bytes(4, "little") + blob for blob in blobs)
    return body, {"Content-Type": BYTES, "X-Rows": str(len(rows))}


async def ask(services: Services, request: Request) -> tuple[int, Any]:
    body, headers = request
    url = f"{services.model_url}/predictions/{services.model_name}"
    timeout = aiohttp.ClientTimeout(total=DEADLINE_S)
    async with (
        aiohttp.ClientSession(timeout=timeout) as session,
        session.post(url, data=body, headers=headers) as response,
    ):
        return response.status, json.loads(await response.read())


def assert_same(answers: list[dict[str, Any]], expected: list[dict[str, Any]]) -> None:
    assert [answer["label"] for answer in answers] == [answer["label"] for answer in expected]
    scores = [answer["score"] for answer in answers]
    assert scores == pytest.approx([answer["score"] for answer in expected], abs=1e-5)


@pytest.fixture
def own_stack(services: Services) -> dict[str, Any]:
    """The state of the stack, where it is what these tests run on."""
    status = stack_status()
    addresses = {service["address"] for service in status["services"].values()}
    if services.bootstrap_servers not in addresses:
        pytest.skip("the services are not those of scripts/stack")
    return status


def test_up_again_changes_nothing(own_stack: dict[str, Any]) -> None:
    again = subprocess.run([STACK, "up"], capture_output=True, text=True, check=True)
    assert again.stdout.splitlines()[-1].endswith("was up already")
    assert stack_status() == own_stack


@pytest.mark.usefixtures("own_stack")
def test_env_prints_exports_and_nothing_else() -> None:
    printed = subprocess.run([STACK, "env"], capture_output=True, text=True, check=True).stdout
    found = [EXPORT.fullmatch(line) for line in printed.splitlines()]
    assert all(found)
    assert {match[1] for match in found if match} >= {
        "PENSTOCK_KAFKA__BOOTSTRAP_SERVERS",
        "PENSTOCK_OBJECTS__ENDPOINT_URL",
        "PENSTOCK_OBJECTS__KEY",
        "PENSTOCK_OBJECTS__SECRET",
        "PENSTOCK_OBJECTS__REGION",
        "PENSTOCK_MODEL__URL",
        "PENSTOCK_MODEL__NAME",
    }


async def test_a_put_is_announced_on_the_input_topic(
    services: Services, s3: Any, bucket: str
) -> None:
    events = [{"QueueArn": services.events_arn, "Events": ["s3:ObjectCreated:*"]}]
    s3.put_bucket_notification_configuration(
        Bucket=bucket, NotificationConfiguration={"QueueConfigurations": events}
    )
    async with AIOKafkaConsumer(
        services.input_topic, bootstrap_servers=services.bootstrap_servers
    ) as consumer:
        # The end is looked up lazily: ask for it, so that the event comes after.
        for partition in consumer.assignment():
            await consumer.position(partition)
        s3.put_object(Bucket=bucket, Key="site 1/cam+3/ü.csv", Body=b"1,2\n")
        async with asyncio.timeout(DEADLINE_S):
            async for message in consumer:
                event = json.loads(message.value)
                if event["Records"][0]["s3"]["bucket"]["name"] == bucket:
                    break
    assert event["EventName"] == "s3:ObjectCreated:Put"
    assert event["Records"][0]["s3"]["object"]["key"] == "site+1%2Fcam%2B3%2F%C3%BC.csv"


async def test_only_committed_transactions_are_read(services: Services, topics: Topics) -> None:
    servers = services.bootstrap_servers
    async with AIOKafkaProducer(
        bootstrap_servers=servers, transactional_id=topics.output
    ) as producer:
        await producer.begin_transaction()
        await producer.send_and_wait(topics.output, b"taken back", partition=3)
        await producer.abort_transaction()
        async with producer.transaction():
            await producer.send_and_wait(topics.output, b"kept", partition=3)
    async with AIOKafkaConsumer(
        topics.output,
        bootstrap_servers=servers,
        auto_offset_reset="earliest",
        isolation_level="read_committed",
    ) as consumer:
        async with asyncio.timeout(DEADLINE_S):
            assert (await consumer.getone()).value == b"kept"


@pytest.mark.parametrize("form", [as_json, as_float32, as_bytes, as_arrow])
async def test_every_form_of_many_rows_is_answered_alike(
    services: Services, form: Callable[[Rows], Request]
) -> None:
    rows = random_rows(300)
    status, answers = await ask(services, form(rows))
    assert status == 200
    assert_same(answers, numpy_answers(rows))


async def test_instances_are_answered_as_predictions(services: Services) -> None:
    rows = random_rows(5)
    status, answer = await ask(services, as_instances(rows))
    assert status == 200
    assert_same(answer["predictions"], numpy_answers(rows))


async def test_a_raw_body_is_one_row(services: Services) -> None:
    row = random_rows(1)
    status, answers = await ask(services, as_raw(row))
    assert status == 200
    assert_same(answers, numpy_answers(row))


async def test_answers_are_those_of_torch_itself(services: Services) -> None:
    if services.torch_python is None:
        pytest.skip("no Python with torch beside the services: compared with numpy only")
    rows = random_rows(100, seed=2)
    _, answers = await ask(services, as_float32(rows))
    assert_same(answers, torch_answers(rows, services.torch_python))
    assert {answer["label"] for answer in answers} == {0, 1, 2}


@pytest.mark.parametrize("first", [b"{", b"["])
async def test_a_matrix_that_begins_like_json_is_a_matrix(services: Services, first: bytes) -> None:
    body = first + as_float32(random_rows(1))[0][1:]
    status, answers = await ask(services, (body, {"Content-Type": OPAQUE, "X-Rows": "1"}))
    assert status == 200
    assert_same(answers, numpy_answers(np.frombuffer(body, "<f4").reshape(1, -1)))


async def test_header_names_may_be_in_lower_case(services: Services) -> None:
    rows = random_rows(3)
    headers = {"content-type": OPAQUE, "x-rows": "3"}
    status, answers = await ask(services, (as_float32(rows)[0], headers))
    assert status == 200
    assert_same(answers, numpy_answers(rows))


@pytest.mark.parametrize(
    "bad", [["a"] * 16, [None] * 16, [1.0] * 15, "row", {"x": 1}, [[1.0] * 16]]
)
async def test_a_row_without_numbers_is_rejected_alone(services: Services, bad: Any) -> None:
    rows = random_rows(3)
    body = json.dumps([rows[0].tolist(), bad, *rows[1:].tolist()]).encode()
    status, answers = await ask(services, (body, {"Content-Type": "application/json"}))
    assert status == 200
    assert answers.pop(1).keys() == {"error"}
    assert_same(answers, numpy_answers(rows))


@pytest.mark.parametrize("value", [np.nan, np.inf])
@pytest.mark.parametrize("form", [as_float32, as_arrow])
async def test_a_row_that_leads_to_no_finite_answer_is_rejected_alone(
    services: Services, form: Callable[[Rows], Request], value: float
) -> None:
    rows = random_rows(3)
    spoiled = rows.copy()
    spoiled[1, 4] = value
    status, answers = await ask(services, form(spoiled))
    assert status == 200
    assert answers.pop(1).keys() == {"error"}
    assert_same(answers, numpy_answers(rows[[0, 2]]))


@pytest.mark.parametrize("form", [as_json, as_float32, as_bytes])
async def test_no_rows_are_answered_by_no_answers(
    services: Services, form: Callable[[Rows], Request]
) -> None:
    assert await ask(services, form(random_rows(0))) == (200, [])


@pytest.mark.parametrize(
    ("body", "headers", "says"),
    [
        (b"[[1, 2", {"Content-Type": "application/json"}, "not JSON"),
        (b'{"rows": []}', {"Content-Type": "application/json"}, "instances"),
        (b"7", {"Content-Type": "application/json"}, "array"),
        (b"\0" * 64, {"Content-Type": OPAQUE, "X-Rows": "2"}, "128 bytes, not 64"),
        (b"\0" * 64, {"Content-Type": OPAQUE, "X-Rows": "many"}, "X-Rows"),
        (b"\4\0\0\0one", {"Content-Type": BYTES, "X-Rows": "1"}, "7 bytes are not 1 rows"),
        (b"\3\0\0\0one", {"Content-Type": BYTES, "X-Rows": "2"}, "7 bytes are not 2 rows"),
        (b"nothing", {"Content-Type": "application/vnd.apache.arrow.stream"}, "Arrow"),
        (b"1,2,3", {"Content-Type": "text/csv"}, "Content-Type"),
    ],
)
async def test_what_is_no_batch_of_rows_is_refused_with_the_reason(
    services: Services, body: bytes, headers: dict[str, str], says: str
) -> None:
    status, answer = await ask(services, (body, headers))
    assert status == 400
    assert says in answer["error"]
