"""A shadow model is asked what the live one was, and the live line never notices."""

import asyncio
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import orjson
import pytest
from jsonschema import Draft202012Validator

from penstock import config
from penstock.adapters.memory import MemorySink
from penstock.config.model_sections import NamedModel
from penstock.core.comparing.comparison import Agreement
from penstock.core.rows.payload import Payload
from penstock.errors import Fatal, Poison, Transient, Unreachable
from penstock.messages.json_schemas import documents
from penstock.messages.shadow import Disagreement, Summary, decode_shadow
from penstock.ports import Answers, Outgoing
from penstock.settings.routes import shadow_of
from penstock.tools.simulation.region_workers import Script, sums
from penstock.tools.simulation.virtual_time import virtual_time
from tests.support.pipelines import World, csv, run_to_end, running, until

TOPIC = "predictions.shadow"


def shadow_records(world: World, kind: str) -> list[dict[str, Any]]:
    found = [
        orjson.loads(value)
        for records in world.shadow_sink.topics[TOPIC].values()
        for _, value in records
    ]
    return [record for record in found if record["kind"] == kind]


def totals(world: World) -> dict[str, int]:
    summaries = shadow_records(world, "summary")
    names = ("rows", "agreed", "dropped", "unanswered", "unsent")
    return {name: sum(summary[name] for summary in summaries) for name in names}


def unsent_why(world: World) -> Counter[str]:
    why = Counter[str]()
    for summary in shadow_records(world, "summary"):
        why.update(summary["unsent_why"])
    return why


async def off_by_one_in_ten(payloads: Sequence[Payload]) -> Answers:
    """Another sum where it is divisible by 20: each tenth row of `csv`."""
    said = sums(payloads)
    values = [
        b'{"sum":-1}' if orjson.loads(value)["sum"] % 20 == 0 else value for value in said.values
    ]
    return Answers(values, {})


async def answered(script: Script, objects: int = 20, **changes: Any) -> World:
    """The world after all its rows, with a shadow that answers by the script."""
    world = World().with_shadow(**changes)
    world.shadow.script = script
    feed(world, objects)
    await run_to_end(world, objects)
    return world


def feed(world: World, objects: int = 20, rows: int = 50) -> None:
    for number in range(objects):
        world.announce(f"s{number % 4}/{number}.csv", csv(rows), stream=f"s{number % 4}")


@virtual_time
async def test_both_answers_of_each_row_on_which_they_disagree() -> None:
    world = await answered(off_by_one_in_ten)
    wrong = shadow_records(world, "disagreement")
    assert len(wrong) == 100
    by_id = {record["id"]: record for record in world.records()}
    for one in wrong:
        record = by_id[one["id"]]
        assert one["row"] == record["row"]
        assert one["stream"] == record["stream"]
        assert one["object"] == record["object"]
        assert one["source"] == record["source"]
        assert one["live"] == {"model": "rows", "prediction": record["prediction"]}
        assert one["shadow"] == {"model": "v2", "prediction": {"sum": -1}}


@virtual_time
async def test_a_summary_has_the_agreement_of_all_rows_and_of_each_stream() -> None:
    world = await answered(off_by_one_in_ten)
    assert totals(world) == {
        "rows": 1000, "agreed": 900, "dropped": 0, "unanswered": 0, "unsent": 0,
    }  # fmt: skip
    streams: dict[str, tuple[int, int]] = {}
    for summary in shadow_records(world, "summary"):
        assert (summary["live"], summary["shadow"]) == ({"name": "rows"}, {"name": "v2"})
        for name, (rows, agreed) in summary["streams"].items():
            before = streams.get(name, (0, 0))
            streams[name] = (before[0] + rows, before[1] + agreed)
    assert streams == {f"s{number}": (250, 225) for number in range(4)}


@virtual_time
async def test_what_compares_is_the_tolerance_and_the_pointers() -> None:
    async def nearly(payloads: Sequence[Payload]) -> Answers:
        return Answers(
            [b'{"sum":%g}' % (orjson.loads(v)["sum"] + 4) for v in sums(payloads).values], {}
        )

    world = await answered(nearly, agreement=Agreement(5.0))
    assert totals(world)["agreed"] == 1000


@virtual_time
async def test_a_share_of_the_batches_is_copied() -> None:
    world = World().with_shadow(percent=25.0)
    for number in range(400):
        world.announce(f"{number}.csv", csv(64))
    await run_to_end(world, 400)
    assert 60 <= len(world.shadow.calls) <= 140
    assert totals(world)["rows"] == 64 * len(world.shadow.calls)


@virtual_time
async def test_none_is_copied_of_zero_percent() -> None:
    world = World().with_shadow(percent=0.0)
    feed(world)
    await run_to_end(world, 20)
    assert not world.shadow.calls


