"""Several models beside each other: who answers what, and what one that is ill holds back."""

import asyncio
from collections.abc import Sequence

import orjson
import pytest

from penstock.core.routing.model_routes import UNMATCHED_AFTER, ModelRoute
from penstock.core.rows.payload import Payload
from penstock.core.window.window import WindowLimits
from penstock.decoders.simulated import DecodersAtHand
from penstock.errors import EXIT_USAGE, Fatal, Unreachable
from penstock.failures.outage import until_one_answered
from penstock.ports import Answers
from penstock.tools.simulation.virtual_time import VirtualClock, run
from tests.support.pipelines import World, csv, run_to_end, running, until

A = ModelRoute(("a",), stream="a/*")


async def away(_: Sequence[Payload]) -> Answers | None:
    raise Unreachable("nobody is there")


async def refuse(payloads: Sequence[Payload]) -> Answers:
    rows = sum(payload.rows for payload in payloads)
    return Answers([b"null"] * rows, dict.fromkeys(range(rows), "no"))


def answered(world: World, stream: str) -> int:
    return sum(record["stream"] == stream for record in world.records())


def test_each_row_is_answered_by_the_model_of_its_route_and_the_record_says_by_which() -> None:
    world = World().with_models(["a", "b"], A, ModelRoute(("b",), key="*.b.csv"))
    world.announce("1.csv", csv(3), stream="a/1")
    world.announce("2.b.csv", csv(2), stream="s")
    world.announce("3.csv", csv(4), stream="s")
    run(run_to_end(world, 3))
    by_model = [(record["source"]["offset"], record["model"]) for record in world.records()]
    assert by_model == [(0, "a")] * 3 + [(1, "b")] * 2 + [(2, "rows")] * 4
    asked = [sum(map(len, model.calls)) for model in (world.models["a"], world.models["b"])]
    assert all(asked)


def test_rows_for_two_models_that_come_together_are_never_in_one_call() -> None:
    world = World().with_models(["a"], A)
    for number in range(10):
        world.announce(f"{number}.csv", csv(2), stream=f"{'as'[number % 2]}/{number}")
    run(run_to_end(world, 10))
    for model in (world.model, world.models["a"]):
        assert sum(payload.rows for call in model.calls for payload in call) == 10


def test_a_reference_names_its_model_whatever_its_route_says() -> None:
    world = World().with_models(["a"], A)
    world.announce("1.csv", csv(1), stream="a/1", model="rows")
    world.announce("2.csv", csv(1), stream="s", model="a")
    world.source.append(orjson.dumps({"stream": "s", "inline": [[1, 2]], "model": "a"}))
    run(run_to_end(world, 3))
    assert [record["model"] for record in world.records()] == ["rows", "a", "a"]


def test_a_route_that_nothing_matches_is_warned_of_once_with_a_stream_as_it_is_called(
    caplog: pytest.LogCaptureFixture,
) -> None:
    world = World().with_models(["a", "b"], A, ModelRoute(("b",), stream="site-1/*"))
    for _ in range(UNMATCHED_AFTER + 10):
        world.source.append(orjson.dumps({"stream": "plat/site-1", "inline": [[1, 2]]}))
    world.source.append(orjson.dumps({"stream": "a/1", "inline": [[1, 2]]}))
    run(run_to_end(world, UNMATCHED_AFTER + 11))
    told = [record.getMessage() for record in caplog.records if "matched the route" in record.msg]
    assert len(told) == 2
    assert "'site-1/*' to b" in told[1]
    assert "'plat/site-1'" in told[1]


@pytest.mark.parametrize("names", [[], ["a"]])
def test_a_reference_that_names_an_unknown_model_is_rejected_with_a_letter(
    names: list[str],
) -> None:
    world = World().with_models(names)
    world.announce("1.csv", csv(2), model="rovs")
    world.announce("2.csv", csv(1))
    run(run_to_end(world, 2))
    marker, row = world.records()
    assert (marker["row"], marker["error"]["code"]) == (None, "bad_reference")
    assert "rovs" in marker["error"]["message"]
    assert row["row"] == 0
    (letter,) = world.dead_letters()
    assert letter["reference"]["model"] == "rovs"


