"""Runs that have an end: the URLs of `predict`, the records of a dry run, and topics that a job
reads up to given ends. Whatever the objects are, and whether the source learns its end before or
after the last commit, the run ends and every record is answered.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Sequence
from random import Random

import orjson
import pytest

from penstock.adapters.inputs.bounded_sources import BoundedSource, Head, HeadSource
from penstock.adapters.inputs.urls import POLL_RECORDS, UrlSource
from penstock.adapters.memory import MemoryObjects, MemorySink
from penstock.core.rows.payload import Payload
from penstock.decoders.simulated import DecodersAtHand
from penstock.messages.codec import encode_reference
from penstock.messages.reference import Reference
from penstock.pipeline.life import Pipeline
from penstock.pipeline.wiring import Wiring
from penstock.ports import Adapters, Answers, Commit, InputSource, Record, Where
from penstock.telemetry.worker import Telemetry
from penstock.tools.simulation.process_and_faults import (
    NO_FAULTS,
    FaultInjector,
    Process,
    drawn_faults,
)
from penstock.tools.simulation.scenario import OUTPUT, Scenario, drawn_settings
from penstock.tools.simulation.unreliable_services import SimulatedModel, SimulatedObjects, echo
from penstock.tools.simulation.virtual_time import VirtualClock, inline, run
from tests.support.memory import MemorySource
from tests.support.partitions import where

PARTITIONS = 3
# The answers to the last three take no call of the model, so the last commit may come first.
OBJECTS = {"good": b"1,0\n2,0\n", "refused": b"1,1\n2,1\n", "empty": b"", "missing": None}
# No fault takes longer than seconds, so a run that has not ended after an hour never ends.
ENDLESS_S = 3_600.0


class BoundedRun:
    """`count` objects, each of one of `kinds`. `ended`: what the source or the job sets."""

    def __init__(self, seed: int, count: int, kinds: Sequence[str], *, calm: bool) -> None:
        self.random = Random(f"{seed}/{count}/{kinds}")
        self.ended = asyncio.Event()
        self.objects = MemoryObjects(chunk_bytes=64)
        self.references = [self._reference(number, kinds) for number in range(count)]
        faults = NO_FAULTS if calm else drawn_faults(self.random)
        self._injector = FaultInjector(faults, self.random)
        self.settings = drawn_settings(self.random, Scenario())

    def _reference(self, number: int, kinds: Sequence[str]) -> Reference:
        data, key = OBJECTS[self.random.choice(kinds)], f"{number:05}.csv"
        if data is not None:
            self.objects.put("b", key, data)
        return Reference(bucket="b", key=key, stream=f"s{number % 3}")

    async def answered(self, source: InputSource, until: Awaitable[None] | None = None) -> set[str]:
        """The places of the records that have their last answer when the run has ended."""
        sink, process = MemorySink(partitions=PARTITIONS), Process()
        models = {
            name: SimulatedModel(answers, process, self._injector) for name in self.settings.terms
        }
        adapters = Adapters(
            source,
            SimulatedObjects(self.objects, (), {}, lambda _: None, process, self._injector),
            models[None],
            sink,
            VirtualClock(),
            models={name: model for name, model in models.items() if name is not None},
        )
        wiring = Wiring(
            self.settings,
            adapters,
            Telemetry(),
            decoders=DecodersAtHand(most=2),
            offload=inline,
            jitter=self.random.random,
            raises=True,
        )
        async with asyncio.timeout(ENDLESS_S):
            await Pipeline(wiring).run_until(self.ended.wait)
        if until is not None:
            await until
        documents = [
            orjson.loads(value) for records in sink.topics[OUTPUT].values() for _, value in records
        ]
        return {
            f"{document['source']['partition']}/{document['source']['offset']}"
            for document in documents
            if document.get("last")
        }

    def records(self) -> list[list[Record]]:
        """The references as records of partitions, with gaps between their offsets."""
        topic: list[list[Record]] = [[] for _ in range(PARTITIONS)]
        for reference in self.references:
            number = self.random.randrange(PARTITIONS)
            of = topic[number]
            offset = (of[-1].offset + 1 if of else 0) + self.random.choice((0, 0, 2))
            of.append(Record(where(number), offset, None, encode_reference(reference), 0))
        return topic


def answers(payloads: Sequence[Payload]) -> Answers:
    values: list[bytes] = []
    errors: dict[int, str] = {}
    for payload in payloads:
        echoed = echo(payload)
        errors |= {len(values) + row: text for row, text in echoed.errors.items()}
        values += echoed.values
    return Answers(values, errors)


async def urls(made: BoundedRun) -> bool:
    async def listed() -> AsyncIterator[Reference]:
        """As a store lists: page after page, and before the end perhaps one more look."""
        for number, reference in enumerate(made.references):
            if number % POLL_RECORDS == 0:
                await asyncio.sleep(made.random.choice((0, 0.01, 2)))
            yield reference
        await asyncio.sleep(made.random.choice((0, 0.01, 2)))

    found = await made.answered(UrlSource(listed(), made.ended.set))
    return found == {f"0/{number}" for number in range(len(made.references))}


async def dry(made: BoundedRun) -> bool:
    topic = made.records()
    heads = [Head(where(number), Commit(0), of) for number, of in enumerate(topic)]
    found = await made.answered(HeadSource(heads, made.ended.set))
    return found == {f"{one.where.partition}/{one.offset}" for of in topic for one in of}


async def job(made: BoundedRun) -> bool:
    """More is written behind the ends; some offsets before them have no record."""
    topic, source = made.records(), MemorySource(PARTITIONS)
    ends: dict[Where, int] = {}
    for number, of in enumerate(topic):
        for one in of:
            source.append(one.value, partition=number, offset=one.offset)
        end = (of[-1].offset + 1 if of else 0) + made.random.choice((0, 0, 1, 7))
        ends[where(number)] = source.gaps[number] = end
        for _ in range(made.random.choice((0, 3))):
            last = source.records[number][-1].offset + 1 if source.records[number] else 0
            source.append(b"{}", partition=number, offset=max(end, last))

    async def watch() -> None:
        """As the command does, which asks the broker each second."""
        while any(  # noqa: ASYNC110
            source.committed.get(at.partition, Commit(0)).next_offset < end
            for at, end in ends.items()
        ):
            await asyncio.sleep(1)
        made.ended.set()

    watching = asyncio.create_task(watch())
    found = await made.answered(BoundedSource(source, ends), watching)
    return found == {f"{one.where.partition}/{one.offset}" for of in topic for one in of}


RUNS = {"urls": urls, "dry run": dry, "job": job}


@pytest.mark.parametrize("source", [name for name in RUNS if name != "dry run"])
@pytest.mark.parametrize("count", [0, 1, 99, 100, 101, 200, 300])
@pytest.mark.parametrize("kind", OBJECTS)
def test_a_run_over_any_number_of_objects_of_one_kind_ends(
    source: str, count: int, kind: str
) -> None:
    assert run(RUNS[source](BoundedRun(0, count, [kind], calm=True)))


@pytest.mark.parametrize("source", RUNS)
def test_a_run_ends_whatever_fails(source: str, request: pytest.FixtureRequest) -> None:
    seeds = request.config.getoption("--seeds", default=None) or 12
    for seed in range(seeds):
        drawn = Random(seed)
        count = drawn.choice((1, 7, POLL_RECORDS - 1, POLL_RECORDS, 2 * POLL_RECORDS))
        kinds = drawn.sample(list(OBJECTS), drawn.randint(1, 4))
        assert run(RUNS[source](BoundedRun(seed, count, kinds, calm=False))), f"seed {seed}"
