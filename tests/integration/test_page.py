"""The live page of a real worker: what its first line says of planted causes, and its buttons."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from tests.support.chromium import Tab, chromium
from tests.support.json_server import json_server
from tests.support.loads import csv
from tests.support.reference_model import random_rows
from tests.support.services import Services, Topics
from tests.support.topic_tools import Broker, Message
from tests.support.worker import Worker, environment, running_worker

TOKEN = "open-sesame"
ROWS = csv(random_rows(6)).splitlines(keepends=True)


@asynccontextmanager
async def seen(environ: dict[str, str]) -> AsyncIterator[tuple[Worker, Tab]]:
    """A worker, and its page in a browser."""
    async with (
        running_worker(environ | {"PENSTOCK_HTTP__TOKEN": TOKEN}) as worker,
        chromium() as browser,
        browser.tab() as tab,
    ):
        await worker.alive()
        await tab.open(f"http://127.0.0.1:{environ['PENSTOCK_HTTP__PORT']}/#token={TOKEN}")
        yield worker, tab


def first_line_has(text: str) -> str:
    return f'document.querySelector("#verdict .first")?.innerText.includes("{text}")'


async def test_poison_rows_are_told_counted_and_sent_back_and_a_stopped_line_goes_on(
    services: Services, make_topics: Any, bucket: str, s3: Any, broker: Broker
) -> None:
    topics = await make_topics(2)
    s3.put_object(Bucket=bucket, Key="a.csv", Body=b"".join([*ROWS[:2], b"oops\n", *ROWS[3:]]))
    reference = {"bucket": bucket, "key": "a.csv", "stream": "cam-7"}
    environ = environment(services, topics, LIMITS__DLQ_CONSECUTIVE=2)
    async with seen(environ) as (worker, tab):
        # Only now, as it is news for a minute, in which the browser might still start.
        await broker.publish(topics.input, [Message(reference, 1)])
        await tab.until(first_line_has("cam-7: its rows are refused, bad_row:"))
        # As Kafka tells, which names the owners.
        await tab.until("last.group?.partitions.length === 2")
        await tab.until("last.group.partitions.every(one => one.owner && one.host)")
        await tab.until("last.group.partitions[1].committed === 1")

        s3.put_object(Bucket=bucket, Key="a.csv", Body=b"".join(ROWS))
        await tab.run("$('latest').click(); document.querySelector('#letters button').click()")
        await tab.until("!$('send').disabled")
        assert "would send 1 of them back" in await tab.text("#redriven")
        await tab.run("$('send').click()")
        await broker.until_committed(topics.input, topics.input, {1: 2})
        await tab.until("$('redriven').textContent.includes('sent 1 of them back')")

        missing = [{"bucket": bucket, "key": f"{n}.csv", "stream": "cam-8"} for n in range(5)]
        await broker.publish(topics.input, [Message(one, 0) for one in missing])
        await tab.until(first_line_has("cam-8 stands still at"))
        for number in range(5):
            s3.put_object(Bucket=bucket, Key=f"{number}.csv", Body=ROWS[0])
        await tab.run("document.querySelector('#stopped button').click()")
        await broker.until_committed(topics.input, topics.input, {0: 5})
        await tab.until("$('stopped-panel').hidden")
        assert not tab.complaints
        worker.may_end()


async def test_a_model_that_hangs_up_on_rows_and_one_that_is_away_are_told_apart(
    services: Services, topics: Topics, bucket: str, s3: Any, broker: Broker
) -> None:
    s3.put_object(Bucket=bucket, Key="a.csv", Body=b"".join(ROWS[:2]))
    async with json_server("/", lambda rows: [1.0] * len(rows)) as model:
        model.dislikes = bool
        environ = environment(services, topics, MODEL__PROTOCOL="http", MODEL__URL=f"{model.url}/")
        async with seen(environ) as (worker, tab):
            await tab.until(first_line_has("All is well"))
            message = Message({"bucket": bucket, "key": "a.csv", "stream": "s"}, 1)
            await broker.publish(topics.input, [message])
            # At first the server is told so; at last each row that it hung up on.
            await tab.until(
                'document.querySelector("#verdict .first").innerText.includes("without rows")'
            )
            # Each row is tried a dozen times, after waits of up to 5 s.
            await broker.until_committed(topics.input, topics.input, {1: 1})
            model.dislikes = lambda _: True
            await broker.publish(topics.input, [message])
            await tab.until(first_line_has("The model server has not answered for"))
            model.dislikes = lambda _: False
            await broker.until_committed(topics.input, topics.input, {1: 2})
            await tab.until("!last.status.outages.length")
            assert not tab.complaints
            worker.may_end()
