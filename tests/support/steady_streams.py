"""Twenty streams that announce a row each twentieth of a second, whatever becomes of the answers.

Rule: what is due is sent when it is due (open loop), and a latency is counted from the time at
which its row was due.
"""

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from itertools import pairwise
from typing import NamedTuple

import orjson
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition

from tests.support.services import Topics
from tests.support.waiting import until

STREAMS, HZ, PARTITIONS = 20, 20, 4


class Verdict(NamedTuple):
    """`late_ms`: latencies by the second in which their row was due."""

    sent: int
    lost: int
    doubled: int
    disordered: int
    late_ms: list[tuple[float, float]]

    def percentile(self, share: float, since_s: float = 0.0, until_s: float = 1e9) -> float:
        late = sorted(ms for due_s, ms in self.late_ms if since_s <= due_s < until_s)
        return late[int(share * (len(late) - 1))] if late else float("nan")

    def __str__(self) -> str:
        return (
            f"{self.sent} sent, {self.lost} lost, {self.doubled} doubled, {self.disordered} "
            f"disordered; p50 {self.percentile(0.5):.1f} p99 {self.percentile(0.99):.1f} "
            f"max {self.percentile(1.0):.1f} ms"
        )


class SteadyStreams:
    """Made by `steady_streams`."""

    def __init__(self, topics: Topics, producer: AIOKafkaProducer) -> None:
        self._topics, self._producer = topics, producer
        self.sent = [0] * PARTITIONS
        self._begun_s = time.time()
        self._answers: list[tuple[int, int, float, float]] = []

    async def run(self, seconds: float) -> None:
        self._begun_s = time.time()
        deliveries: list[asyncio.Future[object]] = []
        for tick in range(int(seconds * HZ)):
            due_s = self._begun_s + tick / HZ
            await asyncio.sleep(max(0.0, due_s - time.time()))
            for stream in range(STREAMS):
                number = stream % PARTITIONS
                row = {
                    "stream": f"s{stream}",
                    "inline": [[float(tick)] * 16],
                    "event_time": int(due_s * 1000),
                }
                deliveries.append(
                    await self._producer.send(
                        self._topics.input, orjson.dumps(row), partition=number
                    )
                )
                self.sent[number] += 1
            if tick % HZ == 0:
                await asyncio.gather(*deliveries)
                deliveries.clear()
        await asyncio.gather(*deliveries)

    async def read(self, consumer: AIOKafkaConsumer) -> None:
        while True:
            for where, records in (await consumer.getmany(timeout_ms=200)).items():
                now_ms = time.time() * 1000
                for record in records:
                    answer = orjson.loads(record.value)
                    due_ms = answer["event_time"]
                    due_s = due_ms / 1000 - self._begun_s
                    offset = answer["source"]["offset"]
                    self._answers.append((where.partition, offset, due_s, now_ms - due_ms))

    async def answered(self, within_s: float) -> None:
        """Until each row has an answer."""

        async def done() -> bool:
            return len({answer[:2] for answer in self._answers}) >= sum(self.sent)

        await until(done, lambda: str(self.verdict()), within_s)

    def verdict(self) -> Verdict:
        lost = doubled = disordered = 0
        for number, sent in enumerate(self.sent):
            offsets = [offset for partition, offset, *_ in self._answers if partition == number]
            first = list(dict.fromkeys(offsets))
            lost += sent - len(first)
            doubled += len(offsets) - len(first)
            disordered += sum(after < before for before, after in pairwise(first))
        late_ms = [(due_s, ms) for *_, due_s, ms in self._answers]
        return Verdict(sum(self.sent), lost, doubled, disordered, late_ms)


@asynccontextmanager
async def steady_streams(servers: str, topics: Topics) -> AsyncIterator[SteadyStreams]:
    """On topics of `PARTITIONS` partitions, by a listener that asks nobody who he is."""
    producer = AIOKafkaProducer(bootstrap_servers=servers, enable_idempotence=True)
    consumer = AIOKafkaConsumer(
        bootstrap_servers=servers,
        isolation_level="read_committed",
        fetch_max_wait_ms=50,
        auto_offset_reset="earliest",
    )
    await producer.start()
    await consumer.start()
    consumer.assign([TopicPartition(topics.output, number) for number in range(PARTITIONS)])
    streams = SteadyStreams(topics, producer)
    reading = asyncio.create_task(streams.read(consumer))
    try:
        yield streams
    finally:
        reading.cancel()
        await consumer.stop()
        await producer.stop()
