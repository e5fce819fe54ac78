"""The load generator of `bench streams`, a process of its own: it publishes a reference per tick.

Rule: tick k of stream s is due at t0 + phase(s) + k/hz, whatever the pipeline does (open loop). A
late one is sent at once; none is left out, and the lag is a part of the latency. Huge objects have
a partition of their own, because ticks behind one would have to wait.

What the generator costs is taken from the machine that is measured. So what is due is packed before
it is due, all partitions of a broker share a request, and no request is answered: half of the CPU
of aiokafka's `send`. A tick that the broker did not take ends the bench (`due_since`).
"""

import asyncio
import math
import time
from collections import defaultdict
from collections.abc import Iterator
from itertools import product
from typing import Literal, NamedTuple

from aiokafka import AIOKafkaProducer, TopicPartition
from aiokafka.client import AIOKafkaClient
from aiokafka.protocol.produce import ProduceRequest
from aiokafka.record.default_records import DefaultRecordBatchBuilder
from msgspec import Struct

from penstock import config
from penstock.adapters.kafka.client import connection, opened, within
from penstock.tools.bench import object_bodies
from penstock.tools.bench.child_processes import say, serve
from penstock.tools.bench.object_bodies import BenchObject
from penstock.tools.bench.topics_and_bucket import MESSAGE_BYTES, PARTITIONS, publish
from penstock.tools.bench.verdict import Sent, percentile

# How the due times of streams are spread over a period. `grid`: due times are 2 ms apart, which
# gives 25 phases at 20 Hz; ticks of the same instant share a request, like the ticks of one
# gateway. `even`: each stream has its own instant, rounded to a millisecond.
Spread = Literal["grid", "even"]
GRID_MS: dict[Spread, int] = {"grid": 2, "even": 1}
OBJECTS_PER_STREAM = 10
# The event loop wakes up to a millisecond late, so the last part of a wait blocks it, which has
# nothing else to do.
BLOCKED_S = 0.1
# What a Produce request asks for: whether the broker answers.
_UNANSWERED, _ANSWERED = 0, 1
WARM_UP_S = 3.0
# This long before t0, the generator sends the first request, so that the broker has answered it by
# t0.
LEAD_MS = 500
HUGE_KEY = "huge.csv"
HUGE_STREAM = "huge"
# Huge objects with this many rows a second are announced, but not more than so many objects. These
# are more than any worker can read, so the worker never runs out of them.
HUGE_ROWS_PER_S = 250_000
HUGE_OBJECTS_PER_S = 4_000


class Ticks(Struct, frozen=True, kw_only=True):
    """The ticks of every stream. The ticks of the first `WARM_UP_S` are not measured, and those of
    the following `seconds` are measured. `beside_rows`: the number of rows of each of the huge
    objects that are announced beside the ticks; 0: there are no huge objects. All objects must be
    in the bucket before.
    """

    bucket: str
    rows: int
    streams: int
    hz: float
    seconds: float
    beside_rows: int = 0
    extension: str = ".csv"
    spread: Spread = "grid"

    @property
    def warm_up_ticks(self) -> int:
        return round(WARM_UP_S * self.hz)

    @property
    def count(self) -> int:
        """The number of ticks of each stream, with those of the warm-up."""
        return self.warm_up_ticks + round(self.seconds * self.hz)

    @property
    def partitions(self) -> int:
        """How many partitions the ticks go to. The ticks use the first partitions; huge objects use
        the last one.
        """
        return PARTITIONS - 1 if self.beside_rows else PARTITIONS


class GeneratorTask(Struct):
    kafka: config.Kafka
    topic: str
    load: Ticks


class Began(Struct):
    """The generator's first line: when the first measured tick is due, in epoch milliseconds."""

    begin_ms: int


class DueTicks(NamedTuple):
    """Ticks that are due at the same instant: tick `tick` of each of `streams`. `at_ms`:
    milliseconds since t0.
    """

    at_ms: int
    tick: int
    streams: range


def key_of(rows: int, stream: int, tick: int, extension: str = ".csv") -> str:
    """The key of a tick's object. Each stream has a few objects, and its ticks name them in
    turn.
    """
    return f"tick-{rows}/{stream:03}/{tick % OBJECTS_PER_STREAM}{extension}"


def stream_of(stream: int) -> str:
    return f"stream-{stream:03}"


def bodies(rows: int, first: int, stop: int, body: BenchObject | None = None) -> dict[str, bytes]:
    """The objects of the streams from `first` up to, but not including, `stop`. `body`: the file
    that is the content of each object; None: rows of numbers are the content.
    """
    numbered = list(product(range(first, stop), range(OBJECTS_PER_STREAM)))
    if body is not None:
        return {key_of(body.rows, *place, body.extension): body.data for place in numbered}
    return {
        key_of(rows, stream, tick): object_bodies.csv_body(rows, stream * OBJECTS_PER_STREAM + tick)
        for stream, tick in numbered
    }


