"""A region in memory, and a worker with its settings and the services that it reaches in all
regions. A region has a consumer group, a store and a model.

Rule: the worker runs the real pipeline, which really chooses among stores, model servers and
groups; only the services are in memory.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from random import Random
from typing import NamedTuple

import numpy as np

from penstock.adapters.inputs.regional_source import RegionalSource
from penstock.adapters.memory import MemoryObjects, MemorySink
from penstock.adapters.model_servers.replicas import Endpoint, ReplicatedModel
from penstock.adapters.stores.choice import Stores
from penstock.adapters.stores.replicas import PATIENCE_S
from penstock.core.health.other_groups import HelpTerms, RegionState
from penstock.core.progress.line_stop import NO_LIMITS
from penstock.core.records.output_records import Labels, same_partition
from penstock.core.routing.store_choice import ConfiguredStore, StoreChoice
from penstock.core.rows.payload import Matrix, Payload
from penstock.core.window.window import WindowLimits
from penstock.decoders.simulated import DecodersAtHand
from penstock.errors import Unreachable
from penstock.formats.runs import RowOptions
from penstock.pipeline.life import Pipeline
from penstock.pipeline.settings import LaneLimits, ModelTerms, Settings, TimeLimits
from penstock.pipeline.wiring import Wiring
from penstock.ports import Adapters, Answers, Objects, Where
from penstock.stages.consume import IntakeTerms
from penstock.stages.encode import PublishTerms
from penstock.stages.read_object import ObjectTerms
from penstock.stages.reject import LetterTerms
from penstock.telemetry.per_service import ReplicasTelemetry
from penstock.telemetry.worker import Telemetry
from penstock.tools.simulation.checks.history import History
from penstock.tools.simulation.kafka.group import SESSION_S, Group, Watched
from penstock.tools.simulation.kafka.source import SimulatedSource
from penstock.tools.simulation.kafka.topics import Topic
from penstock.tools.simulation.process_and_faults import FaultInjector, Faults, Process
from penstock.tools.simulation.virtual_time import VirtualClock, inline

Script = Callable[[Sequence[Payload]], Awaitable[Answers | None]]


@dataclass(slots=True)
class MemoryModel:
    """Answers each row with the sum of its numbers. `script`: a function that may wait, raise, or
    give other answers.
    """

    script: Script | None = None
    calls: list[list[Payload]] = field(default_factory=list)
    in_flight: int = 0
    most_in_flight: int = 0
    version: str | None = None
    most_rows: int | None = None

    async def predict(self, payloads: Sequence[Payload]) -> Answers:
        self.calls.append(list(payloads))
        self.in_flight += 1
        self.most_in_flight = max(self.most_in_flight, self.in_flight)
        try:
            answers = await self.script(payloads) if self.script is not None else None
            await asyncio.sleep(0)
        finally:
            self.in_flight -= 1
        return answers if answers is not None else sums(payloads)

    async def ready(self) -> bool:
        return True

    async def aclose(self) -> None:
        return


def sums(payloads: Sequence[Payload]) -> Answers:
    """`{"sum": x}` for each row of float32 payloads."""
    values: list[bytes] = []
    for payload in payloads:
        assert isinstance(payload, Matrix)
        values += [b'{"sum":%g}' % total for total in np.sum(payload.values, axis=1)]
    return Answers(values, {})


NAMES = ("eu", "us", "ap")
PARTITIONS = 2
TOPIC = "refs."
# How long a client waits for an answer that does not come.
SILENT_S = 30.0


# The lives of these members check nothing, because what was published is judged at the end.
Member = SimulatedSource[Watched]


def topics() -> Topic:
    return Topic(where for name in NAMES for where in _partitions(name))


def _partitions(region: str) -> list[Where]:
    return [Where(f"{TOPIC}{region}", number) for number in range(PARTITIONS)]


class SimulatedRegion:
    """Two lists of members of the region's group. `members`: those of the region's own workers.
    `helpers`: those of the workers of other regions.
    """

    def __init__(self, name: str, topic: Topic, random: Random, history: History) -> None:
        self.name = name
        self.partitions = _partitions(name)
        self.topic = topic
        self.group = Group(topic, random, history, only=self.partitions)
        self.objects = MemoryObjects()
        self.model = MemoryModel()
        self.members: list[Member] = []
        self.helpers: list[Member] = []

    @property
    def lag(self) -> int:
        return sum(
            max(0, self.topic.end(where) - self.group.start(where).next_offset)
            for where in self.partitions
        )

    @property
    def is_helped(self) -> bool:
        return any(helper in self.group for helper in self.helpers)

    @property
    def standing(self) -> RegionState:
        return RegionState(self.lag, sum(member in self.group for member in self.members))

    def cut_off(self, *, is_silent: bool) -> None:
        """Cut off store and model. With `is_silent` they do not answer; otherwise they refuse
        connections.
        """

        async def away(_: object) -> None:
            if is_silent:
                await asyncio.sleep(SILENT_S)
            raise Unreachable(f"{self.name} is cut off")

        self.objects.on_open = away
        self.model.script = away

    def come_back(self) -> None:
        self.objects.on_open = self.model.script = None


TERMS = HelpTerms(lag=6, after_s=3.0)
OUTPUT = "predictions"
DRAIN_S = 5.0
# How much longer than the drain a hand-back may take before the group expels the member.
MARGIN_S = 55.0
# The broker's longest ordinary delay. One answer in twenty takes ten times as long.
DELAY_S = 0.02


class RegionsWorld(NamedTuple):
    """What all workers of a simulation share."""

    regions: Mapping[str, SimulatedRegion]
    sink: MemorySink
    clock: VirtualClock
    random: Random
    history: History
    tasks: asyncio.TaskGroup


class RegionWorker:
    """A worker that begins to run at once, in a task of its own. `home`: the worker's own
    region.
    """

    def __init__(self, name: str, home: SimulatedRegion, world: RegionsWorld) -> None:
        self.name, self.home = name, home
        self._process = Process()
        self._members: list[tuple[Group, Member]] = []
        self._listening: list[asyncio.Task[None]] = []
        self._world = world
        telemetry = Telemetry()
        self.region = telemetry.in_region(home.name, {each: each for each in NAMES})
        others = [region for region in world.regions.values() if region is not home]
        source = RegionalSource(
            self._member(home.name),
            self._member,
            {f"{TOPIC}{other.name}": other.name for other in others},
            self._look,
        )
        endpoints = [Endpoint(other.name, other.model) for other in (home, *others)]
        adapters = Adapters(
            source,
            _stores(world, telemetry.replicas),
            ReplicatedModel(endpoints, PATIENCE_S, telemetry.replicas),
            world.sink,
            world.clock,
            neighbours=source,
        )
        settings = _settings(home.name, [other.name for other in others])
        wiring = Wiring(
            settings,
            adapters,
            telemetry,
            decoders=DecodersAtHand(),
            offload=inline,
            jitter=world.random.random,
            raises=True,
        )
        self.pipeline = Pipeline(wiring)
        self.task = world.tasks.create_task(self.pipeline.run())

    def _member(self, region: str) -> Member:
        world, there = self._world, self._world.regions[region]
        member = Member(
            f"{self.name} in {region}",
            there.topic,
            there.group,
            lambda *_: Watched(),
            self._process,
            FaultInjector(Faults(delay_s=DELAY_S), world.random),
            world.history,
            drain_s=DRAIN_S,
            margin_s=MARGIN_S,
        )
        self._members.append((there.group, member))
        self._listening.append(world.tasks.create_task(member.listen()))
        if there is self.home:
            there.members.append(member)
        else:
            there.helpers.append(member)
            world.history.note("help", f"{self.name} {region}")
        return member

    def end(self) -> None:
        """End the worker's tasks. If the worker was killed, its tasks would not end by
        themselves.
        """
        for task in (self.task, *self._listening):
            task.cancel()

    async def _look(self, region: str | None) -> RegionState:
        await asyncio.sleep(0.01)
        if self._world.random.random() < 0.05:
            raise Unreachable("nobody answered")
        return self._world.regions[region or self.home.name].standing

    @property
    def is_helping(self) -> bool:
        help_regions = self.pipeline.wiring.help_regions
        return help_regions is not None and bool(help_regions.helped)

    def kill(self) -> None:
        self._world.history.note("killed", self.name)
        self._process.die(is_cut=False)
        for group, member in self._members:
            asyncio.get_running_loop().call_later(SESSION_S, group.leave, member)
        self.task.cancel()


def _stores(world: RegionsWorld, telemetry: ReplicasTelemetry) -> Stores:
    """For each region: its store, with the stores of the other regions as replicas."""

    def of(name: str) -> Callable[[], Objects]:
        return lambda: world.regions[name].objects

    return Stores(
        {name: of(name) for name in NAMES},
        {name: [other for other in NAMES if other != name] for name in NAMES},
        telemetry,
    )


def _settings(home: str, others: list[str]) -> Settings:
    places = [ConfiguredStore(name, "s3") for name in NAMES]
    return Settings(
        labels=Labels(f"{TOPIC}{home}", OUTPUT, "rows", None, markers=True),
        main=ModelTerms(
            RowOptions(),
            WindowLimits(max_rows=16, max_bytes=1 << 20, max_wait_s=0.01),
            target_p99_s=None,
            callers=2,
        ),
        intake=IntakeTerms(
            places=StoreChoice(places, [home]),
            near={f"{TOPIC}{name}": StoreChoice(places, [name]) for name in others},
        ),
        lane=LaneLimits(16, NO_LIMITS),
        objects=ObjectTerms(
            fetchers=1,
            object_bytes=None,
            inline_bytes=500,
            pin=True,
            wait_for_object_s=0.0,
            more_fetchers=dict.fromkeys(NAMES, 4),
        ),
        publish=PublishTerms(same_partition),
        letters=LetterTerms(f"{OUTPUT}.dlq", PARTITIONS),
        times=TimeLimits(
            commit_interval_s=0.2,
            drain_s=DRAIN_S,
            broker_patience_s=120.0,
            patience_s=None,
            stall_s=None,
        ),
        buffer_bytes=1 << 20,
        input_partitions=PARTITIONS,
        helping=dict.fromkeys(others, TERMS),
    )
