"""Causes of trouble, planted one after the other on one real worker: its page's first line, the
doctor, the log and an alert name each, with the stream, and the page has no other line.

Rule: each is planted when all is well, so that no trace of the one before is told. The line that
stops comes last, as nothing starts it again. The alerts are judged by promtool, on what this worker
exported while the cause lasted. The worker needs a processor: if it gets none, that is its first
line, and rightly. Times are written, not judged: `pytest -s` shows after which update of the page
and after how many seconds each cause was named.
"""

import asyncio
import os
import sys
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from itertools import count
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pytest

from penstock import config
from tests.deploy.capture import Scraped
from tests.support.chromium import chromium
from tests.support.json_server import JsonServer, json_server
from tests.support.loads import csv
from tests.support.reference_model import random_rows
from tests.support.services import Services
from tests.support.slow_store import SlowStore, slow_store
from tests.support.told_causes import COUNT, Cause, all_well, check_alert, told_by_all
from tests.support.topic_tools import Broker, Message
from tests.support.worker import environment, running_worker

STREAMS = 4
# A row whose answer is long.
LONG = 777.0
# A row that takes the model a hundred times as long as others.
DEAR = 778.0

CAUSES = {
    "full buffer": Cause(
        r"^The buffer is full: .* cam-2 owes the most", "PenstockBufferFull", ("buffer", "cam-2")
    ),
    # Cam-2 came in a burst just before: whether it is regular again is a matter of seconds.
    "all silent": Cause(
        r"^None of [34] streams has been heard", "PenstockStreamsSilent", ("silent",)
    ),
    "store hung": Cause(
        r"^The object store has not answered for",
        "PenstockServiceAway",
        ("away", "object store"),
        "the object store does not answer",
    ),
    "store fails": Cause(
        r"^The object store has failed for .*: it sends no object",
        "PenstockServiceAway",
        ("away", "object store"),
        "the object store fails",
    ),
    "model hung": Cause(
        r"^The model server answers questions without rows",
        "PenstockServiceAway",
        ("unanswered_rows", "model server"),
        "the model server fails",
    ),
    "costly stream": Cause(
        r"^cam-2 takes the model .* a row, \d+ x the others",
        "PenstockCostlyStream",
        ("costly", "cam-2"),
    ),
    "slow camera": Cause(r"^cam-3 is \d.* behind", "PenstockObjectsLate", ("late", "cam-3")),
    "store slow": Cause(r"^The store is slow", "PenstockObjectsLate", ("store",)),
    "skew": Cause(r"^Partition \S+/1 has \d+ % .* of cam-1", "PenstockSkewed", ("skew", "cam-1")),
    "model away": Cause(
        r"^The model server has not answered for",
        "PenstockServiceAway",
        ("away", "model server"),
        "the model server does not answer",
    ),
    "model hangs up on rows": Cause(
        r"^The model server answers questions without rows",
        "PenstockServiceAway",
        ("unanswered_rows", "model server"),
        "the model server fails",
    ),
    "poison stream": Cause(
        r"^cam-0.* its rows are refused, bad_row",
        "PenstockLettersRising",
        ("refused", "cam-0"),
        "rejected: stream 'cam-0'",
    ),
    "one silent": Cause(
        r"^cam-3 has not been heard for", "PenstockStreamsSilent", ("silent", "cam-3")
    ),
    "neighbour held back": Cause(
        r"^cam-3 is \d.* behind, and 1 more of \S+/3 wait with it",
        "PenstockObjectsLate",
        ("late", "cam-3"),
    ),
    "stopped line": Cause(
        r"^cam-0 stands still at",
        "PenstockLineStopped",
        ("stopped", "cam-0"),
        "line stopped: stream 'cam-0'",
    ),
}


def answers(rows: list[list[float]]) -> list[object]:
    return ["x" * 200_000 if row[0] == LONG else 1.0 for row in rows]


def dear_s(rows: list[list[float]]) -> float:
    return sum(0.5 if row[0] == DEAR else 0.005 for row in rows)


