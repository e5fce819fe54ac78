"""Holds what lasts longer than a worker (topics, group, bucket, models, faults), makes the workers,
and tells the checks what reaches each service.
"""

import asyncio
from collections import Counter, defaultdict
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from random import Random

from penstock.adapters.memory import MemoryObjects, MemoryResults
from penstock.core.comparing.comparison import Agreement
from penstock.core.health.retries import LEAST_ANSWERS
from penstock.core.rows.payload import Payload
from penstock.decoders.simulated import DecodersAtHand
from penstock.errors import Fatal, Overloaded, Poison, Unreachable
from penstock.messages.shadow import ModelId
from penstock.pipeline.life import Pipeline
from penstock.pipeline.settings import Settings
from penstock.pipeline.wiring import Wiring
from penstock.ports import Adapters, Answers, Guest, Outgoing, Record, Transactions, Where
from penstock.stages.shadow import ShadowTerms, ShadowTopicTerms
from penstock.telemetry.worker import Telemetry
from penstock.tools.simulation.bucket import Bucket, Draws
from penstock.tools.simulation.checks.arrivals import Arrivals, ArrivedAnswers
from penstock.tools.simulation.checks.bounds import Bounds
from penstock.tools.simulation.checks.history import History
from penstock.tools.simulation.checks.life import Life
from penstock.tools.simulation.checks.truth import PartitionLog
from penstock.tools.simulation.deployments import Deployment, Deployments, drawn_troubles
from penstock.tools.simulation.kafka.group import Group
from penstock.tools.simulation.kafka.producers import SimulatedProducers
from penstock.tools.simulation.kafka.source import SimulatedSource
from penstock.tools.simulation.kafka.topics import SimulatedSink, Topic
from penstock.tools.simulation.process_and_faults import (
    FaultInjector,
    Faults,
    Process,
    drawn_faults,
)
from penstock.tools.simulation.result_objects import SimulatedResults, drawn_terms
from penstock.tools.simulation.scenario import FAN_OUT, INPUT, Scenario
from penstock.tools.simulation.unreliable_services import AskModel, SimulatedModel, SimulatedObjects
from penstock.tools.simulation.virtual_time import VirtualClock, inline
from penstock.tools.simulation.worker import SimulatedWorker

MANNERS = ("agrees", "differs", "slow", "mute", "away", "full", "refuses", "wrong", "too few")
# How long a mute shadow is silent: longer than most worlds last.
MUTE_S = 600.0


def drawn_shadow(random: Random) -> ShadowTerms:
    pick = random.choice
    return ShadowTerms(
        ShadowTopicTerms("predictions.shadow", ModelId("rows"), "shade", 0.0, ()),
        percent=pick((10.0, 50.0, 100.0)),
        agreement=Agreement(),
        rows=pick((4, 100, 10_000)),
        nbytes=pick((500, 1 << 20)),
        call_rows=pick((1, 7, 512)),
        callers=pick((1, 3)),
    )


class SimulatedShadow:
    """The shadow model, as this worker's connection reaches it. `seen`: for each manner of
    answering, how many calls met it.
    """

    version: str | None = None
    most_rows: int | None = None

    def __init__(self, ask: AskModel, process: Process, random: Random, seen: Counter[str]) -> None:
        self._ask = ask
        self._process = process
        self._random = random
        self._seen = seen

    async def predict(self, payloads: Sequence[Payload]) -> Answers:
        await self._process.gate()
        manner = self._random.choice(MANNERS)
        self._seen[f"shadow {manner}"] += 1
        if manner in ("slow", "mute"):
            await asyncio.sleep(MUTE_S if manner == "mute" else 10 * self._random.random())
        if manner in ("mute", "away"):
            raise Unreachable("the shadow is away")
        if manner == "full":
            raise Overloaded("the shadow has too much to do")
        if manner == "refuses":
            raise Poison("model_rejected", "the shadow will not have it")
        if manner == "wrong":
            raise Fatal("there is no such shadow")
        answers = self._ask(payloads)
        if manner == "too few":
            raise Poison("model_mismatch", "one answer is missing")
        if manner == "differs":
            return Answers([b'"other"'] * len(answers.values), {})
        return answers

    async def ready(self) -> bool:
        return False

    async def aclose(self) -> None:
        return