def test_a_letter_says_which_model_refused() -> None:
    world = World().with_models(["a"], A)
    world.models["a"].script = refuse
    world.announce("1.csv", csv(1), stream="a/1")
    run(run_to_end(world, 1))
    (letter,) = world.dead_letters()
    assert (letter["model"], letter["code"]) == ("a", "model_rejected")


def test_a_model_that_is_away_holds_back_only_its_own_streams() -> None:
    """For a minute, at 20 records a second, half of them for the one that is away."""
    world = World().with_models(["a"], A, order_by_stream=True)
    world.models["a"].script = away
    seconds, late = 60, []

    async def work() -> None:
        async with running(world):
            for tick in range(20 * seconds):
                stream = f"{'as'[tick % 2]}/{tick % 6}"
                world.announce(f"{stream}/{tick}", csv(2), stream=stream)
                await asyncio.sleep(1 / 20)
                if tick % 2 and not answered_now(world, tick):
                    late.append(tick)
            assert {record["model"] for record in world.records()} == {"rows"}
            assert not world.next_offset()
            world.models["a"].script = None
            await until(lambda: world.next_offset() == 20 * seconds, within_s=600)

    run(work())
    assert not late
    for stream in ("a/0", "a/2", "a/4", "s/1", "s/3", "s/5"):
        offsets = [
            record["source"]["offset"] for record in world.records() if record["stream"] == stream
        ]
        assert offsets == sorted(offsets)
        assert len(offsets) == 2 * 20 * seconds // 6


def answered_now(world: World, offset: int) -> bool:
    """Within the time between two records."""
    mark = b'"offset":%d}' % offset
    return any(mark in value for _, value in world.sink.topics["predictions"][0][-4:])


def test_with_order_by_partition_other_partitions_go_on() -> None:
    world = World(partitions=2).with_models(["a"], A)
    world.models["a"].script = away

    async def work() -> None:
        async with running(world):
            for number in range(100):
                world.announce(f"a/{number}", csv(2), stream="a/1", partition=0)
                world.announce(f"s/{number}", csv(2), stream="s", partition=1)
            await until(lambda: world.next_offset(1) == 100)
            world.models["a"].script = None
            await until(lambda: world.next_offset(0) == 100)

    run(work())


def test_rows_that_wait_for_a_model_leave_half_of_the_budget_to_the_others() -> None:
    limits = WindowLimits(max_rows=8_192, max_bytes=1 << 20, max_wait_s=0.01)
    world = World().with_models(["a"], A, order_by_stream=True, buffer_bytes=200_000, window=limits)
    world.models["a"].script = away

    async def work() -> None:
        async with running(world) as pipeline:
            for number in range(40):
                world.announce(f"a/{number}", csv(400), stream=f"a/{number}")
            await asyncio.sleep(5)
            assert pipeline.wiring.budget.spent_bytes < 160_000
            for number in range(40):
                world.announce(f"s/{number}", csv(400), stream="s")
            await until(lambda: len(world.sink.topics["predictions"][0]) == 40 * 400)
            assert answered(world, "s") == 40 * 400
            world.models["a"].script = None
            await until(lambda: world.next_offset() == 80)

    run(work())


def test_a_model_that_is_away_keeps_no_decoder_from_the_objects_of_another() -> None:
    limits = WindowLimits(max_rows=8_192, max_bytes=1 << 20, max_wait_s=0.01)
    world = World(decoders=DecodersAtHand(2)).with_models(
        ["a"], A, order_by_stream=True, buffer_bytes=200_000, window=limits
    )
    world.models["a"].script = away

    async def work() -> None:
        async with running(world):
            for number in range(4):
                world.announce(f"a/{number}", csv(4_000), stream=f"a/{number}")
            await asyncio.sleep(5)
            world.announce("s", csv(4_000), stream="s")
            await until(lambda: answered(world, "s") == 4_000)
            world.models["a"].script = None
            await until(lambda: world.next_offset() == 5)

    run(work())