class Plant:
    """One worker, and what is around it. A stream has its partition; each is announced by `key`."""

    def __init__(
        self, topic: str, bucket: str, broker: Broker, model: JsonServer, store: SlowStore
    ) -> None:
        self.topic = topic
        self.bucket = bucket
        self.broker = broker
        self.model = model
        self.store = store
        self.keys = ["good.csv"] * STREAMS
        self.silent: set[int] = set()
        self.mate = False  # a stream that shares a partition with cam-3

    async def load(self) -> None:
        """Each stream announces an object twice a second, with others by chance; every third one
        has its own key.
        """
        chance = Random(1)
        for turn in count():
            keys = self.keys if turn % 3 == 0 else ["good.csv"] * STREAMS
            messages = [(stream, {"key": key}) for stream, key in enumerate(keys)]
            messages = [message for message in messages if message[0] not in self.silent]
            if self.mate:
                messages.append((3, {"stream": "mate", "key": "good.csv"}))
            first = [message for message in messages if chance.random() < 0.5]
            for part in (first, [message for message in messages if message not in first]):
                await self.say(part)
                await asyncio.sleep(0.25)

    async def say(self, messages: list[tuple[int, dict[str, Any]]]) -> None:
        await self.broker.publish(
            self.topic,
            [
                Message(
                    {"stream": f"cam-{stream}"}
                    | ({"bucket": self.bucket} if "key" in what else {})
                    | what,
                    stream,
                )
                for stream, what in messages
            ],
        )

    @asynccontextmanager
    async def planted(self, cause: str) -> AsyncIterator[None]:
        """While the body runs."""
        match cause:
            case "store hung":
                with self._slow(lambda _: 3_600.0):
                    yield
            case "store fails":
                self.store.status = 503
                yield
                self.store.status = None
            case "model hung":
                self.model.delay_s = 3_600.0
                yield
            case "one silent":
                self.silent = {3}
                yield
            case "all silent":
                self.silent = set(range(STREAMS))
                yield
            case "slow camera":
                with self._slow(lambda path: 4.0 * path.endswith("slow.csv")):
                    self.keys[3] = "slow.csv"
                    yield
            case "neighbour held back":
                # It goes on later, too, as a stream that falls silent would be told.
                self.mate = True
                with self._slow(lambda path: 4.0 * path.endswith("slow.csv")):
                    self.keys[3] = "slow.csv"
                    yield
            case "costly stream":
                # An object of it takes two seconds.
                self.model.takes_s = lambda rows: sum(
                    0.5 if row[0] == DEAR else 0.005 for row in rows
                )
                self.keys[2] = "dear.csv"
                yield
            case "store slow":
                with self._slow(lambda _: 1.5):
                    yield
            case "skew":
                # Objects of one partition wait for each other's turn, 64 at a time. The model is
                # slower than before, and far from being too slow for the bound.
                self.model.delay_s = 0.02
                await self.say([(1, {"inline": [[0.0] * 16]})] * 40_000)
                yield
            case "full buffer":
                # Long answers wait behind one object that is slow to come.
                with self._slow(lambda path: 60.0 * path.endswith("slow.csv")):
                    row = [LONG, *[0.0] * 15]
                    await self.say([(2, {"key": "slow.csv"}), *[(2, {"inline": [row]})] * 63])
                    yield
            case "model away":
                await self.model.leave()
                yield
                await self.model.come()
            case "model hangs up on rows":
                self.model.dislikes = bool
                yield
            case "poison stream":
                self.keys[0] = "bad.csv"
                yield
            case "stopped line":
                await self.say([(0, {"key": f"missing-{n}.csv"}) for n in range(12)])
                yield
        self.model.delay_s, self.model.dislikes = 0.0, lambda _: False
        self.model.takes_s = lambda _: 0.0
        self.keys, self.silent = ["good.csv"] * STREAMS, set()

    @contextmanager
    def _slow(self, delay_s: Callable[[str], float]) -> Iterator[None]:
        self.store.delay_s = delay_s
        yield
        self.store.delay_s = lambda _: 0.0


@pytest.mark.timeout(1_500)
@pytest.mark.skipif(not os.environ.get("EVERY_CAUSE"), reason="some ten minutes: scripts/test long")
async def test_each_cause_is_named_with_its_stream_by_page_doctor_and_alert(
    services: Services,
    make_topics: Any,
    bucket: str,
    s3: Any,
    broker: Broker,
    tmp_path: Path,
) -> None:
    topics = await make_topics(STREAMS)
    rows = csv(random_rows(4))
    dear = csv(np.full((4, 16), DEAR, np.float32))
    bad = rows + 40 * b"oops\n"
    for key, body in {"good.csv": rows, "slow.csv": rows, "bad.csv": bad, "dear.csv": dear}.items():
        s3.put_object(Bucket=bucket, Key=key, Body=body)
    scraped: dict[str, Scraped] = {}
    async with (
        json_server("/", answers) as model,
        slow_store(services.endpoint_url) as store,
        chromium() as browser,
        browser.tab() as tab,
        asyncio.TaskGroup() as tasks,
    ):
        environ = environment(
            services,
            topics,
            MODEL__PROTOCOL="http",
            MODEL__URL=f"{model.url}/",
            OBJECTS__ENDPOINT_URL=store.url,
            LIMITS__BUFFER_BYTES=8 << 20,
            LIMITS__DLQ_CONSECUTIVE=8,
            # On a machine that others use, answers of some 100 ms are no cause.
            WINDOW__TARGET_P99_MS=500,
        )
        http = config.Http(port=int(environ["PENSTOCK_HTTP__PORT"]))
        cfg = config.Config(http=http)
        plant = Plant(topics.input, bucket, broker, model, store)
        async with running_worker(environ) as worker:
            await worker.ready(STREAMS)
            await tab.open(f"http://127.0.0.1:{http.port}/")
            loading = tasks.create_task(plant.load())
            await tab.until("document.querySelector('#verdict .first')")
            await tab.run(COUNT)
            for cause, named in CAUSES.items():
                await all_well(tab, worker)
                async with plant.planted(cause):
                    page, scraped[cause] = await told_by_all(tab, cfg, worker, named)
                sys.stdout.write(f"{cause}: {page}\n")
            loading.cancel()
            assert not tab.complaints
            worker.may_end()
    for cause, named in CAUSES.items():
        check_alert(tmp_path, named, scraped[cause])