class ShadowSink:
    """A producer for the shadow's topic. It often fails."""

    def __init__(self, process: Process, random: Random) -> None:
        self._process = process
        self._random = random

    async def start(self) -> None:
        await self._process.gate()
        if self._random.random() < 0.3:
            raise Unreachable("the broker is away")

    async def partitions(self, topic: str) -> int:
        return self._random.choice((0, 1, 3))

    async def send(self, outgoing: Outgoing) -> Awaitable[None]:
        await self._process.gate()
        await asyncio.sleep(self._random.choice((0.0, 0.1, 30.0)))
        report: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        if self._random.random() < 0.3:
            report.set_exception(Fatal("the broker did not take a batch"))
        else:
            report.set_result(None)
        return report

    def fits(self, topic: str, key: bytes | None, value_bytes: int) -> bool:
        return value_bytes < 2_000

    async def forget(self) -> None:
        return

    async def stop(self) -> None:
        await asyncio.sleep(self._random.choice((0.0, 5.0)))


# The largest record in worlds with small records. A dead letter that names 300 ranges of rows does
# not fit.
MOST_RECORD_BYTES = 6_000
# How often transfers break in worlds where objects are replaced. The share is high, so that the
# next try often meets a replaced object.
OFTEN = 0.2
# The share of the worlds in which two models answer the same rows. The share is small, because a
# world with two models takes twice the time.
FANNED_OUT = 0.15
# In this share of the worlds some reads of the store are slow, with this chance for each.
SLOW_READS = 0.3
SLOW_SHARE = 0.03
# In this share of the worlds store and model are as far away as in a cloud.
DISTANT = 0.5
STORE_S, MODEL_S = 0.030, 0.050
# How far beyond a partition's end a position is moved: so far that the end never reaches it.
FAR = 1_000


def _where(partition: int) -> Where:
    return Where(INPUT, partition)


