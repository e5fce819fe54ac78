"""Workers towards an end: what was decided stays known, and stopped lines end them."""

import asyncio
from collections.abc import Collection, Mapping
from types import SimpleNamespace
from typing import Any, cast

import pytest

from penstock.adapters.inputs.bounded_sources import BoundedSource
from penstock.adapters.kafka.positions_from_outside import Groups
from penstock.errors import Fatal, Unreachable
from penstock.pipeline.life import Pipeline
from penstock.ports import Commit, Where
from penstock.tools.replay.decided_range import OffsetSpan
from penstock.tools.replay.pacing import KeptRange, Watch, check_lines
from penstock.tools.simulation.virtual_time import VirtualClock, virtual_time

ONE, TWO, THREE = (Where("refs", number) for number in range(3))
STOPS = {ONE: ["stream 'a' at refs/0"]}
WRITTEN = {ONE: Commit(10, "begun")}


def test_a_worker_ends_at_its_stopped_lines_if_nothing_else_is_left_anywhere() -> None:
    with pytest.raises(Fatal, match=r"stream 'a' at refs/0\nrefs/1, of another worker\n"):
        check_lines({ONE, TWO}, {ONE}, STOPS, {ONE, TWO})
    with pytest.raises(Fatal, match="every line that is not at its end is stopped"):
        check_lines({ONE}, {ONE, THREE}, STOPS, set())


@pytest.mark.parametrize(
    ("unfinished", "ours", "stopped", "marked"),
    [
        ({ONE, TWO}, {ONE}, STOPS, {ONE}),  # the other one goes on, and may need a successor
        ({ONE, TWO}, {ONE, TWO}, STOPS, {ONE, TWO}),  # the mark is old: it is tried again here
        ({TWO}, {ONE}, {}, {TWO}),  # its owner says when it stands, and hands it over
        ({TWO}, {ONE, TWO}, STOPS, set()),
    ],
)
def test_a_worker_goes_on_looking_while_more_may_come(
    unfinished: set[Where], ours: set[Where], stopped: Mapping[Where, list[str]], marked: set[Where]
) -> None:
    check_lines(unfinished, ours, stopped, marked)


class KafkaThatForgets:
    """The commits of `job` and `job.until-end`; it forgets the latter after a minute."""

    def __init__(self) -> None:
        self.done = Commit(0)
        self.kept: Mapping[Where, Commit] = WRITTEN
        self.is_silent = False
        self.begun = 0
        self._until_s = 60.0

    async def positions(self, group: str, parts: Collection[Where]) -> Mapping[Where, Commit]:
        if self.is_silent:
            raise Unreachable("no broker")
        if group == "job":
            return {ONE: self.done}
        return self.kept if asyncio.get_running_loop().time() < self._until_s else {}

    async def begin(self, group: str, commits: Mapping[Where, Commit]) -> None:
        assert (group, commits) == ("job.until-end", WRITTEN)
        self.begun += 1
        if self.begun % 5 == 0:
            raise Fatal("Kafka did not answer the end of the beginning")
        self._until_s = asyncio.get_running_loop().time() + 60.0


def watching(kafka: KafkaThatForgets) -> asyncio.Task[None]:
    kept = KeptRange("job.until-end", WRITTEN)
    spans, groups = {ONE: OffsetSpan(0, 10)}, cast(Groups, kafka)
    watch = Watch(spans, groups, VirtualClock(), kept, group="job")
    wiring: Any = SimpleNamespace(lanes={}, give_way=lambda _: None)
    pipeline = cast(Pipeline, SimpleNamespace(wiring=wiring))
    return asyncio.create_task(watch.run(pipeline, cast(BoundedSource, SimpleNamespace())))


@virtual_time
async def test_the_end_of_a_job_of_hours_is_known_though_kafka_forgets_it_after_a_minute() -> None:
    kafka = KafkaThatForgets()
    looking = watching(kafka)
    for minute in range(180):
        await asyncio.sleep(60)
        kafka.is_silent = minute % 7 == 0 and minute < 100  # then it forgets, and is told again
    assert await kafka.positions("job.until-end", [ONE]) == WRITTEN
    kafka.done = Commit(10)
    await looking


@virtual_time
async def test_an_end_that_was_decided_anew_is_not_overwritten() -> None:
    kafka = KafkaThatForgets()
    kafka.kept = {ONE: Commit(20, "begun later")}
    looking = watching(kafka)
    await asyncio.sleep(59)
    assert kafka.begun == 0
    kafka.done = Commit(10)
    await looking
