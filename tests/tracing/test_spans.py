"""The spans of objects on their way through a pipeline."""

import asyncio
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import orjson
import pytest
from prometheus_client import generate_latest

from penstock.core.rows.payload import Payload
from penstock.core.window.window import WindowLimits
from penstock.errors import Rejected, Unreachable
from penstock.ports import Answers, Span, outgoing_traceparent
from penstock.tools.simulation.virtual_time import virtual_time
from penstock.tracing import MOST_LINKS
from tests.support.pipelines import World, csv, run_to_end, running, until

TRACE, SPAN = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
SAMPLED, UNSAMPLED = f"00-{TRACE}-{SPAN}-01", f"00-{TRACE}-{SPAN}-00"
NS = 1_000_000_000


class Server:
    """The script of a model: takes a tenth of a second, and keeps what came with each request."""

    def __init__(self) -> None:
        self.told: list[str | None] = []

    async def __call__(self, payloads: Sequence[Payload]) -> Answers | None:
        self.told.append(outgoing_traceparent.get())
        await asyncio.sleep(0.1)
        return None


async def later(world: World, *records: dict[str, Any]) -> None:
    """Announce these a second after the start, and run until they are answered."""
    async with running(world):
        await asyncio.sleep(1)
        for record in records:
            world.announce(**record)
        await until(lambda: world.next_offset() >= len(records), within_s=600.0)


def named(world: World, name: str) -> list[Span]:
    return [span for span in world.spans.sent if span.name == name]


def of(caller: str, **more: Any) -> dict[str, Any]:
    return {"key": "x.csv", "data": csv(3), "stream": "cam", "traceparent": caller} | more


@virtual_time
async def test_an_object_is_a_span_of_its_callers_trace_with_its_steps_below() -> None:
    world, server = World().with_traces(sample=0.0), Server()
    world.model.script = server
    await later(world, of(SAMPLED))
    [whole], [batch] = named(world, "process refs"), named(world, "predict rows")
    assert f"{whole.identity.trace_id:032x}" == TRACE
    assert f"{whole.parent_id:016x}" == SPAN
    assert whole.kind == "consumer"
    said = whole.attributes
    assert (said["penstock.stream"], said["penstock.rows"]) == ("cam", 3)
    assert said["penstock.object"] == "b/x.csv"
    assert said["penstock.sampled_for"] == "caller"
    assert said["messaging.destination.name"] == "refs"
    assert said["messaging.kafka.offset"] == 0
    steps = [span for span in world.spans.sent if span.parent_id == whole.identity.span_id]
    assert {step.identity.trace_id for step in steps} == {whole.identity.trace_id}
    [call] = named(world, "call")
    assert call.links == [batch.identity]
    assert batch in steps
    assert call.end_ns - call.start_ns == pytest.approx(0.1 * NS, abs=1_000)
    own = [step for step in steps if step is not batch]
    for before, after in pairwise(own):
        assert before.end_ns <= after.start_ns
    assert whole.start_ns <= own[0].start_ns
    assert own[-1].end_ns <= whole.end_ns
    assert len({span.identity.span_id for span in world.spans.sent}) == len(world.spans.sent)


@virtual_time
async def test_the_server_and_the_readers_of_the_output_are_told_of_the_trace() -> None:
    world, server = World().with_traces(sample=0.0), Server()
    world.model.script = server
    await later(world, of(SAMPLED))
    [whole], [batch] = named(world, "process refs"), named(world, "predict rows")
    assert server.told == [f"00-{TRACE}-{batch.identity.span_id:016x}-01"]
    header = ("traceparent", f"00-{TRACE}-{whole.identity.span_id:016x}-01".encode())
    assert world.sink.headers["predictions"][0] == [[header]] * 3


@virtual_time
async def test_the_trace_of_an_object_that_is_not_sampled_is_passed_on_and_no_span_is_made() -> (
    None
):
    world, server = World().with_traces(sample=0.0), Server()
    world.model.script = server
    await later(world, of(UNSAMPLED), of(UNSAMPLED, traceparent=None, key="y.csv"))
    assert world.spans.sent == []
    assert set(server.told) == {None}
    header = ("traceparent", UNSAMPLED.encode())
    assert world.sink.headers["predictions"][0] == [[header]] * 3 + [[]] * 3


@virtual_time
async def test_without_traces_nothing_is_passed_on() -> None:
    world = World()
    await later(world, of(SAMPLED))
    assert world.spans.sent == []
    assert world.sink.headers["predictions"][0] == [[]] * 3
    assert b"penstock_spans" not in generate_latest(world.telemetry.registry)


