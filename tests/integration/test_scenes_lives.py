"""`penstock scenes` on the real Kafka: what changes between two lives, and what ends no life."""

import os
from base64 import b64encode
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest
from aiokafka import AIOKafkaProducer

from penstock.process.children import Child, running
from penstock.scenes.judge import ScenesReport
from tests.integration.test_scenes import EPOCH, remove, scenes_environment
from tests.support.services import Services, Topics
from tests.support.topic_tools import Broker, Message
from tests.support.waiting import until
from tests.support.worker import penstock

LIBRARIES = sorted(Path("/usr/lib").glob("*/faketime/libfaketime.so.1"))
# A worker that does not wait for everybody. On a busy machine, too, what is said at once comes
# within this deadline, and a scene is decided before a lease ends.
IMPATIENT = {
    "SCENES__PATIENCE_MS": 100,
    "SCENES__DEADLINE_MS": 1_500,
    "SCENES__LEASE_MS": 4_000,
}

needs_faketime = pytest.mark.skipif(not LIBRARIES, reason="needs libfaketime (Debian: faketime)")
each_engine = pytest.mark.parametrize("engine", ["penstock", "faust"])


def said(member: str, step: int, **more: Any) -> Message:
    partition = ord(member) % 4
    record = {
        "id": f"in/{partition}/{step}/0/0",
        "stream": f"yard/{member}",
        "source": {"topic": "in", "partition": partition, "offset": step},
        "row": 0,
        "event_time": EPOCH + 50 * step,
        "model": "rows",
        "prediction": {"score": 0.5},
    }
    return Message(record | more, partition, member.encode())


class Yard:
    """One site of cameras, its topics, and workers one after another."""

    def __init__(self, broker: Broker, environ: dict[str, str], source: str, log: Path) -> None:
        self.broker = broker
        self.environ = environ
        self.name = environ["PENSTOCK_SCENES__TOPIC"]
        self._source = source
        self._log = log

    @asynccontextmanager
    async def life(
        self, members: str, clock: str = "+0s", **changes: object
    ) -> AsyncIterator[Child]:
        listed = msgspec.json.encode({"yard": list(members)}).decode()
        environ = self.environ | {"PENSTOCK_SCENES__MEMBERS": listed}
        environ |= {f"PENSTOCK_{key}": str(value) for key, value in changes.items()}
        if clock != "+0s":
            environ |= {
                "LD_PRELOAD": str(LIBRARIES[0]),
                "FAKETIME": clock,
                "FAKETIME_DONT_FAKE_MONOTONIC": "1",
            }
        async with running(
            "scenes", "penstock", self._log, arguments=["scenes"], environ=environ
        ) as child:
            yield child
            assert child.code is None, self._log.read_text()

    async def say(self, messages: Iterable[Message]) -> None:
        await self.broker.publish(self._source, messages)

    async def scenes(self) -> list[dict[str, Any]]:
        read = (await self.broker.records(self.name)).values()
        return [each.document for found in read for each in found]

    async def late(self) -> list[dict[str, Any]]:
        read = (await self.broker.records(f"{self.name}.late")).values()
        return [each.document for found in read for each in found]

    async def until_there(self, closed_by: str, steps: Iterable[int]) -> None:
        """Scenes of these instants, all closed by this."""
        found: list[tuple[int, str]] = []

        async def are() -> bool:
            nonlocal found
            found = [(each["time"], each["closed_by"]) for each in await self.scenes()]
            return {(EPOCH + 50 * step, closed_by) for step in steps} <= set(found)

        await until(are, lambda: f"{closed_by} scenes; there are {found}; {self._log.read_text()}")

    async def until_committed(self) -> None:
        """What was said is not read again by the next worker."""
        is_faust = self.environ["PENSTOCK_SCENES__ENGINE"] == "faust"
        deciding = self.name if is_faust else f"{self.name}-sites"
        for group, topic in ((self.name, self._source), (deciding, f"{self.name}-by-site")):
            await self.broker.until_committed(group, topic, await self.broker.ends(topic))

    async def verified(self) -> ScenesReport:
        judged = await penstock("verify", "--scenes", environ=self.environ)
        report = msgspec.json.decode(judged.stdout, type=ScenesReport)
        assert judged.code == 0, report.examples
        return report


@asynccontextmanager
async def yard(
    services: Services, topics: Topics, broker: Broker, tmp_path: Path, **changes: object
) -> AsyncIterator[Yard]:
    environ = scenes_environment(services, topics, topics.output, {}, **changes)
    created = await penstock("topics", "create", "--scenes", "--partitions", "4", environ=environ)
    assert created.code == 0, created.stderr
    made = Yard(broker, environ, topics.output, tmp_path / "log")
    try:
        yield made
    finally:
        await remove(broker, made.name)


