"""What was announced before is answered again, on the real services, beside the live group."""

import json
import signal
from collections.abc import AsyncIterator, Sequence
from datetime import UTC, datetime, timedelta
from itertools import takewhile
from pathlib import Path

import pytest
import pytest_asyncio

from penstock.core.progress.cursor import Position
from tests.support.job import Job
from tests.support.loads import Load, first_of_each, places_of
from tests.support.model_proxy import ModelProxy
from tests.support.reference_model import Rows
from tests.support.services import Services
from tests.support.topic_tools import Record, broker_of
from tests.support.waiting import until
from tests.support.worker import penstock, running_worker


@pytest.fixture(scope="module")
def load() -> Load:
    """Some 4,000 rows of 24 archives."""
    return Load(24, rows=300)


@pytest_asyncio.fixture(loop_scope="function")
async def answered(job: Job) -> Job:
    """A live worker has answered all."""
    await job.announce()
    async with running_worker(job.environment()) as worker:
        await job.finish(worker)
    return job


@pytest_asyncio.fixture(loop_scope="function")
async def to(job: Job) -> AsyncIterator[str]:
    """A name for the topic of the replay, which removes what it made."""
    topic = f"{job.topics.output}.v2"
    yield topic
    made = await job.broker.topics() & {topic, f"{topic}.dlq"}
    await job.broker.delete(made)


def options(to: str, *more: str) -> list[str]:
    return ["--since", "1h", "--to", to, "--json", *more]


def predictions(records: dict[int, list[Record]]) -> dict[int, list[tuple[str, bytes]]]:
    """Id and the bytes of all that is said of the row from there on, by partition."""
    return {
        number: [(one.document["id"], one.value[one.value.index(b'"row":') :]) for one in of_part]
        for number, of_part in records.items()
    }


async def test_an_unchanged_model_answers_the_same_bytes_and_the_live_group_stays(
    answered: Job, to: str
) -> None:
    job, broker = answered, answered.broker
    committed = await broker.positions(job.topics.input, job.topics.input)
    before = await broker.ends(job.topics.output)
    ended = await penstock("replay", *options(to, "--diff"), environ=job.environment())
    assert ended.code == 0, ended.stderr
    summary = json.loads(ended.stdout)
    assert (summary["complete"], summary["rows"]) == (True, len(job.load.rows))
    assert f"created {to} (4 partitions, as {job.topics.output})" in ended.stderr
    found, rows = summary["difference"], len(job.load.rows)
    assert (found["rows"], found["agreed"], found["equal"]) == (rows, rows, rows)
    assert (found["only_then"], found["only_now"], found["high"]) == (0, 0, 1.0)
    then = predictions(await broker.records(job.topics.output))
    assert predictions(await broker.records(to)) == then
    assert await broker.positions(job.topics.input, job.topics.input) == committed
    assert await broker.ends(job.topics.output) == before


async def test_former_answers_that_are_only_in_result_objects_are_compared(
    job: Job, to: str, tmp_path: Path
) -> None:
    output = {
        "OUTPUT__OBJECTS": f"{tmp_path.as_uri()}/{{bucket}}/{{key}}.parquet",
        "OUTPUT__RECORDS": "objects",
    }
    environ = job.environment(**output)
    await job.announce()
    async with running_worker(environ) as worker:
        await job.finish(worker)
    ended = await penstock("replay", *options(to, "--diff"), environ=environ)
    assert ended.code == 0, ended.stderr
    found, rows = json.loads(ended.stdout)["difference"], len(job.load.rows)
    assert (found["rows"], found["agreed"], found["equal"]) == (rows, rows, rows)
    assert (found["only_then"], found["only_now"]) == (0, 0)


async def test_what_is_done_is_not_done_again_and_other_options_need_another_name(
    answered: Job, to: str
) -> None:
    environ = answered.environment()
    first = await penstock("replay", *options(to, "--streams", "site-[01]"), environ=environ)
    again = await penstock("replay", *options(to, "--streams", "site-[01]"), environ=environ)
    other = await penstock("replay", *options(to, "--streams", "site-2"), environ=environ)
    done, repeated = json.loads(first.stdout), json.loads(again.stdout)
    archives = [
        archive for archive in answered.load.archives if archive.stream in ("site-0", "site-1")
    ]
    assert done["rows"] == sum(len(archive.rows) for archive in archives)
    assert done["skipped"] == len(answered.load.archives) - len(archives)
    assert (repeated["complete"], repeated["rows"]) == (True, 0)
    assert (other.code, "--name" in other.stderr) == (2, True)


@pytest.mark.parametrize("wrong", ["input", "output", "dlq"])
async def test_a_topic_in_use_is_refused(job: Job, wrong: str) -> None:
    topic = getattr(job.topics, wrong)
    ended = await penstock("replay", *options(topic), environ=job.environment())
    assert ended.code == 2
    assert f"--to {topic}" in ended.stderr
    assert not sum((await job.broker.ends(job.topics.output)).values())


