"""The case of the Crayfish benchmark (EDBT 2024): rows of 28 x 28 numbers, inline in JSON messages,
scored by a small network behind TorchServe.

Rule: as in the paper, rows per second with more and more workers of the model server, and the
latency of messages far apart, from a message's due time to its last answer. The archive is written
here, which needs no torch.
"""

import asyncio
import itertools
import json
import time
import uuid
import zipfile
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import Final

import aiohttp
import numpy as np
from aiokafka import AIOKafkaProducer
from msgspec import Struct
from yarl import URL

from penstock import config
from penstock.adapters.kafka.client import connection, opened, within
from penstock.adapters.model_servers.torchserve import management
from penstock.errors import Fatal, usage
from penstock.tools.bench import object_bodies
from penstock.tools.bench.child_processes import running_worker
from penstock.tools.bench.reader import read
from penstock.tools.bench.resource_use import QUIET_WAIT_S, quiet, service_pids
from penstock.tools.bench.throughput import check_answered, cpu_s_per_row, steady_rate, watch
from penstock.tools.bench.topics_and_bucket import (
    PARTITIONS,
    Topics,
    check_local,
    end_watcher,
    fresh_topics,
    publish,
)
from penstock.tools.bench.verdict import percentile

NUMBERS: Final = 28 * 28
# How many different rows are sent in turn. Each row is 7 kB of JSON.
DISTINCT_ROWS: Final = 64
# Kafka's default limit for a message is 1 MB, but 512 rows are 3.5 MB of JSON.
MESSAGE_BYTES: Final = 16 << 20
STREAM: Final = b"crayfish"


class Published(Struct, frozen=True):
    """The figures of the authors' notebook (crayfish23). The rows per second were measured with
    messages of one row, once with 1 worker of the model server and once with 32. The milliseconds
    were measured with messages of 32 rows and with messages of 512 rows.
    """

    system: str
    rows_per_s: float
    rows_per_s_32: float
    ms_32: float
    ms_512: float


PUBLISHED: Final = (
    Published("Flink + TorchServe", 166, 2_223, 172, 2_352),
    Published("Flink + TF Serving", 457, 8_149, 60, 757),
    Published("Kafka Streams + TF Serving", 534, 9_830, 137, 523),
    Published("Spark + TF Serving", 232, 207, 626, 1_042),
    Published("Ray + TF Serving", 66, 347, 69, 640),
    Published("Kafka Streams + ONNX inside", 1_619, 23_008, 134, 514),
)


class CrayfishPlan(Struct, frozen=True, kw_only=True):
    """How much is measured. For the rate, a backlog of `rows` rows is answered. For the latency,
    `messages` messages are sent at `hz` messages a second.
    """

    workers: Sequence[int] = (1, 2)
    rows_per_message: Sequence[int] = (1, 32, 128, 512)
    rows: int = 20_000
    messages: int = 15
    hz: float = 2.0
    quiet_wait_s: float = QUIET_WAIT_S


class Case(Struct, kw_only=True):
    """The figures for one size of messages and one number of workers of the model server."""

    workers: int
    rows_per_message: int
    rows_per_s: float
    rows_per_cpu_s: float | None
    p50_ms: float
    p99_ms: float


class CrayfishReport(Struct, kw_only=True):
    cases: list[Case]
    published: list[Published]


