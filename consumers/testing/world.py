"""What lasts longer than a worker: topics, group, bucket, model, weather, and the bounds to hold.

Rule: everything a worker touches is made here and tells the checks what reaches it. Owner: one
simulation.
"""

from collections import Counter
from collections.abc import Callable, Sequence
from random import Random
from typing import Any

import orjson

from consumers.adapters.memory import MemoryObjects
from consumers.core.payload import Payload
from consumers.formats.base import Run
from consumers.pipeline import Pipeline
from consumers.ports import Adapters, Answers, Commit, Outgoing, Transactions
from consumers.stages.consume import Intake
from consumers.telemetry import Telemetry
from consumers.testing import faults, load
from consumers.testing.group import Group, Topic
from consumers.testing.history import History
from consumers.testing.life import Life, Reached, Terms
from consumers.testing.log import Log
from consumers.testing.outcome import Outcome, letters
from consumers.testing.outlets import SimulatedOutlets
from consumers.testing.scenario import OUTPUT, Scenario, drawn_settings
from consumers.testing.services import (
    Append,
    Process,
    SimulatedModel,
    SimulatedObjects,
    SimulatedSink,
)
from consumers.testing.truth import Truths
from consumers.testing.virtual_time import VirtualClock
from consumers.testing.worker import SimulatedSource, Worker

# Far more than any world takes: time that does not pass means tasks that wake each other.
MOST_TURNS = 300_000


async def _inline(decode: Callable[[bytes], list[Run]], data: bytes) -> list[Run]:
    """Decoding without threads, for virtual time."""
    return decode(data)