async def hang(_: Sequence[Payload]) -> Answers | None:
    await asyncio.get_running_loop().create_future()
    return None


async def away(_: Sequence[Payload]) -> Answers | None:
    raise Unreachable("nobody there")


async def ill(_: Sequence[Payload]) -> Answers | None:
    raise Transient("ill")


async def refuses(_: Sequence[Payload]) -> Answers | None:
    raise Poison("model_rejected", "no")


async def unknown(_: Sequence[Payload]) -> Answers | None:
    raise Fatal("no such model")


async def broken(_: Sequence[Payload]) -> Answers | None:
    raise ZeroDivisionError


async def one_too_few(payloads: Sequence[Payload]) -> Answers | None:
    return Answers(sums(payloads).values[1:], {})


async def slow(_: Sequence[Payload]) -> Answers | None:
    await asyncio.sleep(10.0)
    return None


async def when_live_alone(objects: int = 60) -> tuple[list[Any], float]:
    """The records, and when the last of them was there."""
    return await when_live(World(), objects)


async def when_live(world: World, objects: int = 60) -> tuple[list[Any], float]:
    loop = asyncio.get_running_loop()
    world.model.script = _takes_a_while
    begin_s = loop.time()
    async with running(world):
        for number in range(objects):
            world.announce(f"{number}.csv", csv(40), stream=f"s{number % 3}")
            await asyncio.sleep(0.02)
        await until(lambda: world.next_offset() >= objects)
        took_s = loop.time() - begin_s
    return world.records(), took_s


async def _takes_a_while(_: Sequence[Payload]) -> Answers | None:
    await asyncio.sleep(0.015)
    return None


@pytest.mark.parametrize(
    "script", [hang, away, ill, refuses, unknown, broken, one_too_few, slow, off_by_one_in_ten]
)
@virtual_time
async def test_whatever_it_does_the_live_answers_and_their_time_are_the_same(script: Any) -> None:
    alone, alone_s = await when_live_alone()
    world = World().with_shadow(rows=200)
    world.shadow.script = script
    records, took_s = await when_live(world)
    assert records == alone
    assert took_s == pytest.approx(alone_s, abs=1e-9)


@pytest.mark.parametrize("script", [hang, slow])
@virtual_time
async def test_a_stop_waits_for_it_a_moment_at_most(script: Any) -> None:
    world = World().with_shadow()
    world.shadow.script = script
    world.shadow_sink.hold = True
    loop = asyncio.get_running_loop()
    async with running(world):
        feed(world)
        await until(lambda: world.next_offset() >= 20)
        began_s = loop.time()
    assert loop.time() - began_s < 1.5


@virtual_time
async def test_what_finds_no_room_is_counted_and_nothing_more_is_held() -> None:
    world = World().with_shadow(rows=300)
    world.shadow.script = hang
    async with running(world) as pipeline:
        feed(world, objects=100)
        await until(lambda: world.next_offset() >= 100)
        assert pipeline.wiring.shadow is not None
        assert 200 <= pipeline.wiring.shadow.waiting_rows <= 300
    assert totals(world)["dropped"] >= 5000 - 300


@pytest.mark.parametrize("script", [hang, slow, off_by_one_in_ten])
@virtual_time
async def test_each_row_that_was_copied_is_compared_or_counted_as_missing(script: Any) -> None:
    world = await answered(script, rows=300)
    told = totals(world)
    assert told["rows"] + told["dropped"] + told["unanswered"] == 1000


@virtual_time
async def test_what_it_does_not_answer_is_counted_and_told() -> None:
    world = World().with_shadow()
    world.shadow.script = away
    async with running(world) as pipeline:
        feed(world)
        await until(lambda: world.next_offset() >= 20)
        assert pipeline.wiring.shadow is not None
        assert pipeline.wiring.shadow.away_s is not None
        world.shadow.script = None
        await asyncio.sleep(60.0)
        assert pipeline.wiring.shadow.away_s is None
    told = totals(world)
    assert told["unanswered"] > 0
    assert told["rows"] + told["unanswered"] == 1000
    assert told["agreed"] == told["rows"]


@virtual_time
async def test_a_row_that_one_of_them_rejects_is_a_disagreement_and_of_both_none() -> None:
    world = World().with_shadow()

    def rejecting(*rows: int) -> Any:
        async def script(payloads: Sequence[Payload]) -> Answers:
            said = sums(payloads)
            values = [b"null" if row in rows else v for row, v in enumerate(said.values)]
            return Answers(values, {row: f"no {row}" for row in rows})

        return script

    world.model.script, world.shadow.script = rejecting(3, 4), rejecting(4, 5)
    world.announce("a.csv", csv(10))
    await run_to_end(world, 1)
    by_row = {record["row"]: record for record in shadow_records(world, "disagreement")}
    assert by_row.keys() == {3, 5}
    assert by_row[3]["live"] == {"model": "rows", "prediction": None, "error": "no 3"}
    assert by_row[5]["shadow"] == {"model": "v2", "prediction": None, "error": "no 5"}