async def measure(
    cfg: config.Config, config_path: Path | None, plan: CrayfishPlan, tell: Callable[[str], None]
) -> CrayfishReport:
    check_local(cfg)
    pids, rows = service_pids(cfg), _rows()
    cases: list[Case] = []
    async with deployed(cfg.model) as model:
        for workers, size in itertools.product(plan.workers, plan.rows_per_message):
            await model.scale(workers)
            tell(f"{workers} of TorchServe's workers, messages of {size} rows")
            await quiet(pids, plan.quiet_wait_s, tell)
            settings = {"MODEL__NAME": model.name, "MODEL__REQUEST": "float32"}
            bench = _Bench(cfg, config_path, settings, rows, size)
            rows_per_s, cpu_s = await bench.backlog(max(1, plan.rows // size))
            latencies = await bench.paced(plan.messages, plan.hz)
            cases.append(
                Case(
                    workers=workers,
                    rows_per_message=size,
                    rows_per_s=rows_per_s,
                    rows_per_cpu_s=1 / cpu_s if cpu_s else None,
                    p50_ms=median(latencies),
                    p99_ms=percentile(latencies, 0.99),
                )
            )
    return CrayfishReport(cases=cases, published=list(PUBLISHED))


@dataclass(eq=False)
class _Bench:
    """Measures one case. Each of its two figures is measured with a new worker on new topics."""

    cfg: config.Config
    config_path: Path | None
    settings: Mapping[str, str]
    rows: Sequence[bytes]
    size: int

    async def backlog(self, messages: int) -> tuple[float, float | None]:
        """Returns two values: the rows per second, and the CPU seconds that the worker needs per
        row.
        """
        rows = messages * self.size
        async with fresh_topics(self.cfg.kafka, most_bytes=MESSAGE_BYTES) as topics:
            await publish(self.cfg.kafka, topics.input, self._messages(messages), MESSAGE_BYTES)
            async with (
                end_watcher(self.cfg.kafka) as watcher,
                running_worker(self.config_path, topics, **self.settings) as worker,
            ):
                samples = await watch(worker, watcher, topics.output, rows)
                await worker.stop()
            answer = await read(self.cfg.kafka, topics)
        check_answered(answer, rows)
        return steady_rate(answer.rows_by_ms), cpu_s_per_row(samples)

    async def paced(self, messages: int, hz: float) -> list[float]:
        """For each message, the milliseconds from its due time to the answer of its last row."""
        async with fresh_topics(self.cfg.kafka, most_bytes=MESSAGE_BYTES) as topics:
            async with (
                end_watcher(self.cfg.kafka) as watcher,
                running_worker(self.config_path, topics, **self.settings) as worker,
            ):
                await worker.ready()
                await self._send_paced(topics, messages, hz)
                await watch(worker, watcher, topics.output, messages * self.size)
                await worker.stop()
            answer = await read(self.cfg.kafka, topics, ticks=True)
        check_answered(answer, messages * self.size)
        # The first fifth is left out, because its messages find connections that are not open yet.
        ticks = answer.ticks[messages // 5 :]
        return [(tick.answered_ms or 0) - tick.due_ms for tick in ticks]

    async def _send_paced(self, topics: Topics, messages: int, hz: float) -> None:
        kafka, what = self.cfg.kafka, "the sending of messages"
        producer = AIOKafkaProducer(**connection(kafka), max_request_size=MESSAGE_BYTES)
        async with opened(producer, kafka, what), within(what, kafka.timeout_ms / 1000):
            for _, key, value in self._messages(messages, is_timed=True):
                await producer.send_and_wait(topics.input, value, key=key, partition=0)
                await asyncio.sleep(1 / hz)

    def _messages(
        self, count: int, *, is_timed: bool = False
    ) -> Iterator[tuple[int, bytes, bytes]]:
        rows = itertools.cycle(self.rows)
        for number in range(count):
            body = b",".join(itertools.islice(rows, self.size))
            due = b'"event_time":%d,' % (time.time() * 1000) if is_timed else b""
            value = b'{"stream":"%b",%b"inline":[%b]}' % (STREAM, due, body)
            yield number % PARTITIONS, STREAM, value


def _rows() -> list[bytes]:
    """Each row as JSON, with six decimals."""
    numbers = np.random.default_rng(object_bodies.SEED).random((DISTINCT_ROWS, NUMBERS), np.float32)
    return [object_bodies.element(row) for row in numbers.tolist()]


HANDLERS: Final = Path(__file__).parents[1] / "handlers"
HANDLER: Final = "crayfish_handler.py"
# TorchServe starts a worker in some seconds, but on busy cores a start takes far longer.
ANSWER_S: Final = 120.0


class Deployed:
    """The model, under a name that no other run uses."""

    def __init__(self, session: aiohttp.ClientSession, address: URL) -> None:
        self.name = f"crayfish-{uuid.uuid4().hex[:8]}"
        self._session = session
        self._url = f"{str(address).rstrip('/')}/models"

    async def register(self, archive: Path) -> None:
        query = {"url": archive.as_uri(), "model_name": self.name, "initial_workers": "1"}
        await self._ask("POST", self._url, query | {"synchronous": "true"})

    async def scale(self, workers: int) -> None:
        query = {"min_worker": str(workers), "max_worker": str(workers), "synchronous": "true"}
        await self._ask("PUT", f"{self._url}/{self.name}", query)

    async def unregister(self) -> None:
        await self._ask("DELETE", f"{self._url}/{self.name}", {})

    async def _ask(self, method: str, url: str, query: dict[str, str]) -> None:
        async with self._session.request(method, url, params=query) as answer:
            if answer.status >= 300:
                text = (await answer.text())[:300]
                raise Fatal(f"TorchServe refused {method} {url}: {answer.status} {text}")


@asynccontextmanager
async def deployed(settings: config.Model) -> AsyncIterator[Deployed]:
    if settings.management_url is None or settings.protocol != "torchserve":
        raise usage(
            "the Crayfish case puts a model into TorchServe: set model.management_url, and leave "
            "model.protocol at torchserve"
        )
    session, address = management(settings, timeout_s=ANSWER_S)
    with TemporaryDirectory() as folder:
        async with session:
            model = Deployed(session, address)
            await model.register(_archive(Path(folder), model.name))
            try:
                yield model
            finally:
                await model.unregister()


def _archive(folder: Path, name: str) -> Path:
    """Writes the model archive in the form of `torch-model-archiver`."""
    # TorchServe may run as another user, who must be able to read the folder.
    folder.chmod(0o755)
    manifest = {
        "createdOn": "01/01/1970 00:00:00",
        "runtime": "python",
        "model": {"modelName": name, "handler": HANDLER, "modelVersion": "1.0"},
        "archiverVersion": "0.12.0",
    }
    path = folder / f"{name}.mar"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("MAR-INF/MANIFEST.json", json.dumps(manifest))
        for file in (HANDLER, "rows_handler.py"):
            archive.write(HANDLERS / file, file)
    return path
