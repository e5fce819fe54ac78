"""What an object may cost, in things that are counted: a guard no busy machine can upset."""

import asyncio
from typing import Any

from penstock.adapters.memory import MemorySink
from penstock.core.window.window import WindowLimits
from penstock.ports import Outgoing
from penstock.tools.simulation.virtual_time import VirtualTimeLoop
from tests.support.pipelines import World, csv, run_to_end


class CountingLoop(VirtualTimeLoop):
    """Counts the turns of work that are scheduled, timers that are set, and tasks."""

    def __init__(self) -> None:
        super().__init__()
        self.scheduled = self.timers = self.tasks = 0

    def create_task(self, *args: Any, **more: Any) -> asyncio.Task[Any]:
        self.tasks += 1
        return super().create_task(*args, **more)

    def call_soon(self, *args: Any, **more: Any) -> asyncio.Handle:  # type: ignore[override]
        self.scheduled += 1
        return super().call_soon(*args, **more)

    def call_at(self, *args: Any, **more: Any) -> asyncio.TimerHandle:  # type: ignore[override]
        self.timers += 1
        return super().call_at(*args, **more)


class CountingSink(MemorySink):
    sends = 0

    async def send(self, outgoing: Outgoing) -> Any:
        self.sends += 1
        return await super().send(outgoing)


def ticks(objects: int, rows: int = 8) -> tuple[CountingLoop, World, CountingSink]:
    """A pipeline that answered so many small objects of 20 streams, all announced before."""
    world = World()
    world.with_settings(window=WindowLimits(512, 1 << 20, 0.005))
    sink = CountingSink(partitions=1)
    world.sink = sink
    for number in range(objects):
        world.announce(f"{number}.csv", csv(rows), stream=f"s{number % 20}")
    with asyncio.Runner(loop_factory=CountingLoop) as runner:
        runner.run(run_to_end(world, objects))
        loop = runner.get_loop()
    assert isinstance(loop, CountingLoop)
    return loop, world, sink


def test_no_task_is_made_per_object() -> None:
    few, many = ticks(50)[0], ticks(500)[0]
    assert few.tasks == many.tasks


def test_a_small_object_takes_few_turns_of_the_event_loop() -> None:
    few, many = ticks(100)[0], ticks(500)[0]
    # 1.5 when this was written: the in-memory store takes one, the batch and its release the rest.
    assert (many.scheduled - few.scheduled) / 400 <= 2.5


def test_timers_are_set_per_batch_not_per_row_or_object() -> None:
    few, many = ticks(100)[0], ticks(500)[0]
    assert (many.timers - few.timers) / 400 <= 0.05


def test_answers_of_many_objects_leave_in_one_kafka_batch() -> None:
    _, world, sink = ticks(500)
    assert world.published() == 4_000
    # A batch of 512 rows is answered at a time, so its 64 objects leave together.
    assert sink.sends <= 10


def test_model_calls_are_full_when_rows_are_waiting() -> None:
    _, world, _ = ticks(500)
    assert len(world.model.calls) <= 10


def test_rows_of_a_large_object_are_never_taken_one_by_one() -> None:
    small, large = ticks(1, rows=1_000)[0], ticks(1, rows=50_000)[0]
    # 3 for a batch of 512 rows when this was written.
    assert large.scheduled - small.scheduled <= 49_000 / 512 * 6
