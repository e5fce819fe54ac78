"""Each bomb beside twenty live streams at 20 Hz, through a real worker: what the streams lose by
it, how much memory the worker takes, and that each bomb is answered.

Run with BOMB_SECONDS: for how long the streams run without a bomb, and again while one is sent.
Some 25 seconds a bomb with 6. `--log-cli-level=INFO` shows the figures: times are written,
not judged, as they are worth something on a quiet machine alone. What the worker's processor had to
do is worth something on any.
"""

import asyncio
import logging
import os
from pathlib import Path
from typing import Any

import orjson
import pytest

from penstock import config
from tests.integration.conftest import MakeTopics
from tests.support.bomb_model import bomb_model
from tests.support.bombs import BOMBS, Bomb
from tests.support.services import Services
from tests.support.steady_streams import PARTITIONS, steady_streams
from tests.support.topic_tools import Broker, Message
from tests.support.worker import environment, running_worker

log = logging.getLogger(__name__)

SECONDS = float(os.environ.get("BOMB_SECONDS", "0"))
# Connections are made, and code is run for the first time.
WARM_S = 5.0
REST_S = 120.0
# Of the worker, with its interpreter and libraries: the budget and a quarter.
MOST_BYTES = config.Limits().buffer_bytes * 5 // 4
pytestmark = [
    pytest.mark.skipif(not SECONDS, reason="some 8 minutes: BOMB_SECONDS says how many seconds"),
    pytest.mark.timeout(2 * SECONDS + 3 * REST_S),
]


def peak_bytes(pid: int) -> int:
    """Of the worker itself, since its start."""
    status = Path(f"/proc/{pid}/status").read_text()
    return int(status.partition("VmHWM:")[2].split()[0]) << 10


def cpu_s(pid: int) -> float:
    """Of the worker itself, since its start."""
    user, system = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[11:13]
    return (int(user) + int(system)) / os.sysconf("SC_CLK_TCK")


async def thrown(broker: Broker, bomb: Bomb, bucket: str, topic: str) -> None:
    """The bomb, again and again, to a partition of its own."""
    reference = orjson.dumps({"bucket": bucket, "key": bomb.name, "stream": "bomb", **bomb.fields})
    for _ in range(bomb.times):
        messages = bomb.messages or (reference,)
        await broker.publish(topic, [Message(each, PARTITIONS) for each in messages])
        await asyncio.sleep(SECONDS / bomb.times)


@pytest.mark.parametrize("bomb", BOMBS, ids=lambda bomb: bomb.name)
async def test_live_streams_beside_a_bomb(
    bomb: Bomb,
    services: Services,
    make_topics: MakeTopics,
    broker: Broker,
    bucket: str,
    s3: Any,
) -> None:
    if bomb.body is not None:
        s3.put_object(Bucket=bucket, Key=bomb.name, Body=bomb.body())
    topics = await make_topics(PARTITIONS + 1)
    async with (
        bomb_model() as url,
        steady_streams(services.bootstrap_servers, topics) as streams,
        running_worker(
            environment(
                services,
                topics,
                MODEL__URL=f"{url}{bomb.path}",
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
            await asyncio.sleep(WARM_S)
            warm_cpu_s = cpu_s(worker.pid)
            await asyncio.sleep(SECONDS)
            calm_bytes, calm_cpu_s = peak_bytes(worker.pid), cpu_s(worker.pid)
            await thrown(broker, bomb, bucket, topics.input)
        await streams.answered(REST_S)
        # What is committed is answered.
        sent = (await broker.ends(topics.input))[PARTITIONS]
        await broker.until_committed(topics.input, topics.input, {PARTITIONS: sent}, REST_S)
        answers = (await broker.ends(topics.output))[PARTITIONS]
        most_bytes, whole_cpu_s = peak_bytes(worker.pid), cpu_s(worker.pid)
        await worker.kill()
    verdict, half_s = streams.verdict(), WARM_S + SECONDS
    calm = [verdict.percentile(share, WARM_S, half_s) for share in (0.5, 0.99)]
    beside = [verdict.percentile(share, half_s) for share in (0.5, 0.99)]
    log.info(
        "%s: p50/p99 %.0f/%.0f ms without, %.0f/%.0f beside (%.2f times at p99); worker's CPU "
        "%.1f s without, %.1f s beside, its peak %d MB without, %d MB beside; its partition has "
        "%d answers of %d messages; %s",
        bomb.name, *calm, *beside, beside[1] / calm[1],
        calm_cpu_s - warm_cpu_s, whole_cpu_s - calm_cpu_s, calm_bytes >> 20, most_bytes >> 20,
        answers, sent, verdict,
    )  # fmt: skip
    assert (verdict.lost, verdict.doubled, verdict.disordered) == (0, 0, 0)
    assert answers
    assert most_bytes <= MOST_BYTES
