"""What the commands tell on the real services: exit codes, messages, and what they leave alone."""

import asyncio
import json
import signal
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from tests.support.loads import csv
from tests.support.reference_model import random_rows
from tests.support.services import Services, Topics
from tests.support.topic_tools import Broker, Message
from tests.support.waiting import DEADLINE_S, until
from tests.support.worker import environment, penstock, running_worker


async def test_topics_are_created_once_however_often_one_asks(
    services: Services, topics: Topics, broker: Broker
) -> None:
    fresh = Topics(*(f"{name}-more" for name in topics))
    environ = environment(services, fresh)
    first = await penstock("topics", "create", "--partitions", "3", environ=environ)
    again = await penstock("topics", "create", "--partitions", "3", environ=environ)
    try:
        assert first.stdout.decode().splitlines() == [f"{name}: created" for name in fresh]
        assert again.stdout.decode().splitlines() == [f"{name}: was there" for name in fresh]
        assert first.code == again.code == 0
        assert [len(await broker.ends(name)) for name in fresh] == [3, 3, 3]
    finally:
        await broker.delete(fresh)


async def test_the_configuration_is_shown_without_its_secrets(
    services: Services, topics: Topics
) -> None:
    environ = environment(services, topics, KAFKA__SASL_PASSWORD="open sesame")
    shown = await penstock("config", environ=environ)
    assert shown.code == 0
    document = json.loads(shown.stdout)
    assert document["kafka"]["input_topic"] == topics.input
    assert document["objects"]["endpoint_url"] == services.endpoint_url
    for secret in (services.secret, "open sesame"):
        assert secret not in shown.stdout.decode() + shown.stderr


@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        ({"OUTPUT__TOPIC": "no-such-topic"}, ["no-such-topic", "penstock topics create"]),
        ({"OUTPUT__DLQ_TOPIC": "no-such-topic"}, ["no-such-topic", "penstock topics create"]),
        ({"KAFKA__INPUT_TOPIC": "no-such-topic"}, ["no-such-topic", "penstock topics create"]),
        ({"KAFKA__INPUTTOPIC": "refs"}, ["kafka.inputtopic", "did you mean input_topic?"]),
        ({"WINDOW__MAX_ROWS": "many"}, ["max_rows"]),
        ({"MODEL__URL": "localhost"}, ["model.url", "http://"]),
    ],
)
async def test_a_wrong_setting_ends_the_start_with_the_mend(
    services: Services, topics: Topics, broker: Broker, wrong: dict[str, str], says: list[str]
) -> None:
    ended = await penstock("run", environ=environment(services, topics, **wrong))
    assert ended.code == 2
    assert all(text in ended.stderr for text in says), ended.stderr
    assert "Traceback" not in ended.stderr
    assert "no-such-topic" not in await broker.topics()


async def test_an_output_topic_with_fewer_partitions_than_the_input_is_refused(
    services: Services, topics: Topics, make_topics: Any
) -> None:
    narrow = await make_topics(2)
    ended = await penstock(
        "run", environ=environment(services, topics, OUTPUT__TOPIC=narrow.output)
    )
    assert ended.code == 2
    assert f"{narrow.output} has 2 partitions, {topics.input} has 4" in ended.stderr


async def test_a_model_that_is_not_there_stops_the_worker_with_its_name_and_place(
    services: Services, topics: Topics, bucket: str, s3: Any, broker: Broker
) -> None:
    s3.put_object(Bucket=bucket, Key="a.csv", Body=csv(random_rows(5)))
    await broker.publish(topics.input, [Message({"bucket": bucket, "key": "a.csv"})])
    ended = await penstock("run", environ=environment(services, topics, MODEL__NAME="rose"))
    assert ended.code == 2
    assert f"{services.model_url}/predictions/rose" in ended.stderr
    assert "model.name" in ended.stderr
    assert "Traceback" not in ended.stderr
    assert await broker.committed(topics.input, topics.input) == {}
    assert sum((await broker.ends(topics.output)).values()) == 0


async def test_a_port_that_is_in_use_is_told(services: Services, topics: Topics) -> None:
    environ = environment(services, topics)
    async with running_worker(environ) as worker:
        await worker.alive()
        ended = await penstock("run", environ=environ)
    assert ended.code == 2
    assert f"127.0.0.1:{environ['PENSTOCK_HTTP__PORT']}" in ended.stderr
    assert "http.port" in ended.stderr