@virtual_time
async def test_it_is_asked_in_requests_of_what_its_server_takes() -> None:
    world = World().with_shadow(call_rows=30)
    world.shadow.most_rows = 20
    feed(world)
    await run_to_end(world, 20)
    assert max(sum(p.rows for p in call) for call in world.shadow.calls) == 20
    assert totals(world)["agreed"] == 1000


class FailingSink(MemorySink):
    """Takes what it is sent, and fails so many times."""

    failures = 0

    async def send(self, outgoing: Outgoing) -> Any:
        report = await super().send(outgoing)
        if self.failures:
            self.failures -= 1
            raise Fatal("the broker did not take a batch")
        return report


@virtual_time
async def test_a_summary_that_is_sent_again_is_the_same_one() -> None:
    world = World().with_shadow()
    sink = FailingSink()
    sink.failures = 3
    world.shadow_sink = sink
    async with running(world):
        feed(world)
        await asyncio.sleep(60.0)
    summaries = shadow_records(world, "summary")
    assert len(summaries) > 1
    assert len({summary["id"] for summary in summaries}) == 1
    assert all(summary == summaries[0] for summary in summaries)
    assert summaries[0]["rows"] == 1000


@virtual_time
async def test_disagreements_that_kafka_does_not_take_are_counted() -> None:
    world = World().with_shadow()
    sink = FailingSink()
    sink.failures = 1
    world.shadow_sink = sink
    world.shadow.script = off_by_one_in_ten
    async with running(world):
        feed(world)
        await asyncio.sleep(60.0)
    assert totals(world)["unsent"] == 100
    assert unsent_why(world) == {"unwritten": 100}


@virtual_time
async def test_a_disagreement_longer_than_a_record_has_none() -> None:
    world = World().with_shadow()
    world.shadow_sink = MemorySink(record_bytes=700)

    async def long(payloads: Sequence[Payload]) -> Answers:
        return Answers([b'"%b"' % (b"x" * 700)] * len(sums(payloads).values), {})

    world.shadow.script = long
    world.announce("a.csv", csv(10))
    async with running(world):
        await asyncio.sleep(60.0)
    assert not shadow_records(world, "disagreement")
    assert totals(world)["unsent"] == 10
    assert unsent_why(world) == {"long": 10}


@virtual_time
async def test_without_a_topic_to_write_to_the_live_line_goes_on() -> None:
    world = World().with_shadow()
    world.shadow_sink = MemorySink(partitions=0)
    feed(world)
    await run_to_end(world, 20)
    assert world.published() == 1000


@virtual_time
async def test_many_streams_with_long_names_still_have_a_summary() -> None:
    world = World().with_shadow()
    world.shadow_sink = MemorySink(record_bytes=3_000)
    for number in range(50):
        world.announce(f"{number}.csv", csv(10), stream="s" * 100 + str(number))
    await run_to_end(world, 50)
    (summary,) = shadow_records(world, "summary")
    assert summary["rows"] == 500
    assert sum(rows for rows, _ in summary["streams"].values()) == 500
    assert len(summary["streams"]) == 11


@virtual_time
async def test_what_is_written_is_as_its_schema_says() -> None:
    world = await answered(off_by_one_in_ten, objects=2)
    validator = Draft202012Validator(documents()["shadow.v1.schema.json"])
    for kind in ("summary", "disagreement"):
        for record in shadow_records(world, kind):
            validator.validate(record)
            assert isinstance(decode_shadow(orjson.dumps(record)), Disagreement | Summary)


@virtual_time
async def test_batches_of_another_model_get_no_copy() -> None:
    world = World().with_shadow()
    settings = world.settings
    world.with_models(["b"])
    world.settings = replace(world.settings, shadow=settings.shadow)
    for number in range(10):
        world.announce(f"{number}.csv", csv(10), model="b" if number % 2 else None)
    await run_to_end(world, 10)
    assert totals(world)["rows"] == 50


@pytest.mark.parametrize(("own", "most"), [(4 << 20, 128 << 10), (1_000, 1_000)])
def test_a_shadow_s_answers_are_small_enough_to_be_read_beside_live_work(
    own: int, most: int
) -> None:
    live = config.Model(shadow=config.Shadow(model="other"))
    limits = config.Limits(answer_bytes_per_row=own)
    shadow = shadow_of(config.Config(model=live, models=[NamedModel(name="other")], limits=limits))
    assert shadow is not None
    assert shadow[1].limits.answer_bytes_per_row == most
    assert shadow[1].limits.buffer_bytes == config.Shadow(model="other").buffer_bytes
