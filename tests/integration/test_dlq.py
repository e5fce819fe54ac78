"""Dead letters on the real services: a stopped line that goes on, and rows that are sent back."""

import asyncio
import json
from typing import Any

import pytest

from tests.support.broker_stage import CLIENTS, Client
from tests.support.loads import csv
from tests.support.reference_model import random_rows
from tests.support.services import Services, Topics
from tests.support.topic_tools import Broker, Message
from tests.support.waiting import until
from tests.support.worker import environment, penstock, running_worker

ROWS = csv(random_rows(6)).splitlines(keepends=True)
SHORT_ROW = b"1,2,3\n"


async def answers(broker: Broker, topics: Topics, partition: int) -> list[dict[str, Any]]:
    return [record.document for record in (await broker.records(topics.output))[partition]]


async def test_rows_of_a_mended_object_are_sent_back_and_answered_under_their_own_numbers(
    services: Services, topics: Topics, bucket: str, s3: Any, broker: Broker
) -> None:
    broken = [*ROWS[:2], SHORT_ROW, SHORT_ROW, ROWS[4], SHORT_ROW]
    etag = s3.put_object(Bucket=bucket, Key="a.csv", Body=b"".join(broken))["ETag"]
    reference = {"bucket": bucket, "key": "a.csv", "stream": "cam", "etag": etag}
    await broker.publish(topics.input, [Message(reference, 2), Message(b"junk", 1)])
    environ = environment(services, topics)
    async with running_worker(environ) as worker:
        await worker.ready(4)
        await broker.until_committed(topics.input, topics.input, {1: 1, 2: 1})
        listed = await penstock("dlq", "list", "--json", "--stream", "cam", environ=environ)
        letters = [json.loads(line) for line in listed.stdout.splitlines()]
        assert [letter["rows"] for letter in letters] == [[[2, 4], [5, 6]]]
        table = await penstock("dlq", "list", environ=environ)
        *_, counts = table.stdout.decode().splitlines()
        assert counts.startswith("2 dead letters: ")
        assert {"bad_row 1", "bad_reference 1"} == set(counts.partition(": ")[2].split(", "))

        s3.put_object(Bucket=bucket, Key="a.csv", Body=b"".join(ROWS))
        dry = await penstock("dlq", "redrive", "--latest", "--dry-run", environ=environ)
        assert "would send 1 of them back" in dry.stdout.decode()
        sent = await penstock("dlq", "redrive", "--latest", environ=environ)
        assert (sent.code, "sent 1 of them back" in sent.stdout.decode()) == (0, True)
        await broker.until_committed(topics.input, topics.input, {2: 2})
        again = (await answers(broker, topics, 2))[len(ROWS) :]
        assert [(one["source"]["offset"], one["row"]) for one in again] == [(1, 2), (1, 3), (1, 5)]
        assert again[0]["id"] == f"{topics.input}/2/1/0/2"
        assert all(one["prediction"] and one["stream"] == "cam" for one in again)
        assert again[-1]["last"]
        assert again[-1]["rows"] == len(ROWS)
        assert await worker.stop() == 0
    judged = await penstock("verify", environ=environ)
    assert judged.code == 0, judged.stdout.decode()


async def test_a_stopped_line_is_told_everywhere_and_goes_on_after_the_mending(
    services: Services, make_topics: Any, bucket: str, s3: Any, broker: Broker
) -> None:
    topics = await make_topics(2)
    for number in range(3):
        s3.put_object(Bucket=bucket, Key=f"good-{number}.csv", Body=ROWS[0])
    bad = [{"bucket": bucket, "key": f"bad-{n}.csv", "stream": "bad"} for n in range(5)]
    good = [{"bucket": bucket, "key": f"good-{n}.csv", "stream": "good"} for n in range(3)]
    await broker.publish(topics.input, [Message(reference, 0) for reference in bad])
    environ = environment(services, topics, LIMITS__DLQ_CONSECUTIVE=2)
    async with running_worker(environ) as worker:
        await broker.until_committed(topics.input, topics.input, {0: 2})

        async def is_told() -> bool:
            shown = await penstock("dlq", "list", environ=environ)
            return f"stands still at {topics.input}/0/2" in shown.stdout.decode()

        await until(is_told, lambda: worker.said)
        await broker.publish(topics.input, [Message(reference, 1) for reference in good])
        await broker.until_committed(topics.input, topics.input, {1: 3})
        assert "penstock_lines_stopped 1.0" in (await worker.get("/metrics"))[1]
        await worker.ready()
        assert worker.said.count(f"line stopped: stream 'bad' at {topics.input}/0, offset 2") == 1
        assert await worker.stop() == 0
    for number in range(5):
        s3.put_object(Bucket=bucket, Key=f"bad-{number}.csv", Body=ROWS[0])
    async with running_worker(environ) as worker:
        await broker.until_committed(topics.input, topics.input, {0: 5})
        assert await worker.stop() == 0
    offsets = [answer["source"]["offset"] for answer in await answers(broker, topics, 0)]
    assert offsets == [0, 1, 2, 3, 4]
    assert sum((await broker.ends(topics.dlq)).values()) == 2


