"""What a server takes in one request caps the window, whenever it becomes known."""

from collections.abc import Sequence

from penstock.core.rows.payload import Payload
from penstock.errors import Overloaded, Poison
from penstock.ports import Answers
from penstock.tools.simulation.region_workers import MemoryModel
from penstock.tools.simulation.virtual_time import virtual_time
from tests.support.pipelines import World, csv, run_to_end


def sizes(world: World) -> list[int]:
    return [sum(payload.rows for payload in call) for call in world.model.calls]


@virtual_time
async def test_a_limit_that_is_known_at_the_start_is_never_passed() -> None:
    world = World(model=MemoryModel(most_rows=10))
    world.announce("a.csv", csv(100))
    await run_to_end(world, 1)
    assert sizes(world) == [10] * 10
    assert [record["row"] for record in world.records()] == list(range(100))


@virtual_time
async def test_a_limit_that_is_learned_from_a_refusal_holds_from_then_on() -> None:
    model = MemoryModel()

    async def refuse(payloads: Sequence[Payload]) -> Answers | None:
        model.most_rows = 10
        if sum(payload.rows for payload in payloads) > 10:
            raise Poison("too_large", "10 rows in one request")
        return None

    model.script = refuse
    world = World(model=model).with_settings(callers=1)
    world.announce("a.csv", csv(640))
    await run_to_end(world, 1)
    assert [size for size in sizes(world) if size > 10] == [64]
    assert all(record["prediction"] is not None for record in world.records())


@virtual_time
async def test_a_limit_that_is_told_as_too_much_to_do_is_met_by_smaller_requests() -> None:
    model = MemoryModel()

    async def refuse(payloads: Sequence[Payload]) -> Answers | None:
        if sum(payload.rows for payload in payloads) > 10:
            raise Overloaded("RESOURCE_EXHAUSTED: that is more than I take")
        return None

    model.script = refuse
    world = World(model=model)
    world.announce("a.csv", csv(640))
    await run_to_end(world, 1)
    assert all(record["prediction"] is not None for record in world.records())