def huge_references(ticks: Ticks) -> int:
    """How many references to huge objects are needed, so that they last as long as the ticks."""
    if not ticks.beside_rows:
        return 0
    objects_per_s = min(HUGE_OBJECTS_PER_S, HUGE_ROWS_PER_S / ticks.beside_rows)
    return math.ceil(ticks.count / ticks.hz * objects_per_s)


def phase_ms(stream: int, streams: int, hz: float, spread: Spread = "grid") -> int:
    """The phase of a stream in milliseconds. The streams are spread evenly over a period, and each
    phase is rounded down to the grid.
    """
    grid_ms = GRID_MS[spread]
    return int(stream * 1000 / hz / streams) // grid_ms * grid_ms


def schedule(streams: int, hz: float, ticks: int, spread: Spread = "grid") -> Iterator[DueTicks]:
    """All ticks in the order in which they are due."""
    groups: list[tuple[int, range]] = []
    first = 0
    for stream in range(1, streams + 1):
        here = phase_ms(first, streams, hz, spread)
        if stream == streams or phase_ms(stream, streams, hz, spread) != here:
            groups.append((here, range(first, stream)))
            first = stream
    for tick in range(ticks):
        for phase, members in groups:
            yield DueTicks(phase + round(tick * 1000 / hz), tick, members)


async def _work(task: GeneratorTask) -> None:
    load = task.load
    huge = object_bodies.reference(load.bucket, HUGE_KEY, HUGE_STREAM)
    beside = [(PARTITIONS - 1, *huge)] * huge_references(load)
    if beside:
        await publish(task.kafka, task.topic, beside)
    producer = AIOKafkaProducer(**connection(task.kafka))
    # There is one deadline for all ticks, because a deadline for each tick would take time that is
    # measured.
    work_s = load.count / load.hz + task.kafka.timeout_ms / 1000
    async with opened(producer, task.kafka, "the load"), within("the load", work_s):
        await producer.partitions_for(task.topic)
        say(await _send_all(task.topic, load, producer.client))


async def _send_all(topic: str, ticks: Ticks, client: AIOKafkaClient) -> Sent:
    t0_ms = int(time.time() * 1000) + LEAD_MS
    t0_s = time.monotonic() + t0_ms / 1000 - time.time()
    say(Began(t0_ms + round(1000 * ticks.warm_up_ticks / ticks.hz)))
    lags_ms: list[float] = []
    cpu_s = 0.0
    asked: set[int] = set()
    for due in schedule(ticks.streams, ticks.hz, ticks.count, ticks.spread):
        requests = _packed(topic, ticks, due, t0_ms, client)
        asked.update(requests)
        due_s = t0_s + due.at_ms / 1000
        await asyncio.sleep(due_s - time.monotonic() - BLOCKED_S)
        time.sleep(max(0.0, due_s - time.monotonic()))  # noqa: ASYNC251 (precisely)
        if due.tick >= ticks.warm_up_ticks:
            cpu_s = cpu_s or time.process_time()
            lags_ms += [(time.monotonic() - due_s) * 1000] * len(due.streams)
        for broker, request in requests.items():
            await client.send(broker, request)
    cpu_s = time.process_time() - cpu_s
    for broker in asked:  # it answers after it has taken all that came before
        await client.send(broker, ProduceRequest(None, _ANSWERED, 1000, []))
    return Sent(
        len(lags_ms),
        sum(lags_ms) / len(lags_ms),
        percentile(lags_ms, 0.99),
        max(lags_ms),
        cpu_s,
    )


def _packed(
    topic: str, ticks: Ticks, due: DueTicks, t0_ms: int, client: AIOKafkaClient
) -> dict[int, ProduceRequest]:
    """For each broker, the request with its ticks."""
    due_ms = t0_ms + due.at_ms
    filled: defaultdict[int, list[tuple[bytes, bytes]]] = defaultdict(list)
    for stream in due.streams:
        name = key_of(ticks.rows, stream, due.tick, ticks.extension)
        one = object_bodies.reference(ticks.bucket, name, stream_of(stream), due_ms)
        filled[stream % ticks.partitions].append(one)
    batches: defaultdict[int, list[tuple[int, bytes]]] = defaultdict(list)
    for partition, messages in filled.items():
        batch = DefaultRecordBatchBuilder(2, 0, False, -1, -1, -1, MESSAGE_BYTES)
        for offset, (key, value) in enumerate(messages):
            batch.append(offset, due_ms, key, value, [])
        broker = client.cluster.leader_for_partition(TopicPartition(topic, partition))
        batches[broker].append((partition, bytes(batch.build())))
    return {
        broker: ProduceRequest(None, _UNANSWERED, 1000, [(topic, placed)])
        for broker, placed in batches.items()
    }


if __name__ == "__main__":
    serve(GeneratorTask, _work)
