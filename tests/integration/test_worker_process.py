"""The worker as a process on the real services: how it stops, dies, shares, and what it tells."""

import signal
from typing import Any

import pytest

from tests.support.job import Job
from tests.support.loads import Load, csv, first_of_each
from tests.support.model_proxy import ModelProxy
from tests.support.reference_model import random_rows
from tests.support.services import Services, Topics
from tests.support.topic_tools import Broker, Message
from tests.support.waiting import until
from tests.support.worker import Worker, environment, running_worker

# About half of what the 40 archives have; the rest is held back.
PASSED_ROWS = 1000


@pytest.fixture(scope="module")
def load() -> Load:
    return Load(40, rows=100)


def slowly(job: Job, proxy: ModelProxy, **changes: object) -> dict[str, str]:
    """Few objects and few rows at a time, so that much is left to do in the middle."""
    proxy.hold_after(PASSED_ROWS)
    settings: dict[str, object] = {
        "MODEL__URL": proxy.url,
        "MODEL__REQUEST": "float32",
        "WINDOW__MAX_ROWS": 16,
        "OBJECTS__CONCURRENCY": 4,
        "LIMITS__IN_FLIGHT_OBJECTS": 2,
        # What was begun is done by then, on a busy machine, too.
        "DELIVERY__DRAIN_MS": 60_000,
    }
    return job.environment(**(settings | changes))


async def held_in_the_middle(job: Job, worker: Worker, proxy: ModelProxy) -> None:
    """Until requests are held back, and something but not all is committed."""
    committed: dict[int, int] = {}

    async def is_held() -> bool:
        nonlocal committed
        committed = await job.committed()
        return proxy.held > 0 and sum(committed.values()) > 0

    await until(is_held, lambda: f"a load in the middle: {committed}, {worker.said}")
    assert sum(committed.values()) < 40


async def finish_by_another(job: Job, environ: dict[str, str]) -> None:
    """Another worker of the group does the rest."""
    async with running_worker(environ) as worker:
        await job.finish(worker)


async def test_a_stop_in_the_middle_delivers_what_was_begun_and_the_next_worker_does_the_rest(
    job: Job, proxy: ModelProxy
) -> None:
    await job.announce()
    environ = slowly(job, proxy)
    async with running_worker(environ) as worker:
        await held_in_the_middle(job, worker, proxy)
        worker.send(signal.SIGTERM)
        proxy.release()
        assert await worker.ended() == 0, worker.said
    stopped_at = await job.committed()
    assert sum(stopped_at.values()) < 40
    output = await job.places()
    assert output == job.expected(below=stopped_at)

    await finish_by_another(job, environ)
    await job.assert_answered()


async def test_after_a_kill_in_the_middle_only_what_was_not_committed_is_repeated(
    job: Job, proxy: ModelProxy
) -> None:
    await job.announce()
    environ = slowly(job, proxy)
    async with running_worker(environ) as worker:
        await held_in_the_middle(job, worker, proxy)
        await worker.kill()
    committed = await job.committed()
    before = await job.places()
    answered = job.expected(below=committed)
    assert all(before[number][: len(answered[number])] == answered[number] for number in before)

    proxy.release()
    await finish_by_another(job, environ)
    output = await job.places()
    assert first_of_each(output) == job.expected()
    await job.assert_predicted()
    for number, places in output.items():
        repeated = places[len(before[number]) :]
        again = {place.id for place in repeated} & {place.id for place in before[number]}
        assert not again & {place.id for place in answered[number]}


async def test_when_one_of_two_workers_stops_the_other_takes_over_its_partitions(
    job: Job, proxy: ModelProxy
) -> None:
    environ = slowly(job, proxy)
    other = job.environment()["PENSTOCK_HTTP__PORT"]
    async with (
        running_worker(environ) as leaving,
        running_worker(environ | {"PENSTOCK_HTTP__PORT": other}) as staying,
    ):
        await leaving.ready(partitions=2)
        await staying.ready(partitions=2)
        await job.announce()
        await held_in_the_middle(job, leaving, proxy)
        leaving.send(signal.SIGTERM)
        proxy.release()
        assert await leaving.ended() == 0, leaving.said
        await staying.ready(partitions=4)
        await job.finish(staying)
    await job.assert_answered()


async def test_the_worker_tells_its_health_its_readiness_and_its_metrics(
    services: Services, topics: Topics, bucket: str, s3: Any, broker: Broker
) -> None:
    s3.put_object(Bucket=bucket, Key="a.csv", Body=csv(random_rows(5)))
    async with running_worker(environment(services, topics)) as worker:
        await worker.ready(partitions=4)
        await broker.publish(topics.input, [Message({"bucket": bucket, "key": "a.csv"})])
        await broker.until_committed(topics.input, topics.input, {0: 1})
        assert await worker.get("/healthz") == (200, "ok\n")
        status, metrics = await worker.get("/metrics")
        assert status == 200
        assert "penstock_rows_delivered_total 5.0" in metrics.splitlines()
        assert "penstock_partitions 4.0" in metrics.splitlines()
        assert await worker.stop() == 0


async def test_a_worker_whose_model_does_not_answer_is_alive_but_not_ready(
    services: Services, topics: Topics
) -> None:
    environ = environment(services, topics, MODEL__URL="http://127.0.0.1:1")
    async with running_worker(environ) as worker:

        async def is_waiting() -> bool:
            return "the model server does not answer" in worker.said

        await until(is_waiting, lambda: worker.said)
        assert await worker.get("/healthz") == (200, "ok\n")
        assert await worker.get("/readyz") == (503, "the model has not answered yet\n")
        assert "assigned partitions" not in worker.said
        assert await worker.stop() == 0


async def test_a_stop_whose_model_never_answers_ends_after_the_drain_and_loses_nothing(
    job: Job, proxy: ModelProxy
) -> None:
    await job.announce()
    environ = slowly(job, proxy, DELIVERY__DRAIN_MS=200)
    async with running_worker(environ) as worker:
        await held_in_the_middle(job, worker, proxy)
        assert await worker.stop() == 0, worker.said
    proxy.release()
    await finish_by_another(job, environ)
    output = await job.places()
    assert first_of_each(output) == job.expected()


async def test_a_worker_that_joins_in_the_middle_of_a_load_changes_nothing_of_the_output(
    job: Job, proxy: ModelProxy
) -> None:
    environ = slowly(job, proxy)
    other = job.environment()["PENSTOCK_HTTP__PORT"]
    async with running_worker(environ) as first:
        await first.ready(partitions=4)
        await job.announce()
        await held_in_the_middle(job, first, proxy)
        async with running_worker(environ | {"PENSTOCK_HTTP__PORT": other}) as second:
            await second.alive()
            proxy.release()
            await first.ready(partitions=2)
            await second.ready(partitions=2)
            await job.finish(second)
        assert await first.stop() == 0, first.said
    await job.assert_answered()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
async def test_an_idle_worker_ends_at_once_by_either_signal(
    services: Services, topics: Topics, number: signal.Signals
) -> None:
    async with running_worker(environment(services, topics)) as worker:
        await worker.ready()
        worker.send(number)
        assert await worker.ended() == 0, worker.said