class World:
    """`announce`, `hire` workers; `look` checks the bounds after every turn of the loop."""

    def __init__(self, seed: int, scenario: Scenario) -> None:
        def source(part: str) -> Random:
            """Each part draws from its own, so that a change in one does not shift the others."""
            return Random(f"{seed}/{part}")

        self.random = source("storm")
        self.history = History(seed)
        self.settings = drawn_settings(source("settings"), scenario)
        self.partitions = self.settings.input_partitions
        self.workers: list[Worker] = []
        self._objects = MemoryObjects(chunk_bytes=self.random.choice((64, 256, 1024, 8192)))
        self._objects.versioned = self.random.random() < 0.3
        self._truths = Truths(self.settings.rows, scenario.answer, self._objects.chunk_bytes)
        self.topic = Topic(self.partitions)
        self.logs = [Log(records, self._truths) for records in self.topic.records]
        self.outcome = Outcome(self.logs)
        self._terms = Terms(
            by_stream=self.settings.order_by_stream,
            exactly_once=self.random.random() < 0.3,
            dedupe=self.settings.dedupe,
        )
        self._epochs: Counter[int] = Counter()
        self.weather = faults.Weather(faults.drawn(self.random), source("weather"))
        patience_s = self.settings.drain_s + self.random.choice((0.1, 10.0))
        self.group = Group(self.topic, source("group"), self.history, patience_s)
        loading, make = source("load"), scenario.make_object
        zoo = load.Objects(loading)
        self._messages = load.Messages(
            loading, zoo.make if make is None else lambda: make(loading), self._put
        )
        self._answer = scenario.answer
        self._luck = source("luck").random
        self._cursed: set[str] = set()
        self._unsteady: dict[str, str] = {}
        for log in self.logs:
            log.unsteady = self._unsteady
        self._telemetry = Telemetry()
        self._clock = VirtualClock()
        self._turns = 0

    def announce(self) -> None:
        """The next message, on any partition."""
        value = self._messages.make()
        for name in self._messages.cursed:
            self._cursed.add(f"{load.BUCKET}/{name}")
            self._unsteady[f"{load.BUCKET}/{name}"] = "unavailable"
        for name in self._messages.missing:
            self._unsteady[f"{load.BUCKET}/{name}"] = "not_found"
        gap = self.random.choice((0, 0, 0, 1, 5))
        key = self.random.choice((None, b"k"))
        record = self.topic.append(self.random.randrange(self.partitions), key, value, gap)
        index = len(self.topic.records[record.partition]) - 1
        self.logs[record.partition].objects(index)
        self.history.note("announce", f"{record.partition}/{record.offset} {value!r:.70}")

    def overwrite(self) -> None:
        """An object is replaced, whoever reads it just now."""
        if self._messages.present:
            key, ending = self.random.choice(self._messages.present)
            name = f"{load.BUCKET}/{key}"
            if name not in self._cursed:
                self.history.note("overwrite", key)
                self._unsteady[name] = "changed"
                self._put(key, self._messages.again(ending))

    def _put(self, key: str, data: bytes) -> str:
        etag = self._objects.put(load.BUCKET, key, data)
        version = f"v{etag[1:-1]}" if self._objects.versioned else etag
        self._truths.put(f"{load.BUCKET}/{key}", version, data)
        return etag

    def hire(self) -> Worker:
        """A new worker, not yet running."""
        name, process, weather = f"w{len(self.workers)}", Process(), self.weather
        source = SimulatedSource(
            name, self.topic, self.group, self.logs, self._terms, process, weather, self.history
        )
        objects = SimulatedObjects(self._objects, self._cursed, process, weather)
        model = SimulatedModel(self._ask, process, weather)
        sink = SimulatedSink(
            self.partitions, lambda out: self._accept(source, out), process, weather
        )
        transactions = None
        if self._terms.exactly_once:
            outlets = SimulatedOutlets(
                self._epochs,
                lambda *landed: self._land(source, *landed),
                process,
                weather,
                self.history,
            )
            transactions = Transactions(outlets, source)
        intake = Intake(stream_from=None, allow=None, clock=self._clock, telemetry=self._telemetry)
        pipeline = Pipeline(
            self.settings,
            Adapters(source, objects, model, sink, self._clock, transactions),
            intake,
            lambda ticket: ticket.owner.partition,
            self._telemetry,
            offload=_inline,
            luck=self._luck,
        )
        worker = Worker(pipeline, source, objects, model, sink, process, self.group)
        self.workers.append(worker)
        return worker

    def _ask(self, payloads: Sequence[Payload]) -> Answers:
        """One call: the answers of all payloads, as if they were one."""
        values: list[bytes] = []
        errors: dict[int, str] = {}
        for payload in payloads:
            answers = self._answer(payload)
            errors |= {len(values) + index: text for index, text in answers.errors.items()}
            values += answers.values
        return Answers(values, errors)

    def _accept(self, source: SimulatedSource, outgoing: Outgoing) -> Append:
        """Records are handed over: they belong to the life that the partition has now."""
        if outgoing.topic != OUTPUT:
            return lambda out: lambda: self._letters_delivered(out)
        life = self._life(source, outgoing.partition)

        def append(out: Outgoing) -> Callable[[], None]:
            reached = self._published(life, out)
            return lambda: life.acknowledged(reached)

        return append

    def _life(self, source: SimulatedSource, partition: int) -> Life:
        life = source.lives.get(partition)
        if life is None:
            raise self.history.broken(
                f"{source.name} publishes on partition {partition}, which is not its own"
            )
        return life

    def _published(self, life: Life, outgoing: Outgoing) -> Sequence[Reached]:
        records: list[dict[str, Any]] = [orjson.loads(value) for value in outgoing.values]
        self.history.note("append", f"{life.name} {records[0]['id']} +{len(records)}")
        reached = life.published(records)
        self.outcome.add(records)
        return reached

    def _land(
        self, source: SimulatedSource, partition: int, outgoing: Sequence[Outgoing], at: Commit
    ) -> None:
        """A transaction: readers of committed records see all of it, and nothing a second time."""
        life = self._life(source, partition)
        for out in outgoing:
            if out.topic == OUTPUT:
                life.acknowledged(self._published(life, out))
            else:
                self._letters_delivered(out)
        if self.outcome.repeated:
            raise self.history.broken(f"{life.name} publishes again what was published")
        life.committing(at)
        self.history.note("transaction", f"{life.name} {partition} {at}")
        self.group.committed[partition] = at

    def _letters_delivered(self, outgoing: Outgoing) -> None:
        for value in outgoing.values:
            found = orjson.loads(value)
            self.history.note("letter", found["code"])
            self.logs[found["source"]["partition"]].letters.update(letters(found))

    def look(self) -> None:
        """Between two turns of the loop: nothing in flight is above its limit."""
        self._turns += 1
        if self._turns > MOST_TURNS:
            self.history.broken("time stands still: tasks wake each other without end")
        for worker in self.workers:
            if worker.process.alive:
                self._check_bounds(worker)

    def _check_bounds(self, worker: Worker) -> None:
        settings, pipeline = self.settings, worker.pipeline
        self._hold(worker, "bytes", pipeline.budget.spent_bytes, self._most_bytes(pipeline))
        for lane in pipeline.lanes.values():
            # A record with several objects is let in whole while there is room for one.
            most = settings.in_flight_objects - 1 + load.MOST_OBJECTS
            in_work = lane.jobs.in_work if settings.order_by_stream else lane.ledger.owed
            self._hold(worker, "objects", in_work, most)
        self._hold(worker, "calls", worker.model.in_flight, settings.callers)
        self._hold(worker, "transfers", worker.objects.reading, settings.fetchers)

    def _most_bytes(self, pipeline: Pipeline) -> int:
        """One step is begun while a byte is left. Each head may go on without: a step, besides the
        one it keeps until it knows whether it is the last; and with heads that do not wait for each
        other's deliveries, as much again that is being delivered.
        """
        by_stream = self.settings.order_by_stream
        heads = (
            sum(4 * len(self.logs[number].streams) for number in pipeline.lanes)
            if by_stream
            else 2 * len(pipeline.lanes)
        )
        return self.settings.buffer_bytes + (heads + 1) * self._truths.step_bytes

    def _hold(self, worker: Worker, what: str, found: int, most: int) -> None:
        if found > most:
            self.history.broken(f"{worker.name} has {found} {what} in flight, the limit is {most}")