@virtual_time
async def test_a_batch_is_linked_to_its_sampled_objects_and_says_how_many_it_has() -> None:
    world = World(partitions=4).with_traces(sample=0.0)
    window = WindowLimits(max_rows=1_000, max_bytes=1 << 20, max_wait_s=5.0)
    world.with_settings(window=window, max_objects=500, fetchers=500)
    async with running(world):
        for number in range(3 * MOST_LINKS):
            caller = f"00-{number + 1:032x}-{SPAN}-0{number % 2}"
            world.announce(f"{number}.csv", csv(1), partition=number % 4, traceparent=caller)
        await until(lambda: len(world.spans.sent) > 0, within_s=600.0)
    batches = named(world, "predict rows")
    largest = max(batches, key=lambda span: int(span.attributes["penstock.objects"]))
    assert largest.attributes["penstock.objects"] == largest.attributes["penstock.rows"]
    assert len(largest.links) == MOST_LINKS
    assert int(largest.attributes["penstock.objects"]) > 2 * MOST_LINKS
    wholes = {span.identity for span in named(world, "process refs")}
    assert set(largest.links) <= wholes
    assert (largest.identity.trace_id, largest.parent_id) == largest.links[0]


@virtual_time
async def test_an_object_with_an_error_is_always_sampled_without_the_servers_part() -> None:
    world = World().with_traces(sample=0.0)

    async def refuses(payloads: Sequence[Payload]) -> Answers:
        raise Rejected("model_rejected", "oops is no number")

    world.model.script = refuses
    await later(world, of(UNSAMPLED), of(UNSAMPLED, data=None, key="gone.csv"))
    [refused, gone] = named(world, "process refs")
    assert refused.error == "oops is no number"
    assert refused.attributes["error.type"] == "model_rejected"
    assert gone.attributes["error.type"] == "not_found"
    assert {span.attributes["penstock.sampled_for"] for span in (refused, gone)} == {"error"}
    assert named(world, "predict rows") == []


@virtual_time
async def test_each_try_of_a_request_is_a_span_with_its_own_error() -> None:
    world, server = World().with_traces(sample=0.0), Server()

    async def fails_once(payloads: Sequence[Payload]) -> Answers | None:
        await server(payloads)
        if len(server.told) == 1:
            raise Unreachable("nobody is there")
        return None

    world.model.script = fails_once
    await later(world, of(SAMPLED))
    failed, answered = named(world, "predict rows")
    assert (failed.error, answered.error) == ("nobody is there", None)
    assert failed.attributes["error.type"] == "Unreachable"
    assert [text and text[36:52] for text in server.told] == [
        f"{span.identity.span_id:016x}" for span in (failed, answered)
    ]


@virtual_time
async def test_the_slowest_are_sampled_at_their_end() -> None:
    world = World().with_traces(sample=0.0, slowest=0.01)

    async def slow_once(payloads: Sequence[Payload]) -> Answers | None:
        await asyncio.sleep(5 if len(world.model.calls) == 500 else 0.01)
        return None

    world.model.script = slow_once
    world.with_settings(window=WindowLimits(1, 1 << 20, 0.01), callers=1)
    for number in range(600):
        caller = f"00-{number + 1:032x}-{SPAN}-00"
        world.announce(f"{number}.csv", csv(1), traceparent=caller)
    async with running(world):
        await until(lambda: world.next_offset() >= 600, within_s=600.0)
    chosen = {span.identity.trace_id for span in named(world, "process refs")}
    assert 0 < len(chosen) <= 6
    assert {span.attributes["penstock.sampled_for"] for span in named(world, "process refs")} == {
        "slow"
    }


@virtual_time
async def test_two_workers_choose_the_same_objects() -> None:
    async def chosen() -> set[int]:
        world = World().with_traces(sample=0.1)
        for number in range(1, 301):
            caller = f"00-{f'{number * 211:04x}' * 8}-{SPAN}-00"
            world.announce(f"{number}.csv", csv(1), traceparent=caller)
        await run_to_end(world, 300)
        return {span.identity.trace_id for span in named(world, "process refs")}

    first = await chosen()
    assert first == await chosen()
    assert 10 < len(first) < 60


@virtual_time
async def test_a_cloud_event_has_its_trace_as_an_attribute() -> None:
    world = World().with_traces(sample=0.0)
    world.objects.put("b", "x.csv", csv(1))
    data = {"bucket": "b", "key": "x.csv"}
    event = {"specversion": "1.0", "type": "t", "traceparent": SAMPLED, "data": data}
    world.source.append(orjson.dumps(event))
    await run_to_end(world, 1)
    assert [f"{span.identity.trace_id:032x}" for span in named(world, "process refs")] == [TRACE]


@virtual_time
async def test_without_a_caller_each_object_has_a_trace_of_its_own() -> None:
    world = World().with_traces(sample=1.0)
    await later(world, of("malformed"), of("malformed", key="y.csv"))
    first, second = named(world, "process refs")
    assert first.identity.trace_id != second.identity.trace_id
    assert first.parent_id == second.parent_id == 0


@virtual_time
async def test_exactly_once_has_the_same_spans() -> None:
    world = World(exactly_once=True).with_traces(sample=1.0)
    await later(world, of(SAMPLED))
    assert len(named(world, "process refs")) == len(named(world, "predict rows")) == 1
