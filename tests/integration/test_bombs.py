"""Each bomb beside twenty live streams at 20 Hz, through a real worker: what the streams lose by
it, and how much memory the worker takes.

Run with BOMB_SECONDS: for how long the streams run without a bomb, and again while one is sent
every five seconds. `--log-cli-level=INFO` shows the figures: times are written, not judged, as they
are worth something on a quiet machine alone.
"""

import asyncio
import logging
import os
from pathlib import Path
from typing import Any

import orjson
import pytest
from aiohttp import web
from aiokafka import AIOKafkaProducer

from penstock import config
from tests.integration.conftest import MakeTopics
from tests.support.bombs import BOMBS, FOR_LONG_ANSWERS, LONG_ANSWER_BYTES, Bomb
from tests.support.http_server import http_server
from tests.support.services import Services
from tests.support.steady_streams import PARTITIONS, steady_streams
from tests.support.worker import environment, running_worker

log = logging.getLogger(__name__)

SECONDS = float(os.environ.get("BOMB_SECONDS", "0"))
EVERY_S = 5.0
# Connections are made, and code is run for the first time.
WARM_S = 10.0
REST_S = 300.0
# Of the worker, with its interpreter and libraries: the budget and a quarter.
MOST_BYTES = config.Limits().buffer_bytes * 5 // 4
pytestmark = [
    pytest.mark.skipif(not SECONDS, reason="some 20 minutes: BOMB_SECONDS says how many seconds"),
    pytest.mark.timeout(2 * SECONDS + 2 * REST_S),
]


async def model(request: web.Request) -> web.Response:
    """Answers each row by nothing, and some by very much."""
    body = await request.read()
    if request.method != "POST":
        return web.Response()
    if "X-Rows" in request.headers:
        answers = [b"0"] * int(request.headers["X-Rows"])
    else:
        rows = orjson.loads(body)
        answers = [b"0"] * len(rows)
        if any(row == [FOR_LONG_ANSWERS] * 16 for row in rows):
            answers[0] = b"[%b0]" % (b"[]," * (LONG_ANSWER_BYTES // 3))
    return web.Response(body=b"[%b]" % b",".join(answers), content_type="application/json")


def peak_bytes(pid: int) -> int:
    """Of the worker itself, since its start."""
    status = Path(f"/proc/{pid}/status").read_text()
    return int(status.partition("VmHWM:")[2].split()[0]) << 10


async def thrown(services: Services, bomb: Bomb, bucket: str, topic: str) -> None:
    """The bomb, again and again, to a partition of its own."""
    reference = orjson.dumps({"bucket": bucket, "key": bomb.name, "stream": "bomb", **bomb.fields})
    async with AIOKafkaProducer(bootstrap_servers=services.bootstrap_servers) as producer:
        for _ in range(max(1, int(SECONDS / EVERY_S))):
            for message in bomb.messages or (reference,):
                await producer.send(topic, message, partition=PARTITIONS)
            await producer.flush()
            await asyncio.sleep(EVERY_S)


@pytest.mark.parametrize("bomb", BOMBS, ids=lambda bomb: bomb.name)
async def test_live_streams_beside_a_bomb(
    bomb: Bomb, services: Services, make_topics: MakeTopics, bucket: str, s3: Any
) -> None:
    if bomb.body is not None:
        s3.put_object(Bucket=bucket, Key=bomb.name, Body=bomb.body())
    topics = await make_topics(PARTITIONS + 1)
    async with (
        http_server(model) as url,
        steady_streams(services.bootstrap_servers, topics) as streams,
        running_worker(
            environment(
                services,
                topics,
                MODEL__URL=f"{url}/rows",
                MODEL__PROTOCOL="http",
                LIMITS__DLQ_RATIO=0,
                LIMITS__DLQ_CONSECUTIVE=0,
                **bomb.changes,
            )
        ) as worker,
    ):
        await worker.ready(partitions=PARTITIONS + 1)
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(streams.run(WARM_S + 2 * SECONDS))
            await asyncio.sleep(WARM_S + SECONDS)
            calm_bytes = peak_bytes(worker.pid)
            await thrown(services, bomb, bucket, topics.input)
        await streams.answered(REST_S)
        most_bytes = peak_bytes(worker.pid)
        await worker.kill()  # of some bombs a million rows are answered
    verdict, half_s = streams.verdict(), WARM_S + SECONDS
    calm = [verdict.percentile(share, WARM_S, half_s) for share in (0.5, 0.99)]
    beside = [verdict.percentile(share, half_s) for share in (0.5, 0.99)]
    log.info(
        "%s: p50/p99 %.0f/%.0f ms without, %.0f/%.0f beside (%.2f times at p99); worker's peak "
        "%d MB without, %d MB beside; %s",
        bomb.name, *calm, *beside, beside[1] / calm[1],
        calm_bytes >> 20, most_bytes >> 20, verdict,
    )  # fmt: skip
    assert (verdict.lost, verdict.doubled, verdict.disordered) == (0, 0, 0)
    assert most_bytes <= MOST_BYTES
