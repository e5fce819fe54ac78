"""Real model servers killed in the middle of the job: nothing is lost, and no row is blamed.

Each test has a server of its own beside the stack's. What cannot be had on this machine is skipped,
with the reason.
"""

import math
import os
import signal
from collections.abc import Collection, Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from _pytest.mark import ParameterSet

from realstack import layout, processes, what_runs
from realstack.model_servers import ModelServer
from realstack.processes import Process
from realstack.service import NotReady
from tests.support.loads import Load, assert_predicted, csv, places_of
from tests.support.reference_model import numpy_answers, random_rows
from tests.support.services import Services, Topics, Unavailable, model_server
from tests.support.slow_store import slow_store
from tests.support.topic_tools import Broker, Message
from tests.support.waiting import until
from tests.support.worker import environment, running_worker

pytestmark = pytest.mark.model_servers("triton", "mlserver", "kserve", "litserve")

# As the first number of a row, it ends the process of the model `strict`.
KILLS = -667.0
WAYS = {
    "triton": {"protocol": "oip", "request": "float32"},
    "triton_grpc": {"protocol": "oip-grpc", "request": "float32"},
    "mlserver": {"protocol": "oip", "request": "float32"},
    "kserve_grpc": {"protocol": "oip-grpc", "request": "float32"},
    "litserve": {"protocol": "http", "preset": "litserve", "path": "/{name}"},
}
# The others are a minute each: EVERY_SERVER=1, as `scripts/test long` has it.
ALWAYS = ("triton", "kserve_grpc")


class OwnServer:
    """A model server of the test's own, which it may kill and start again on the same ports."""

    def __init__(self, server: ModelServer, folder: Path) -> None:
        self._server = server
        self._folder = folder
        self.ports = layout.free_ports(server.ports)
        self._process: Process | None = None

    def start(self) -> None:
        launch = self._server.configure(self._folder, self.ports)
        log = self._folder / "log"
        self._process = processes.start(launch.argv, log=log, cwd=self._folder, env=launch.env)

    def kill(self) -> None:
        """At once, with all that it started."""
        if self._process is not None:
            os.killpg(self._process.pid, signal.SIGKILL)
            while self._process.running:
                pass

    def start_again(self) -> None:
        """If it ended, as its supervisor would."""
        if self._process is not None and not self._process.running:
            self.start()

    async def answers(self) -> bool:
        try:
            self._server.probe(self.ports)
        except NotReady:
            return False
        return True


def variables(way: str, server: OwnServer, model: str) -> dict[str, str]:
    scheme = "grpc" if way.endswith("_grpc") else "http"
    settings = WAYS[way] | {"url": f"{scheme}://127.0.0.1:{server.ports[way]}", "name": model}
    return {f"MODEL__{key.upper()}": value for key, value in settings.items()}


def some(ways: Collection[str], always: Collection[str]) -> list[ParameterSet]:
    return [
        pytest.param(
            way,
            marks=pytest.mark.skipif(
                way not in always and not os.environ.get("EVERY_SERVER"),
                reason="a minute: scripts/test long",
            ),
        )
        for way in ways
    ]


@pytest.fixture(params=some(WAYS, ALWAYS))
def way(request: pytest.FixtureRequest, services: Services) -> str:
    chosen: str = request.param
    return chosen


@pytest.fixture
def server(way: str) -> Iterator[OwnServer]:
    try:
        model_server(way)
    except Unavailable as missing:
        pytest.skip(str(missing))
    known = what_runs.EXTRAS[way.partition("_")[0]]
    assert isinstance(known, ModelServer)
    # Not pytest's folder: its path is too long for the sockets that some make there.
    with TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        own = OwnServer(known, Path(folder))
        own.start()
        yield own
        own.kill()


# Each death takes a start of the server: one of them is enough for what no server does for itself.
# This one hangs up on everybody while it starts.
@pytest.mark.parametrize("way", ["mlserver"], indirect=True)
async def test_a_row_that_kills_the_server_each_time_is_rejected_alone(
    services: Services,
    topics: Topics,
    bucket: str,
    s3: Any,
    broker: Broker,
    way: str,
    server: OwnServer,
) -> None:
    rows = random_rows(5)
    rows[2, 0] = KILLS
    s3.put_object(Bucket=bucket, Key="kills.csv", Body=csv(rows))
    model = variables(way, server, "strict") | {"MODEL__CANARY": str([0.5] * 16)}
    environ = environment(services, topics, WINDOW__MAX_ROWS="1", **model)
    await until(server.answers, lambda: "the model server answers", within_s=90)
    async with running_worker(environ) as worker:
        await worker.ready()
        await broker.publish(topics.input, [Message({"bucket": bucket, "key": "kills.csv"})])

        async def is_committed() -> bool:
            server.start_again()
            return (await broker.committed(topics.input, topics.input)).get(0) == 1

        await until(is_committed, lambda: f"the object is answered: {worker.said}", within_s=240)
        assert await worker.stop() == 0, worker.said
    documents = [record.document for record in (await broker.records(topics.output))[0]]
    assert [(document["row"], "error" in document) for document in documents] == [
        (0, False), (1, False), (2, True), (3, False), (4, False),
    ]  # fmt: skip


async def test_a_server_that_is_killed_and_comes_back_costs_no_row_and_blames_none(
    services: Services,
    topics: Topics,
    bucket: str,
    s3: Any,
    broker: Broker,
    way: str,
    server: OwnServer,
) -> None:
    load = Load(40, rows=700)
    load.store(s3, bucket)
    model = variables(way, server, "rows")
    last = load.archives[-1].key

    async def answered() -> int:
        return sum((await broker.ends(topics.output)).values())

    async def has_begun() -> bool:
        return await answered() > 0

    await until(server.answers, lambda: "the model server answers", within_s=90)
    async with slow_store(services.endpoint_url) as store:
        # Small batches, so that the kill comes between many calls.
        environ = environment(
            services, topics, OBJECTS__ENDPOINT_URL=store.url, WINDOW__MAX_ROWS="16", **model
        )
        # However late the kill comes, one is left.
        store.delay_s = lambda path: math.inf if path.endswith(last) else 0.0
        async with running_worker(environ) as worker:
            await worker.ready()
            await broker.publish(topics.input, load.messages(bucket))
            await until(has_begun, lambda: "answers")
            server.kill()
            at_the_kill = await answered()
            store.delay_s = lambda _: 0.0
            server.start()
            await until(server.answers, lambda: "the model server answers again", within_s=90)
            await broker.until_committed(topics.input, topics.input, load.ends)
            assert await worker.stop() == 0, worker.said
    assert at_the_kill < len(load.rows), "it was killed in the middle"
    output = await broker.records(topics.output)
    assert places_of(output) == load.places(topics.input)
    assert_predicted(output, load.answers(topics.input, numpy_answers(load.rows)))
    assert sum((await broker.ends(topics.dlq)).values()) == 0