@needs_faketime
@each_engine
async def test_the_next_worker_goes_by_its_own_clock_and_its_own_list(
    services: Services, topics: Topics, broker: Broker, tmp_path: Path, engine: str
) -> None:
    async with yard(services, topics, broker, tmp_path, SCENES__ENGINE=engine) as site:
        async with site.life("ab", clock="+1h"):
            await site.say(said(member, step) for step in range(5) for member in "ab")
            await site.until_there("complete", range(5))
        async with site.life("abc", "+0s", **IMPATIENT):
            step = 5
            await site.say(said(member, step) for member in "ab")
            await site.until_there("quorum", [step])  # patience runs, though c is waited for

            async def evicted() -> bool:
                nonlocal step
                step += 1
                await site.say(said(member, step) for member in "ab")
                return any(each["closed_by"] == "members" for each in await site.scenes())

            await until(evicted, lambda: "c is evicted, as its lease runs")

            async def welcomed_back() -> bool:
                nonlocal step
                step += 1
                await site.say(said(member, step) for member in "abc")
                return any(
                    each["closed_by"] == "complete" and len(each["members"]) == 3
                    for each in await site.scenes()
                )

            await until(welcomed_back, lambda: "c is in a scene")
        found = {each["closed_by"]: each for each in await site.scenes()}
        away = found["members"]
        assert (away["members"]["c"], away["evicted"], away["missing"]) == (
            {"status": "evicted"},
            1,
            0,
        )
        assert found["complete"]["members"]["c"]["status"] == "present"
        assert {(each["member"], each["reason"]) for each in await site.late()} <= {("c", "late")}
        await site.verified()


@each_engine
async def test_what_cannot_be_is_too_large_or_was_taken_back_is_told_and_ends_no_worker(
    services: Services, topics: Topics, broker: Broker, tmp_path: Path, engine: str
) -> None:
    once = {"DELIVERY__GUARANTEE": "exactly_once", "SCENES__MODEL": "rows"}
    async with yard(services, topics, broker, tmp_path, SCENES__ENGINE=engine, **once) as site:
        noise = {m: {"x": b64encode(os.urandom(450_000)).decode()} for m in "ab"}
        async with site.life("ab") as worker:
            await taken_back(services, topics.output, [said(m, 0, prediction=1) for m in "ab"])
            await site.say(said(member, 0) for member in "ab")
            await site.say([said("a", 1, event_time=10**15)])
            impossible = said("a", 2).encoded or b""
            await site.say([Message(impossible.replace(b'"row":0', b'"row":%d' % 10**30), 1)])
            await site.say(said(member, 4, model="rows-v2") for member in "ab")
            for step in range(4, 8):
                await site.say(said(m, step, prediction=noise[m]) for m in "ab")
            await site.say(said(member, 8) for member in "ab")
            await site.until_there("complete", [0, *range(4, 9)])
            assert worker.code is None
        scenes = {each["time"]: each for each in await site.scenes()}
        first = scenes[EPOCH]["members"]["a"]
        assert first["prediction"] == {"score": 0.5}, "not the one that was taken back"
        large = scenes[EPOCH + 50 * 5]
        assert large["error"]["code"] == "result_too_large"
        assert {seat["status"] for seat in large["members"].values()} == {"present"}
        assert "error" not in scenes[EPOCH + 50 * 8]
        why = {each["reason"] for each in await site.late()}
        assert why == {"unreadable", "no_time", "other_model", "result_too_large"}
        report = await site.verified()
        assert (report.without_predictions, report.models["rows-v2"]) == (4, 2)


async def taken_back(services: Services, topic: str, messages: Iterable[Message]) -> None:
    """By a transaction that is aborted."""
    producer = AIOKafkaProducer(
        bootstrap_servers=services.bootstrap_servers, transactional_id=topic
    )
    await producer.start()
    try:
        await producer.begin_transaction()
        for each in messages:
            await producer.send(topic, each.encoded, key=each.key, partition=each.partition)
        await producer.flush()
        await producer.abort_transaction()
    finally:
        await producer.stop()


@each_engine
async def test_a_site_that_has_ended_is_gone_from_the_changelog_and_from_the_next_worker(
    services: Services, topics: Topics, broker: Broker, tmp_path: Path, engine: str
) -> None:
    changes = {"SCENES__ENGINE": engine, "SCENES__FORGET_MS": 2_000}
    async with yard(services, topics, broker, tmp_path, **changes) as site:

        async def last() -> dict[bytes | None, Any]:
            read = await broker.records(f"{site.name}-sites-changelog")
            return {each.key: each.value for found in read.values() for each in found if each.key}

        async def has_ended() -> bool:
            return await last() == {b"yard": None}

        async with site.life("ab"):
            await site.say(said(member, 0) for member in "ab")
            await site.until_there("complete", [0])
            await until(has_ended, lambda: "a tombstone for the site")
            await site.until_committed()
        async with site.life("ab"):
            await site.say(said(member, 1) for member in "ab")
            await site.until_there("complete", [1])
        assert len(await site.scenes()) == 2, "nothing was published again"
        await site.verified()
