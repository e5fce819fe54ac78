"""The run: at first all is well. Then the services of one region die and come back, and then the
workers of the other region die and come back. At the end the judge judges the topics.

Rule: `penstock verify` judges the topics of each region. The run measures the time from a death to
the first answer to a reference that was published after the death. Exit code 1 means that a promise
was broken.
"""

import argparse
import asyncio
import os
import sys
import tempfile
import uuid
from contextlib import suppress
from pathlib import Path
from time import monotonic
from typing import Any

import orjson
from aiokafka import AIOKafkaConsumer

from penstock import config
from penstock.adapters.kafka.topics import TopicShape, create_topics, delete_topics
from regions_run.two_regions import Place, placed, region_of
from tests.support.loads import csv
from tests.support.reference_model import random_rows
from tests.support.services import Services, Topics
from tests.support.topic_tools import Broker, Message, broker_of
from tests.support.worker import Worker, penstock, running_worker

OBJECTS = 60
ROWS = 8
PARTITIONS = 2
FAILOVER_S = 5.0
ENDS_S = 90.0


def say(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


class Run:
    """One run. `failures`: the promises that were broken."""

    def __init__(self, place: Place, broker: Broker, bucket: str, rate: float) -> None:
        self.place, self.broker, self.bucket = place, broker, bucket
        self.failures: list[str] = []
        self._rate = rate
        self._published: dict[str, float] = {}
        self._answered: dict[str, float] = {}
        self._counts = {(region, n): 0 for region in ("eu", "us") for n in range(PARTITIONS)}

    def check(self, what: str, is_kept: object) -> None:
        say(f"{'ok  ' if is_kept else 'FAIL'} {what}")
        if not is_kept:
            self.failures.append(what)

    async def publish_forever(self, region: str) -> None:
        topic = self.place.topics[region].input
        number = 0
        while True:
            await asyncio.sleep(1 / self._rate)
            partition = number % PARTITIONS
            key = f"{number % OBJECTS}.csv"
            value = {"bucket": self.bucket, "key": key, "stream": f"{region}-{partition}"}
            at = self._counts[region, partition]
            self._published[f"{topic}/{partition}/{at}"] = monotonic()
            await self.broker.publish(topic, [Message(value, partition)])
            self._counts[region, partition] += 1
            number += 1

    async def read_forever(self, topic: str) -> None:
        consumer = AIOKafkaConsumer(
            topic,
            bootstrap_servers=self.place.services.bootstrap_servers,
            auto_offset_reset="earliest",
        )
        async with consumer:
            async for record in consumer:
                document = orjson.loads(record.value)
                if document.get("last"):
                    name = document["id"].rsplit("/", 2)[0]
                    self._answered.setdefault(name, monotonic())

    async def first_after(self, region: str, since_s: float) -> float:
        """Wait for the first answer to a reference of this region that was published after
        `since_s`. Returns the seconds until this answer.
        """
        topic = self.place.topics[region].input
        while True:
            later = [
                self._answered[name]
                for name, at_s in self._published.items()
                if name.startswith(f"{topic}/") and at_s > since_s and name in self._answered
            ]
            if later:
                return min(later) - since_s
            await asyncio.sleep(0.02)

    async def until(self, what: str, condition: Any, within_s: float) -> None:
        began_s = monotonic()
        while not await condition():
            if monotonic() - began_s > within_s:
                self.check(f"{what} within {within_s:g} s", is_kept=False)
                return
            await asyncio.sleep(0.2)
        self.check(f"{what} after {monotonic() - began_s:.1f} s", is_kept=True)

    async def all_committed(self) -> bool:
        for region in ("eu", "us"):
            topic = self.place.topics[region].input
            found = await self.broker.committed(f"{self.place.group}-{region}", topic)
            for number in range(PARTITIONS):
                if found.get(number, 0) < self._counts[region, number]:
                    return False
        return True


async def story(run: Run, eu: dict[str, str], us: dict[str, str]) -> None:
    """The run's steps. `eu` and `us` are the environments of a worker in each region."""
    place = run.place
    async with running_worker(eu) as near, asyncio.TaskGroup() as tasks:
        async with running_worker(us) as far:
            await asyncio.gather(near.ready(PARTITIONS), far.ready(PARTITIONS))
            background = [
                tasks.create_task(run.read_forever(place.topics["eu"].output)),
                *(tasks.create_task(run.publish_forever(region)) for region in ("eu", "us")),
            ]
            await asyncio.sleep(10.0)
            shares = [(await region_of(one))["local_share"] for one in (eu, us)]
            run.check(f"while all is well reads are local: {shares}", shares == [1.0, 1.0])
            crossed = place.crossed_bytes()
            run.check(f"bytes between the regions: {crossed}", crossed == 0)
            await services_die(run, eu)
            await workers_die(run, eu, far)
        async with running_worker(us):

            async def left() -> bool:
                return not (await region_of(eu))["others"]["us"]["helped"]

            await run.until("the region that has workers again is given back", left, 60.0)
            await asyncio.sleep(5.0)
            for task in background[1:]:
                task.cancel()
            await run.until("all is committed", run.all_committed, ENDS_S)
            say(f"     eu at the end: {await region_of(eu)}")
        background[0].cancel()
        run.check("the worker of eu ends well", await near.stop() == 0)


async def services_die(run: Run, eu: dict[str, str]) -> None:
    """Kill store and model of `eu` under load, and start them again."""
    place = run.place
    killed_s = monotonic()
    place.minio.kill()
    await place.model.kill()
    async with asyncio.timeout(ENDS_S):
        took_s = await run.first_after("eu", killed_s)
    run.check(f"fail-over of store and model: {took_s:.2f} s", took_s <= FAILOVER_S)
    await asyncio.sleep(10.0)
    before = await region_of(eu)
    run.check(f"bytes came from the other region: {before['bytes']}", before["bytes"].get("us"))
    await place.minio.start()
    await place.model.start()

    async def is_back() -> bool:
        found = await region_of(eu)
        return bool(found["bytes"]["eu"] > before["bytes"]["eu"])

    await run.until("reads are local again", is_back, 15.0)
    await asyncio.sleep(4.0)
    crossed, known = place.crossed_bytes(), await region_of(eu)
    await asyncio.sleep(3.0)
    now = await region_of(eu)
    more = place.crossed_bytes() - crossed
    is_local = now["bytes"]["us"] == known["bytes"]["us"]
    run.check(f"and nothing crosses any more: {more} bytes", is_local and not more)


async def workers_die(run: Run, eu: dict[str, str], far: Worker) -> None:
    """Kill the worker of `us`, whose topic the worker of `eu` must take over."""
    killed_s = monotonic()
    await far.kill()
    async with asyncio.timeout(ENDS_S):
        took_s = await run.first_after("us", killed_s)
    helped = (await region_of(eu))["others"]["us"]
    run.check(f"the region without workers is helped after {took_s:.1f} s", helped["helped"])
    await asyncio.sleep(5.0)


async def judge(run: Run, region: str, environ: dict[str, str]) -> None:
    verdict = await penstock("verify", "--json", environ=environ)
    report = orjson.loads(verdict.stdout)
    shown = {key: report[key] for key in report if isinstance(report[key], int | float | bool)}
    run.check(f"penstock verify, {region}: code {verdict.code}, {shown}", verdict.code == 0)


async def main(rate: float, delay_ms: float) -> int:
    services = Services.named_by(os.environ)
    name = f"regions-{uuid.uuid4().hex[:8]}"
    output = (f"{name}-out", f"{name}-out.dlq")
    topics = {region: Topics(f"{name}-{region}", *output) for region in ("eu", "us")}
    every = [*output, *(topic.input for topic in topics.values())]
    kafka = config.Kafka(bootstrap_servers=services.bootstrap_servers)
    await create_topics(kafka, every, TopicShape(PARTITIONS))
    try:
        with tempfile.TemporaryDirectory() as folder:
            async with (
                placed(services, topics, name, Path(folder), delay_ms / 1000) as place,
                broker_of(services) as broker,
            ):
                return await _run(Run(place, broker, name, rate))
    finally:
        await delete_topics(kafka, every)


async def _run(run: Run) -> int:
    for region in ("eu", "us"):
        s3 = run.place.s3(region)
        s3.create_bucket(Bucket=run.bucket)
        for number in range(OBJECTS):
            body = csv(random_rows(ROWS, seed=number))
            s3.put_object(Bucket=run.bucket, Key=f"{number}.csv", Body=body)
        s3.close()
    try:
        eu, us = run.place.environ("eu"), run.place.environ("us")
        await story(run, eu, us)
        for region, environ in (("eu", eu), ("us", us)):
            await judge(run, region, environ)
    finally:
        s3 = run.place.s3("us")
        with suppress(Exception):
            for number in range(OBJECTS):
                s3.delete_object(Bucket=run.bucket, Key=f"{number}.csv")
            s3.delete_bucket(Bucket=run.bucket)
        s3.close()
    return 1 if run.failures else 0


if __name__ == "__main__":
    parser = argparse.ArgumentParser("scripts/regions", description=__doc__)
    parser.add_argument("--rate", type=float, default=20.0, help="references a second, a region")
    parser.add_argument("--delay-ms", type=float, default=40.0, help="one way, between regions")
    options = parser.parse_args()
    sys.exit(asyncio.run(main(options.rate, options.delay_ms)))