async def test_a_worker_all_of_whose_lines_stopped_ends_with_exit_code_4(
    services: Services, make_topics: Any, broker: Broker
) -> None:
    topics = await make_topics(1)
    missing = {"bucket": "no-such-bucket", "key": "a.csv", "stream": "s"}
    await broker.publish(topics.input, [Message(missing)] * 4)
    environ = environment(services, topics, LIMITS__DLQ_CONSECUTIVE=2)
    ended = await penstock("run", environ=environ)
    assert ended.code == 4
    assert "every line is stopped" in ended.stderr
    assert "limits.dlq_consecutive is 2" in ended.stderr
    assert "Traceback" not in ended.stderr
    assert await broker.committed(topics.input, topics.input) == {0: 2}
    assert sum((await broker.ends(topics.dlq)).values()) == 2


@pytest.mark.parametrize("client", CLIENTS)
@pytest.mark.parametrize(
    ("order", "guarantee"), [("partition", "at_least_once"), ("stream", "exactly_once")]
)
async def test_a_stopped_line_goes_on_by_a_word_without_a_restart(
    services: Services,
    make_topics: Any,
    bucket: str,
    s3: Any,
    broker: Broker,
    client: Client,
    order: str,
    guarantee: str,
) -> None:
    topics = await make_topics(2)
    bad = [{"bucket": bucket, "key": f"bad-{n}.csv", "stream": "bad"} for n in range(7)]
    good = {"stream": "good", "inline": [[0] * 16]}
    messages = [Message(each, 0) for each in (*bad, good)]
    await broker.publish(topics.input, messages)
    environ = environment(
        services, topics, LIMITS__DLQ_CONSECUTIVE=2, OUTPUT__ORDER=order,
        DELIVERY__GUARANTEE=guarantee, KAFKA__CLIENT=client,
    )  # fmt: skip

    async def said(verb: str, stream: str = "bad") -> tuple[int, str]:
        ended = await penstock("dlq", verb, stream, "--wait=60", environ=environ)
        return ended.code, ended.stdout.decode() + ended.stderr

    async with running_worker(environ) as worker:

        async def stands_at(offset: int) -> bool:
            shown = await penstock("dlq", "list", environ=environ)
            return f"stands still at {topics.input}/0/{offset}" in shown.stdout.decode()

        await until(lambda: stands_at(2), lambda: worker.said)
        if order == "stream":
            await broker.until_answered(topics.output, 3)
        code, text = await said("resume", "other")
        assert (code, "these do: bad" in text) == (2, True), text
        code, text = await said("skip")
        assert code == 1, text
        assert f"skip stream bad, which stands at {topics.input}/0/2\n" in text
        assert f"stopped again at once, at {topics.input}/0/5: 1 more of its messages" in text
        assert await stands_at(5)
        for number in range(7):
            s3.put_object(Bucket=bucket, Key=f"bad-{number}.csv", Body=ROWS[0])
        code, text = await said("resume")
        assert (code, f"{topics.input}/0 goes on" in text) == (0, True), text
        await broker.until_committed(topics.input, topics.input, {0: 8})
        assert await worker.stop() == 0, worker.said
    found = await answers(broker, topics, 0)
    offsets = [one["source"]["offset"] for one in found if one["stream"] == "bad"]
    assert offsets == [0, 1, 2, 3, 4, 5, 6]
    judged = await penstock("verify", environ=environ)
    assert judged.code == 0, judged.stdout.decode()


@pytest.mark.parametrize("client", CLIENTS)
async def test_words_that_are_said_at_once_are_all_heard_though_the_commit_names_few_of_the_stops(
    services: Services, make_topics: Any, bucket: str, broker: Broker, client: Client
) -> None:
    streams = [f"s{number}" for number in range(20)]
    topics = await make_topics(1)
    bad = [
        {"bucket": bucket, "key": f"bad-{stream}.csv", "stream": stream}
        for _ in range(3)
        for stream in streams
    ]
    await broker.publish(topics.input, [Message(each, 0) for each in bad])
    environ = environment(
        services, topics, LIMITS__DLQ_CONSECUTIVE=2, OUTPUT__ORDER="stream", KAFKA__CLIENT=client
    )
    async with running_worker(environ) as worker:

        async def all_stand() -> bool:
            return all(f"stream {stream!r} at" in worker.said for stream in streams)

        await until(all_stand, lambda: worker.said)

        async def the_commit_is_full() -> bool:
            shown = await penstock("dlq", "list", environ=environ)
            return "names 16 stopped streams at most" in shown.stdout.decode()

        await until(the_commit_is_full, lambda: worker.said)
        said = await asyncio.gather(
            *(
                penstock("dlq", "skip", stream, "--wait=0", environ=environ)
                for stream in streams[::3]
            )
        )
        assert [ended.code for ended in said] == [0] * 7, [ended.stderr for ended in said]

        async def all_are_skipped() -> bool:
            found = await answers(broker, topics, 0)
            skipped = {one["stream"] for one in found if one["source"]["offset"] >= 40}
            return skipped >= set(streams[::3])

        await until(all_are_skipped, lambda: worker.said)
        assert await worker.stop() == 0, worker.said