def test_one_of_several_that_is_set_wrongly_is_waited_for() -> None:
    """Alone it would end the worker, which nobody else needs then."""
    world = World().with_models(["a"], A, order_by_stream=True)

    async def gone(_: Sequence[Payload]) -> Answers | None:
        raise Fatal("there is no model a", exit_code=EXIT_USAGE)

    world.models["a"].script = gone

    async def work() -> None:
        async with running(world):
            world.announce("a", csv(2), stream="a/1")
            world.announce("s", csv(2), stream="s")
            await until(lambda: answered(world, "s") == 2)
            world.models["a"].script = None
            await until(lambda: world.next_offset() == 2)

    run(work())


def test_a_worker_starts_as_soon_as_one_of_several_models_answers() -> None:
    async def well() -> None:
        return

    async def ill() -> None:
        raise Unreachable("nobody is there")

    run(until_one_answered({"a": ill, "b": well}, VirtualClock(), 60.0))
    with pytest.raises(ExceptionGroup, match="unhandled"):
        run(until_one_answered({"a": ill, "b": ill}, VirtualClock(), 60.0))


BOTH = ModelRoute(("rows", "a"), stream="x/*")


def test_each_row_is_answered_once_by_each_model_of_its_route() -> None:
    world = World().with_models(["a"], BOTH)
    world.announce("1.csv", csv(3), stream="x/1")
    world.announce("2.csv", csv(2), stream="s")
    world.announce("3.csv", csv(0), stream="x/1")
    run(run_to_end(world, 3))
    by_model = sorted((record["id"], record["model"]) for record in world.records())
    assert by_model == [
        *((f"refs/0/0/0/{row}", model) for row in range(3) for model in ("a", "rows")),
        *((f"refs/0/1/0/{row}", "rows") for row in range(2)),
        *(("refs/0/2/0/-", model) for model in ("a", "rows")),
    ]


@pytest.mark.parametrize("exactly_once", [False, True])
def test_of_several_models_one_that_is_away_keeps_no_answer_of_the_other(
    exactly_once: bool,
) -> None:
    """A worker that takes over goes on with what is left, of each model."""
    world = World(exactly_once=exactly_once).with_models(["a"], BOTH, order_by_stream=True)
    world.models["a"].script = away
    world.with_settings(drain_s=0.1)

    async def first() -> None:
        async with running(world):
            for number in range(20):
                world.announce(f"{number}.csv", csv(3), stream="x/1")
            await until(lambda: world.published() == 60)
            await asyncio.sleep(2)
        assert not world.next_offset()

    async def second() -> None:
        async with running(world):
            await until(lambda: world.next_offset() == 20)

    async def both() -> None:
        await first()
        world.models["a"].script = None
        await second()

    run(both())
    for model in ("rows", "a"):
        ids = [record["id"] for record in world.records() if record["model"] == model]
        assert ids == [f"refs/0/{offset}/0/{row}" for offset in range(20) for row in range(3)]


def test_a_letter_of_several_models_asks_the_one_that_refused() -> None:
    world = World().with_models(["a"], BOTH)
    world.models["a"].script = refuse
    world.announce("1.csv", csv(2), stream="x/1")
    run(run_to_end(world, 1))
    (letter,) = world.dead_letters()
    assert letter["reference"]["model"] == "a"
    assert sum("error" in record for record in world.records()) == 2


def test_what_nobody_may_read_is_refused_for_each_model() -> None:
    world = World(allow=["other"]).with_models(["a"], BOTH)
    world.announce("1.csv", csv(2), stream="x/1")
    run(run_to_end(world, 1))
    assert {record["model"] for record in world.records()} == {"rows", "a"}
    assert {record["error"]["code"] for record in world.records()} == {"not_allowed"}


def test_what_is_no_reference_waits_for_the_answers_of_its_stream_before_it() -> None:
    world = World().with_models(["a"], BOTH, order_by_stream=True)
    world.announce("1.csv", csv(2), stream="x/1")
    world.source.append(None, key=b"x/1")
    world.announce("2.csv", csv(1), stream="x/1", model="rovs")
    run(run_to_end(world, 3))
    of_default = [record for record in world.records() if record["model"] == "rows"]
    assert [record["source"]["offset"] for record in of_default] == [0, 0, 1, 2]