async def test_a_broker_that_is_not_there_is_exit_code_3(
    services: Services, topics: Topics
) -> None:
    environ = environment(services, topics, KAFKA__BOOTSTRAP_SERVERS="127.0.0.1:1")
    ended = await penstock("topics", "create", environ=environ)
    assert ended.code == 3
    assert "kafka.bootstrap_servers" in ended.stderr
    assert "Traceback" not in ended.stderr


async def test_a_worker_waits_for_its_broker_and_may_be_stopped_meanwhile(
    services: Services, topics: Topics
) -> None:
    environ = environment(services, topics, KAFKA__BOOTSTRAP_SERVERS="127.0.0.1:1")
    async with running_worker(environ) as worker:

        async def is_waiting() -> bool:
            return "waiting up to" in worker.said

        await until(is_waiting, lambda: worker.said)
        assert await worker.stop() == 0


async def test_the_doctor_says_what_is_there(
    services: Services, topics: Topics, bucket: str, s3: Any
) -> None:
    s3.put_object(Bucket=bucket, Key="a.csv", Body=b",".join([b"1"] * 16) + b"\n")
    environ = environment(services, topics, MODEL__CANARY=str([0.5] * 16))
    ended = await penstock("doctor", f"s3://{bucket}/a.csv", environ=environ)
    lines = ended.stdout.decode().splitlines()
    assert (ended.code, [line[:5] for line in lines]) == (0, ["ok   "] * len(lines)), lines
    for said in (f"{topics.input} (4 partitions)", services.endpoint_url, "32 bytes", "canary"):
        assert said in ended.stdout.decode()
    assert lines[-1].startswith("ok     distance: a read takes "), lines[-1]


@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        ({"OUTPUT__RECORDS": "objects"}, "configuration: output.records"),
        ({"OUTPUT__TOPIC": "no-such-topic"}, "topics: there is no topic no-such-topic"),
        ({"OBJECTS__SECRET": "wrong"}, "store: "),
        ({"MODEL__NAME": "no-such-model"}, "model: "),
        ({"MODEL__CANARY": "[1, 2]"}, "model.canary"),
    ],
)
async def test_the_doctor_says_what_is_wrong_and_still_looks_at_the_rest(
    services: Services, topics: Topics, wrong: dict[str, str], says: str
) -> None:
    ended = await penstock("doctor", environ=environment(services, topics, **wrong))
    lines = ended.stdout.decode().splitlines()
    [bad] = [line for line in lines if line.startswith("wrong")]
    assert (ended.code, says in bad) == (1, True), lines
    assert {line[7:].partition(":")[0] for line in lines} >= {"topics", "store", "model"}
    assert services.secret not in ended.stdout.decode()


async def test_the_doctor_says_which_route_nothing_matches(
    services: Services, topics: Topics, broker: Broker, tmp_path: Path
) -> None:
    values = [{"bucket": "b", "key": f"site-1/cam-1/{n}.csv"} for n in range(1_000)]
    await broker.publish(topics.input, [Message(value, n % 4) for n, value in enumerate(values)])
    file = tmp_path / "routes.toml"
    file.write_text(
        f"""
        [[models]]
        name = "other"
        served_as = "{services.model_name}"
        url = "{services.model_url}"
        [[routes]]
        stream = "b/site-1/*"
        model = "other"
        """
    )
    environ = environment(services, topics)
    ended = await penstock("doctor", "--config", str(file), environ=environ)
    [bad] = [line for line in ended.stdout.decode().splitlines() if "routes:" in line]
    assert bad.startswith("mind   routes: none of the newest 1,000 objects match"), ended
    assert "'site-1/cam-1'" in bad


async def test_the_doctor_says_which_object_cannot_be_read(
    services: Services, topics: Topics, bucket: str
) -> None:
    url = f"s3://{bucket}/missing.csv"
    ended = await penstock("doctor", url, environ=environment(services, topics))
    assert ended.code == 1
    assert f"wrong  {url}: " in ended.stdout.decode()


async def test_watching_without_answers_says_that_it_waits(
    services: Services, topics: Topics
) -> None:
    watching = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "penstock", "watch", "--since", "10s", "--limit", "1"),
        env=environment(services, topics),
        stderr=asyncio.subprocess.PIPE,
    )
    assert watching.stderr is not None
    try:
        async with asyncio.timeout(DEADLINE_S):
            line = (await watching.stderr.readline()).decode()
            watching.send_signal(signal.SIGINT)
            assert await watching.wait() == 0
    finally:
        with suppress(ProcessLookupError):
            watching.kill()
    assert f"no such answer on {topics.output} since then: waiting" in line
    assert "--until-now" in line