@pytest.mark.parametrize("client", ["aiokafka", "confluent"])
async def test_only_what_was_announced_between_the_two_times_is_answered(
    job: Job, to: str, client: str
) -> None:
    await job.announce()
    # Kafka's times are whole milliseconds: after that of the last message, and not before that of
    # the next one.
    between = datetime.now(UTC) + timedelta(milliseconds=1)

    async def is_now() -> bool:
        return datetime.now(UTC) >= between

    await until(is_now, lambda: f"{between}")
    await job.announce()
    environ = job.environment(KAFKA__CLIENT=client)
    arguments = options(to, "--until", between.isoformat())
    ended = await penstock("replay", *arguments, environ=environ)
    assert ended.code == 0, ended.stderr
    assert places_of(await job.broker.records(to)) == job.expected()
    group = f"{job.topics.input}.replay.{to}"
    assert await job.broker.committed(group, job.topics.input) == job.load.ends


@pytest.mark.parametrize("guarantee", ["at_least_once", "exactly_once"])
async def test_after_a_kill_the_same_command_goes_on_and_every_row_is_there(
    answered: Job, services: Services, to: str, proxy: ModelProxy, guarantee: str
) -> None:
    job = answered
    environ = job.environment(
        MODEL__REQUEST="float32",
        MODEL__URL=proxy.url,
        WINDOW__MAX_ROWS=64,
        DELIVERY__GUARANTEE=guarantee,
        DELIVERY__COMMIT_INTERVAL_MS=100,
    )
    proxy.hold_after(20 * 64)
    async with running_worker(environ, *options(to), command="replay") as replay:

        async def has_begun() -> bool:
            return proxy.held > 0

        await until(has_begun, lambda: replay.said)
        await replay.kill()
    proxy.release()
    ended = await penstock("replay", *options(to), environ=environ)
    assert ended.code == 0, ended.stderr
    async with broker_of(services, "read_committed") as committed:
        places = places_of(await committed.records(to))
    expected = job.expected()
    assert first_of_each(places) == expected
    if guarantee == "exactly_once":
        assert places == expected


def may_leave(job: Job, answered: Sequence[Rows]) -> dict[int, int]:
    """By partition, how many rows come before the first one without an answer."""
    known = {row.tobytes() for rows in answered for row in rows}
    rows: dict[int, list[bytes]] = {number: [] for number in job.load.ends}
    for archive in job.load.archives:
        rows[archive.partition] += [row.tobytes() for row in archive.rows]
    return {
        number: len(list(takewhile(known.__contains__, of_part)))
        for number, of_part in rows.items()
    }


async def has_committed(job: Job, to: str) -> dict[int, int]:
    """By partition, how many rows are answered by the position of the replay."""
    group = f"{job.topics.input}.replay.{to}"
    rows = dict.fromkeys(job.load.ends, 0)
    for number, commit in (await job.broker.positions(group, job.topics.input)).items():
        progress = Position.of(commit).progress
        rows[number] = sum(cursor.row for cursor in progress.rows.values()) + sum(
            len(archive.rows)
            for archive in job.load.archives
            if archive.partition == number and archive.offset < commit.next_offset
        )
    return rows


async def test_ctrl_c_is_a_stop_that_can_be_gone_on_with(
    answered: Job, to: str, proxy: ModelProxy
) -> None:
    job = answered
    environ = job.environment(
        MODEL__REQUEST="float32",
        MODEL__URL=proxy.url,
        WINDOW__MAX_ROWS=64,
        DELIVERY__DRAIN_MS=200,  # the model answers nothing meanwhile
    )
    proxy.hold_after(10 * 64)
    async with running_worker(environ, *options(to), command="replay") as replay:

        async def stands_still() -> bool:
            # Else an answer may be on its way to Kafka when the drain is over, which comes twice.
            leaving = may_leave(job, proxy.passed)
            return proxy.held > 0 and await has_committed(job, to) == leaving

        await until(stands_still, lambda: replay.said)
        replay.send(signal.SIGINT)
        assert await replay.ended() == 0
        assert json.loads(replay.said.splitlines()[-1])["complete"] is False
    proxy.release()
    ended = await penstock("replay", *options(to), environ=environ)
    assert (ended.code, json.loads(ended.stdout)["complete"]) == (0, True)
    assert places_of(await job.broker.records(to)) == job.expected()


async def test_it_waits_while_the_live_group_is_behind(answered: Job, to: str) -> None:
    job, broker = answered, answered.broker
    await job.announce()  # once more, and no worker is there
    arguments = options(to, "--behind-s", "0.5")
    async with running_worker(job.environment(), *arguments, command="replay") as replay:

        async def says_so() -> bool:
            return "waits, as the live group is" in replay.said

        await until(says_so, lambda: replay.said)
        assert not sum((await broker.ends(to)).values())
        replay.may_end()  # from when the live group has caught up
        async with running_worker(job.environment()) as worker:
            ends = {number: 2 * end for number, end in job.load.ends.items()}
            await broker.until_committed(job.topics.input, job.topics.input, ends)
            assert await replay.ended() == 0, replay.said
            summary = json.loads(replay.said.splitlines()[-1])
            assert await worker.stop() == 0
    assert summary["rows"] == 2 * len(job.load.rows)
    assert summary["idle_s"] > 0
