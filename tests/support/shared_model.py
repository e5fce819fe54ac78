"""Streams that share one model, in virtual time: a whole pipeline, and a model whose time for a row
depends on the stream.

Rule: what is due is announced when it is due (open loop), and a latency is counted from then to the
record of the last row.
"""

import asyncio
import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from itertools import zip_longest
from random import Random

import orjson

from penstock.adapters.memory import MemorySink
from penstock.core.rows.payload import Matrix, Payload
from penstock.core.window.window import WindowLimits
from penstock.pipeline.settings import LaneLimits
from penstock.ports import Answers, Outgoing
from tests.support.pipelines import SETTINGS, World, running

WINDOW = WindowLimits(max_rows=512, max_bytes=4 << 20, max_wait_s=0.010)


class TimedSink(MemorySink):
    """Calls `on_record` for each prediction."""

    def __init__(self, model: "SharedModel", partitions: int) -> None:
        super().__init__(partitions=partitions)
        self._model = model

    async def send(self, outgoing: Outgoing) -> asyncio.Future[None]:
        for value in outgoing.values:
            self._model.published(orjson.loads(value))
        return await super().send(outgoing)  # type: ignore[return-value]


class SharedModel:
    """`row_s`: what a row of each stream takes the model. `servers`: how many calls it works on at
    a time; further calls wait there for their turn. Times vary by `noise`.
    """

    def __init__(
        self,
        row_s: Mapping[str, float],
        *,
        base_s: float = 0.002,
        servers: int = 4,
        callers: int = 4,
        begin_calls: int | None = None,
        by_stream: bool = False,
        target_p99_s: float | None = 0.050,
        noise: float = 0.1,
    ) -> None:
        self.row_s = dict(row_s)
        self._streams = list(row_s)
        self._base_s, self._noise = base_s, noise
        self._turns = asyncio.Semaphore(servers)
        self._random = Random(1)
        # For each stream, from the begin: when its rows were due, and how late each answer was.
        self._due_s: dict[str, list[float]] = defaultdict(list)
        self._late_s: dict[str, list[float]] = defaultdict(list)
        partitions = min(8, len(self.row_s))
        self.partition_of = {one: number % partitions for number, one in enumerate(row_s)}
        self.world = World(partitions).with_settings(
            window=WINDOW,
            target_p99_s=target_p99_s,
            callers=callers,
            begin_calls=begin_calls,
            buffer_bytes=64 << 20,
            lane=LaneLimits(64, SETTINGS.lane.line, order_by_stream=by_stream),
        )
        self.world.sink = TimedSink(self, partitions)
        self.world.model.script = self._call

    async def _call(self, payloads: Sequence[Payload]) -> Answers | None:
        took_s = self._base_s
        for payload in payloads:
            assert isinstance(payload, Matrix)
            for number in payload.values[:, 0].tolist():
                took_s += self.row_s[self._streams[int(number)]]
        async with self._turns:
            await asyncio.sleep(took_s * max(0.3, self._random.gauss(1.0, self._noise)))
        return None

    def published(self, record: Mapping[str, object]) -> None:
        due_ms = record["event_time"]
        assert isinstance(due_ms, int)
        self._late_s[str(record["stream"])].append((self.world.clock.wall_ms() - due_ms) / 1000)

    async def run(self, seconds: float, hz: float, *, rows: int = 1) -> None:
        """Announce for so long, each stream at its own moment of a tick."""
        began_s, clock = self.world.clock.now(), self.world.clock
        begins = {stream: self._random.random() / hz for stream in self.row_s}
        due = sorted(
            (begin + tick / hz, stream)
            for stream, begin in begins.items()
            for tick in range(int(seconds * hz))
        )
        async with running(self.world):
            for due_s, stream in due:
                await asyncio.sleep(max(0.0, began_s + due_s - clock.now()))
                self._due_s[stream].append(due_s)
                number = self._streams.index(stream)
                self.world.source.append(
                    orjson.dumps(
                        {
                            "stream": stream,
                            "inline": [[number, 0.0]] * rows,
                            "event_time": clock.wall_ms(),
                        }
                    ),
                    partition=self.partition_of[stream],
                    timestamp_ms=clock.wall_ms(),
                )
            self.answered = {one: len(self._late_s[one]) for one in self.row_s}

    def quantile_s(self, share: float, streams: Iterable[str], *, since_s: float = 0.0) -> float:
        """Of the rows that were due later than `since_s`; infinite for those without an answer."""
        late = sorted(
            late_s
            for stream in streams
            for due_s, late_s in zip_longest(
                self._due_s[stream], self._late_s[stream], fillvalue=math.inf
            )
            if due_s >= since_s
        )
        return late[int(share * len(late))]