class World:
    """`announce` appends messages; `hire` makes workers; `look` checks the bounds after every turn
    of the loop.
    """

    # What a test may break, to see whether the checks notice it.
    wiring_kind: type[Wiring] = Wiring
    group_kind: type[Group] = Group

    def __init__(self, seed: int, scenario: Scenario) -> None:
        def source(part: str) -> Random:
            """Each part has a random source of its own, so that a change in one part does not
            change what the others draw.
            """
            return Random(f"{seed}/{part}")

        self.random = source("storm")
        self.history = History(seed)
        self.troubles = drawn_troubles(source("kind"))
        self.workers: list[SimulatedWorker] = []
        objects = MemoryObjects(chunk_bytes=self.random.choice((64, 256, 1024, 8192)))
        objects.versioned = self.random.random() < 0.3
        self._most_bytes = MOST_RECORD_BYTES if self.troubles.small_records else None
        self.results = MemoryResults()
        self._fan = FAN_OUT if source("fan-out").random() < FANNED_OUT else None
        # Worlds with small records have no result objects, because a row that fits into a result
        # may not fit into a record.
        terms = None if self.troubles.small_records else drawn_terms(source("results"))
        self.deployments = Deployments(
            source("settings"),
            scenario,
            self.troubles,
            exactly_once=self.random.random() < 0.3,
            chunk_bytes=objects.chunk_bytes,
            most_bytes=self._most_bytes,
            results=terms,
            fans_out=self._fan is not None,
        )
        self.topic = Topic(map(_where, range(self.deployments.now.settings.input_partitions)))
        self._unsteady: dict[str, set[str]] = defaultdict(set)
        self.logs = {where: self._log(records) for where, records in self.topic.records.items()}
        self.outcome = ArrivedAnswers(self.logs)
        drawn = self._drawn_faults(source)
        self.injector = FaultInjector(drawn, source("weather"))
        self.injector_of_others = self._injector_of_others(drawn, source("other models"))
        self._margin_s = self.random.choice((0.1, 10.0))
        self.group = self.group_kind(self.topic, source("group"), self.history)
        self._arrivals = Arrivals(
            self.logs, self.outcome, self.results, self.history, self._most_bytes
        )
        self.bucket = Bucket(
            objects,
            scenario,
            self.troubles,
            self.deployments,
            self.history,
            self._unsteady,
            draws=Draws(self.random, source("load"), source("poison"), source("spoil")),
        )
        self._answer = scenario.answer
        self._has_shadows, self._of_shadows = scenario.shadow, source("shadows")
        self._jitter = source("jitter").random
        self._telemetry = Telemetry()
        self._clock = VirtualClock()
        self._bounds = Bounds(self.logs, self.history)
        self._deployment_of: dict[SimulatedWorker, Deployment] = {}

    def _drawn_faults(self, source: Callable[[str], Random]) -> Faults:
        drawn = drawn_faults(self.random)
        if self.troubles.objects:
            drawn = replace(drawn, body_breaks=OFTEN)
        if source("reads").random() < SLOW_READS:
            drawn = replace(drawn, slow_read=SLOW_SHARE)
        if source("distance").random() < DISTANT:
            drawn = replace(drawn, store_s=STORE_S, model_s=MODEL_S)
        return drawn

    @staticmethod
    def _injector_of_others(drawn: Faults, random: Random) -> FaultInjector:
        """The faults of the models besides the default one. These models may be away nearly all the
        time.
        """
        is_away = random.random() < 0.5
        return FaultInjector(replace(drawn, model_away=0.97) if is_away else drawn, random)

    def calm(self) -> None:
        """From now on nothing fails."""
        self.injector.stop()
        self.injector_of_others.stop()

    @property
    def reads_sent_again(self) -> int:
        totals = self._telemetry.replicas.hedged.totals.values()
        return sum(sum(outcomes.values()) for outcomes in totals)

    @property
    def partitions(self) -> int:
        return len(self.topic.records)

    def deployment(self, worker: SimulatedWorker) -> Deployment:
        return self._deployment_of[worker]

    def _log(self, records: Sequence[Record]) -> PartitionLog:
        log = PartitionLog(records, self._fan)
        log.unsteady = self._unsteady
        return log

    def announce(self) -> None:
        """Append the next message to any partition."""
        value = self.bucket.message()
        gap = self.random.choice((0, 0, 0, 1, 5))
        key = self.random.choice((None, b"k"))
        record = self.topic.append(self.random.choice(self.topic.partitions), key, value, gap)
        log = self.logs[record.where]
        self.deployments.announced(record, log.objects(len(log.records) - 1))
        self.history.note("announce", f"{record.where}/{record.offset} {value!r:.70}")

    def grow(self) -> None:
        """Add a partition to all topics."""
        where = _where(self.partitions)
        self.topic.grow(where)
        self.logs[where] = self._log(self.topic.records[where])
        self.deployments.grow(self.partitions)
        self.history.note("partition", str(self.partitions))
        self.group.rebalance()

    def leave_gap(self) -> None:
        """Use up an offset without a record, as the end of a producer's transaction does."""
        where = self.random.choice(self.topic.partitions)
        self.topic.leave_gap(where)
        self.logs[where].gap_end = self.topic.end(where)

    def move(self) -> None:
        """While no worker reads, move the group's position in a partition back, or too far
        forward.
        """
        where = self.random.choice(self.topic.partitions)
        before = self.group.reached(where)
        beyond = self.topic.end(where) + FAR
        self.group.move(where, self.random.choice((beyond, self.random.randint(0, before))))
        self.outcome.again(where)

    def change(self) -> None:
        """Workers that are hired from now on have other settings."""
        self.deployments.change(self.partitions)
        terms = self.deployments.now.terms
        terms_on = [
            name for name in ("by_stream", "exactly_once", "markers") if getattr(terms, name)
        ]
        self.history.note("change", f"{terms.truths.options.rules} {terms_on}")

    def hire(self) -> SimulatedWorker:
        """Make a new worker, which does not run yet."""
        process, injector = Process(), self.injector
        deployment, bucket = self.deployments.now, self.bucket
        source = self._source(deployment, process)
        objects = SimulatedObjects(
            bucket.objects, bucket.cursed, bucket.cut, bucket.broke, process, injector
        )
        models = {
            model: SimulatedModel(
                self._ask, process, injector if model is None else self.injector_of_others
            )
            for model in deployment.settings.terms
        }
        others = {name: model for name, model in models.items() if name is not None}
        sink = self._sink(source, deployment, process)
        settings, guest = self._shaded(deployment.settings, process)
        wiring = self.wiring_kind(
            settings,
            Adapters(
                source,
                objects,
                models[None],
                sink,
                self._clock,
                self._transactions(source, deployment, process),
                results=SimulatedResults(self.results, process, injector),
                models=others,
                shadow=guest,
            ),
            self._telemetry,
            decoders=DecodersAtHand(most=2),
            offload=inline,
            jitter=self._jitter,
            draw=self._of_shadows.random,
            raises=True,
        )
        # As if the worker had read objects before: it lives too short to learn what is late.
        for hedging in wiring.hedgings.values():
            for _ in range(LEAST_ANSWERS):
                hedging.answered(None, 0.0)
        pipeline = Pipeline(wiring)
        worker = SimulatedWorker(
            pipeline, source, objects, [*models.values()], sink, process, self.group
        )
        self.workers.append(worker)
        self._deployment_of[worker] = deployment
        return worker

    def _shaded(self, settings: Settings, process: Process) -> tuple[Settings, Guest | None]:
        if not self._has_shadows:
            return settings, None
        random = self._of_shadows
        shadow = SimulatedShadow(self._ask, process, random, self.history.counts)
        terms = drawn_shadow(random)
        return replace(settings, shadow=terms), Guest(shadow, ShadowSink(process, random))

    def _source(self, deployment: Deployment, process: Process) -> SimulatedSource[Life]:
        return SimulatedSource(
            f"w{len(self.workers)}",
            self.topic,
            self.group,
            lambda name, where, start: Life(
                self.logs[where], name, where, start, deployment.terms, self.history
            ),
            process,
            self.injector,
            self.history,
            drain_s=deployment.settings.times.drain_s,
            margin_s=self._margin_s,
            exactly_once=deployment.terms.exactly_once,
            is_in_trouble=self.troubles.broker,
        )

    def _sink(
        self, source: SimulatedSource[Life], deployment: Deployment, process: Process
    ) -> SimulatedSink:
        return SimulatedSink(
            lambda: self.partitions,
            lambda out: self._arrivals.accept(source, deployment, out),
            self._most_bytes,
            process,
            self.injector,
            is_slow=self.troubles.broker,
        )

    def _transactions(
        self, source: SimulatedSource[Life], deployment: Deployment, process: Process
    ) -> Transactions | None:
        if not deployment.terms.exactly_once:
            return None
        producers = SimulatedProducers(
            source,
            self.group,
            lambda landing: self._arrivals.land(source, deployment, landing),
            process,
            self.injector,
            is_slow=self.troubles.broker,
        )
        return Transactions(producers, source)

    def _ask(self, payloads: Sequence[Payload]) -> Answers:
        """The answers of one call to all payloads. Their rows count as one list of rows."""
        values: list[bytes] = []
        errors: dict[int, str] = {}
        for payload in payloads:
            answers = self._answer(payload)
            errors |= {len(values) + index: text for index, text in answers.errors.items()}
            values += answers.values
        return Answers(values, errors)

    def look(self) -> None:
        """Check, between two turns of the loop, that nothing in flight is above its limit."""
        self._bounds.turn()
        for worker in self.workers:
            if worker.process.alive:
                self._bounds.check(worker, self._deployment_of[worker])
