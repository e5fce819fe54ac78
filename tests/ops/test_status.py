"""What a worker tells of itself: as JSON, and to people."""

import asyncio
import base64
import hashlib
import logging
import re
import socket
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from itertools import cycle, repeat
from typing import Any

import aiohttp
import pytest
from aiohttp import web

from penstock import config
from penstock.adapters.memory import MemoryObjects
from penstock.core.diagnosis.steady import HOLD_S
from penstock.core.diagnosis.streams import NEWS_MS
from penstock.core.progress.line_stop import LineLimits
from penstock.core.routing.model_routes import ModelRoute
from penstock.core.rows.payload import Payload
from penstock.core.window.window import WindowLimits
from penstock.errors import HungUp, Overloaded, Unreachable
from penstock.failures.outage import FAILS_S
from penstock.ops.flow import MINUTE_S, OVER_S, SAMPLE_S
from penstock.ops.http_server import serving
from penstock.ops.page.page import DOCUMENT, Page
from penstock.ops.service_answers import (
    ANSWER_S,
    IDLE_S,
    LAG_EVERY_S,
    MODEL_EVERY_S,
    SILENT_S,
    ServiceAnswers,
)
from penstock.ops.status import Status
from penstock.ops.worker_page import Readiness, WorkerSource
from penstock.pipeline.life import Pipeline
from penstock.ports import PROBE_KEY, Answers, Location, Where
from penstock.stages.reject import RECENT
from penstock.tools.simulation.region_workers import MemoryModel
from penstock.tools.simulation.virtual_time import virtual_time
from tests.support.memory import MemorySource
from tests.support.pipelines import World, csv, running, until

HOSTILE = "</script><img src=x onerror=alert(1)>"


@asynccontextmanager
async def looking(world: World) -> AsyncIterator[tuple[Pipeline, Status]]:
    """A pipeline that runs, and its status."""
    async with running(world) as pipeline:
        services = ServiceAnswers(pipeline, world.model)
        async with services.watching():
            yield pipeline, Status(pipeline, world.telemetry, services)


@virtual_time
async def test_the_status_says_where_every_partition_is() -> None:
    world = World(partitions=2)
    world.announce("a.csv", csv(3))
    async with looking(world) as (_, status):
        await until(lambda: world.next_offset() == 1)
        world.sink.hold = True
        world.announce("b.csv", csv(1), partition=1)
        await until(lambda: world.published(1) == 1)
        await asyncio.sleep(LAG_EVERY_S)
        seen = status.look()
        world.sink.deliver()
    assert seen["assignments"] == [
        {
            "topic": "refs", "partition": 0, "generation": 1, "next_offset": 1, "committed": 1,
            "committed_per_s": None, "lag": 0, "owed": 0, "held_back": None, "is_stopped": False,
            "stopped": [],
        },
        {
            "topic": "refs", "partition": 1, "generation": 2, "next_offset": 0, "committed": 0,
            "committed_per_s": None, "lag": 1, "owed": 1, "held_back": None, "is_stopped": False,
            "stopped": [],
        },
    ]  # fmt: skip
    assert (seen["input_topic"], seen["output_topic"]) == ("refs", "predictions")
    assert seen["window"] == {
        "rows": 0, "streams": 0, "max_rows": 64, "max_wait_ms": 10, "calls": 0, "most_calls": 4,
    }  # fmt: skip
    assert seen["budget"]["spent_bytes"] > 0
    assert seen["model"].pop("asked_s") <= MODEL_EVERY_S
    assert seen["model"].pop("answers_for_s") >= 0.0
    assert seen["model"] == {
        "name": "rows",
        "version": None,
        "answers": True,
        "breaker_open": False,
        "calls_allowed": 4,
    }
    assert (seen["counters"]["rows"], seen["counters"]["records"]) == (3, 2)


@virtual_time
async def test_of_several_models_each_is_told_with_its_calls_and_rows() -> None:
    async def overloaded(payloads: Sequence[Payload]) -> Answers | None:
        raise Overloaded("queue full")

    world = World().with_models(
        ["a", "b"], ModelRoute(("a",), stream="a"), ModelRoute(("b",), stream="b")
    )
    world.models["b"].script = overloaded
    world.announce("1.csv", csv(3), stream="a")
    world.announce("2.csv", csv(4), stream="s")
    world.announce("3.csv", csv(5), stream="b")
    async with looking(world) as (_, status):
        await until(lambda: world.next_offset() == 2)
        await asyncio.sleep(60.0)
        seen = status.look()["models"]
        world.models["b"].script = None
        await until(lambda: world.next_offset() == 3)
        healed = status.look()["models"][2]
    assert [(one["name"], one["rows"], one["calls"]["answered"]) for one in seen] == [
        ("rows", 4, 1), ("a", 3, 1), ("b", 0, 0),
    ]  # fmt: skip
    assert [one["breaker_open"] for one in seen] == [False, False, True]
    assert seen[2]["calls"]["overloaded"] > 1
    assert (healed["rows"], healed["breaker_open"], healed["answers"]) == (5, False, True)


@virtual_time
async def test_the_status_says_which_line_stopped_and_why() -> None:
    world = World(partitions=2).with_settings(line=LineLimits(0.0, 1))
    for number in range(3):
        world.announce(f"{number}.csv", stream=HOSTILE)
    async with looking(world) as (pipeline, status):
        await until(lambda: len(pipeline.stopped) == 1)
        seen = status.look()
    (stopped,) = seen["assignments"][0]["stopped"]
    assert stopped.pop("message")
    assert stopped.pop("since_ms") >= 0
    assert stopped == {
        "topic": "refs",
        "partition": 0,
        "stream": HOSTILE,
        "offset": 1,
        "object_index": 0,
        "row": None,
        "code": "not_found",
        "limit": "2 of its objects failed in a row, limits.dlq_consecutive is 1",
        "record_ms": 0,
    }
    assert seen["assignments"][1]["stopped"] == []
    assert seen["rejected"] == {"not_found": 1}


@virtual_time
async def test_the_status_tells_the_last_rejections_and_says_in_words_what_is_wrong() -> None:
    world = World()
    async with looking(world) as (_, status):
        assert status.look()["problems"] == []
        world.announce("a.csv", b"1,2\n3,oops\n", stream="cam-7")
        for number in range(RECENT + 5):
            world.announce(f"gone-{number}.csv", stream="cam-8")
        await until(lambda: world.next_offset() == RECENT + 6)
        seen = status.look()
        await asyncio.sleep(NEWS_MS / 1000)
        later = status.look()
    assert len(seen["letters"]) == RECENT
    newest = seen["letters"][0]
    assert newest.pop("message")
    assert 0 <= seen["now_ms"] - newest.pop("at_ms") < 1_000
    assert newest == {
        "stream": "cam-8", "code": "not_found", "topic": "refs", "partition": 0,
        "offset": RECENT + 5, "object_index": 0, "row": None,
    }  # fmt: skip
    [problem] = seen["problems"]
    assert problem["what"].startswith("cam-8: its objects are refused, not_found: ")
    assert (later["problems"], len(later["letters"])) == ([], RECENT)


@virtual_time
async def test_rates_are_those_of_the_last_seconds_however_seldom_one_looks() -> None:
    world = World()
    async with looking(world) as (_, status):
        with status.sampling():
            await asyncio.sleep(5 * MINUTE_S)
            world.announce("a.csv", csv(60))
            await asyncio.sleep(5.0)
            rates = status.look()["rates"]
            assert rates["over_s"] <= OVER_S + SAMPLE_S
            assert rates["rows_per_s"] == pytest.approx(60 / rates["over_s"], rel=0.05)
            await asyncio.sleep(60.0)
            assert status.look()["rates"]["rows_per_s"] == 0


@virtual_time
async def test_kafka_is_told_to_be_away_when_it_takes_no_commit() -> None:
    world = World()

    async def away() -> None:
        raise Unreachable("refused")

    world.source.on_commit = away
    async with looking(world) as (_, status):
        world.announce("a.csv", csv(1))
        await asyncio.sleep(20.0)
        [outage] = status.look()["outages"]
        assert outage["service"] == "Kafka broker"
        assert outage["away_s"] == pytest.approx(20.0, abs=2.0)
        world.source.on_commit = None
        await until(lambda: world.next_offset() == 1)
        assert status.look()["outages"] == []


@virtual_time
async def test_kafka_is_told_to_be_away_though_there_is_nothing_to_commit() -> None:
    world = World()
    world.source = SilentSource(1)
    async with looking(world) as (_, status):
        await asyncio.sleep(20.0)
        [outage] = status.look()["outages"]
    assert outage["service"] == "Kafka broker"
    assert outage["away_s"] == pytest.approx(20.0, abs=2.0)


@virtual_time
async def test_the_log_says_which_generation_a_partition_is(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO, logger="penstock")
    async with running(World(partitions=2)):
        await asyncio.sleep(1.0)
    assert "assigned partitions [refs/0, refs/1] as generation 1 to 2" in caplog.messages


@virtual_time
async def test_a_service_that_is_away_is_told_with_its_time() -> None:
    world = World()

    async def away(payloads: Sequence[Payload]) -> Answers | None:
        raise Unreachable("refused")

    world.model.script = away
    world.announce("a.csv", csv(1))
    async with looking(world) as (_, status):
        await asyncio.sleep(20.0)
        [outage] = status.look()["outages"]
        assert outage["service"] == "model server"
        assert outage["away_s"] == pytest.approx(20.0, abs=1.0)
        world.model.script = None
        await until(lambda: world.next_offset() == 1)
        assert status.look()["outages"] == []


@virtual_time
async def test_a_model_that_hangs_up_on_rows_only_is_told_as_just_that(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """It answers the probes without rows all the time, so it is neither away nor well."""
    world = World()

    async def hangs_up_on_rows(payloads: Sequence[Payload]) -> Answers | None:
        if payloads:
            error = HungUp("the server hung up")
            error.sent = "4 rows as application/json, 9 bytes: [[1],[2]]"
            raise error
        return Answers([], {})

    world.model.script = hangs_up_on_rows
    world.announce("a.csv", csv(4))
    async with looking(world) as (_, status):
        await asyncio.sleep(10.0)
        [outage] = status.look()["outages"]
        assert outage["service"] == "model server"
        says = "answers a question without rows (OPTIONS, health or an empty batch), and closes the"
        for said in (says, "4 rows as application/json", "the server hung up"):
            assert said in outage["why"], outage
        await asyncio.sleep(20.0)
        lines = [message for message in caplog.messages if says in message]
        assert (len(lines), caplog.text.count("answers again")) == (1, 0), caplog.text
        world.model.script = None
        await until(lambda: world.next_offset() == 1, within_s=120.0)
        world.announce("b.csv", csv(1))
        await until(lambda: world.next_offset() == 2)
        assert status.look()["outages"] == []


@virtual_time
async def test_one_row_that_a_new_server_hangs_up_on_is_no_outage_for_long() -> None:
    """While it is the only row, nothing else is known of the server; then nobody says it again."""
    world = World()

    async def hangs_up_on_rows(payloads: Sequence[Payload]) -> Answers | None:
        if payloads:
            raise HungUp("the server hung up")
        return Answers([], {})

    world.model.script = hangs_up_on_rows
    world.announce("a.csv", csv(1))
    async with looking(world) as (_, status):
        await until(lambda: world.next_offset() == 1, within_s=120.0)
        await asyncio.sleep(FAILS_S + 1.0)
        assert status.look()["outages"] == []


@virtual_time
async def test_a_model_that_was_not_asked_yet_is_not_said_to_be_silent() -> None:
    world = World()
    world.model = model = HungModel(is_server=True)
    model.works.clear()
    async with running(world) as pipeline:
        services = ServiceAnswers(pipeline, world.model)
        readiness = Readiness(pipeline, services, 8.0)
        assert readiness.why_not() == "the model has not answered yet\n"
        async with services.watching():
            await asyncio.sleep(2 * SILENT_S)
            assert readiness.why_not() == "the model does not answer\n"


@virtual_time
async def test_a_worker_whose_work_does_not_move_is_not_ready() -> None:
    """Nothing is known to be away, so nothing but a person will move it."""
    world = World().with_settings(stall_s=200.0)

    async def hangs(payloads: Sequence[Payload]) -> Answers | None:
        if payloads:
            await asyncio.Event().wait()
        return None

    world.model.script = hangs
    async with running(world) as pipeline:
        services = ServiceAnswers(pipeline, world.model)
        readiness = Readiness(pipeline, services, 8.0)
        async with services.watching(), readiness.watching():
            await asyncio.sleep(150.0)
            assert readiness.why_not() is None  # nothing to do
            world.announce("a.csv", csv(1))
            await asyncio.sleep(90.0)
            assert readiness.why_not() is None
            await asyncio.sleep(20.0)
            why_not = readiness.why_not()
    assert why_not is not None
    assert "refs/0 has not moved for 1" in why_not
    assert "predict holds offset 0" in why_not


class HungObjects(MemoryObjects):
    """A store that accepts requests, and does not answer those that hang."""

    def __init__(self) -> None:
        super().__init__()
        self.hangs: Callable[[str], bool] = lambda _: True
        self.works = asyncio.Event()
        self.works.set()
        self.asked: list[str] = []

    async def open(self, location: Location) -> Any:
        self.asked.append(location.key)
        if self.hangs(location.key):
            await self.works.wait()
        return await super().open(location)


class HungModel(MemoryModel):
    """`is_server`: questions without rows are not answered either."""

    def __init__(self, *, is_server: bool) -> None:
        super().__init__()
        self.is_server = is_server
        self.works = asyncio.Event()
        self.works.set()

    async def predict(self, payloads: Sequence[Payload]) -> Answers:
        await self.works.wait()
        return await super().predict(payloads)

    async def ready(self) -> bool:
        if self.is_server:
            await self.works.wait()
        return True


@asynccontextmanager
async def watched(world: World) -> AsyncIterator[tuple[Status, Readiness]]:
    """After its first answer."""
    async with running(world) as pipeline:
        services = ServiceAnswers(pipeline, world.model)
        async with services.watching():
            world.announce("first.csv", csv(1))
            await until(lambda: world.next_offset() == 1)
            status = Status(pipeline, world.telemetry, services)
            yield status, Readiness(pipeline, services, 8.0)


def told(status: Status) -> list[tuple[str, str | None]]:
    return [(problem["kind"], problem["service"]) for problem in status.look()["problems"]]


@virtual_time
async def test_a_store_that_accepts_and_never_answers_is_away_after_five_seconds() -> None:
    world = World()
    world.objects = store = HungObjects()
    async with watched(world) as (status, readiness):
        store.works.clear()
        world.announce("a.csv", csv(1))
        await asyncio.sleep(4.0)
        assert told(status) == []
        await asyncio.sleep(SILENT_S)
        assert told(status) == [("away", "object store")]
        # It is away since the request, not since this was noticed.
        assert status.look()["outages"][0]["away_s"] >= SILENT_S
        assert "the object store has not answered" in str(readiness.why_not())
        store.works.set()
        await until(lambda: world.next_offset() == 2)
        await asyncio.sleep(HOLD_S)
        assert (told(status), readiness.why_not()) == ([], None)


@virtual_time
async def test_an_idle_worker_asks_its_store_now_and_then() -> None:
    world = World()
    world.objects = store = HungObjects()
    async with watched(world) as (status, readiness):
        await asyncio.sleep(60.0)
        assert 4 <= len(store.asked) - 1 <= 6
        store.works.clear()
        await asyncio.sleep(IDLE_S + SILENT_S + 2.0)
        assert told(status) == [("away", "object store")]
        store.works.set()
        await asyncio.sleep(SILENT_S + HOLD_S)
        assert (told(status), readiness.why_not()) == ([], None)


@virtual_time
async def test_one_object_that_does_not_come_is_no_outage() -> None:
    world = World()
    world.objects = store = HungObjects()
    async with watched(world) as (status, readiness):
        store.hangs = lambda key: key == "a.csv"
        store.works.clear()
        world.announce("a.csv", csv(1))
        for _ in range(20):
            await asyncio.sleep(1.0)
            assert ("away", "object store") not in told(status)
        assert readiness.why_not() is None


@virtual_time
@pytest.mark.parametrize(("is_server", "kind"), [(True, "away"), (False, "unanswered_rows")])
async def test_a_model_that_accepts_and_never_answers_is_away_after_five_seconds(
    is_server: bool, kind: str
) -> None:
    world = World()
    world.model = model = HungModel(is_server=is_server)
    async with watched(world) as (status, readiness):
        model.works.clear()
        world.announce("a.csv", csv(1))
        await asyncio.sleep(4.0)
        assert told(status) == []
        await asyncio.sleep(SILENT_S)
        assert told(status) == [(kind, "model server")]
        assert readiness.why_not() is not None
        model.works.set()
        await until(lambda: world.next_offset() == 2)
        await asyncio.sleep(MODEL_EVERY_S + HOLD_S)
        assert (told(status), readiness.why_not()) == ([], None)


@virtual_time
@pytest.mark.parametrize("service", ["object store", "model server"])
async def test_a_service_that_hangs_under_load_is_all_that_is_told_until_its_traces_are_gone(
    service: str,
) -> None:
    world = World()
    world.objects, world.model = store, model = HungObjects(), HungModel(is_server=True)
    works = store.works if service == "object store" else model.works
    lines = list[tuple[str, str | None]]()
    async with watched(world) as (status, _):
        with status.sampling():
            for number in range(800):
                if number in (200, 500):
                    works.clear() if number == 200 else works.set()
                now_ms = world.clock.wall_ms()
                stream = f"cam-{number % 4}"
                world.announce(f"{number}.csv", csv(1), stream=stream, timestamp_ms=now_ms)
                await asyncio.sleep(0.1)
                if number % 10 == 0:
                    lines += told(status)
                if number == 530:
                    # Nor are rows taken for dear that waited for the model.
                    assert status.look()["calls"]["times"]["mean_s"] < 0.01
    assert lines.count(("away", service)) >= 22
    assert {kind for kind, _ in lines} <= {"away", "backlog"}


@virtual_time
async def test_a_model_that_was_slow_once_is_soon_away_a_quarter_of_an_hour_later() -> None:
    world = World()
    world.model = model = HungModel(is_server=True)
    async with watched(world) as (status, _):
        model.works.clear()
        world.announce("slow.csv", csv(1))
        await asyncio.sleep(60.0)
        model.works.set()
        for number in range(15):
            await asyncio.sleep(60.0)
            world.announce(f"{number}.csv", csv(1))
        await asyncio.sleep(10.0)
        model.works.clear()
        world.announce("last.csv", csv(1))
        await asyncio.sleep(4.0 + SILENT_S)
        assert told(status) == [("away", "model server")]


@virtual_time
@pytest.mark.parametrize(("is_server", "kind"), [(True, "away"), (False, "unanswered_rows")])
async def test_a_model_that_hangs_again_is_away_as_soon_as_the_first_time(
    *, is_server: bool, kind: str
) -> None:
    world = World()
    world.model = model = HungModel(is_server=is_server)
    async with watched(world) as (status, _):
        for hangs_s in (60.0, 10.0):
            for number in range(20):
                world.announce(f"{number}.csv", csv(1))
                await asyncio.sleep(2.0)
            model.works.clear()
            for number in range(4):
                world.announce(f"hung-{number}.csv", csv(1))
            await asyncio.sleep(4.0 + SILENT_S)
            assert told(status) == [(kind, "model server")]
            await asyncio.sleep(hangs_s - 4.0 - SILENT_S)
            model.works.set()


class BusyModel(MemoryModel):
    """A server with this many worker processes, which answer calls and questions in the order in
    which they come. `takes_s`: how long the next call takes.
    """

    def __init__(self, takes_s: Iterable[float], *, processes: int = 1) -> None:
        super().__init__()
        self._takes_s = iter(takes_s)
        self._free = asyncio.Semaphore(processes)
        self.questions = 0
        self.hears = True  # else a question waits for ever

    async def predict(self, payloads: Sequence[Payload]) -> Answers:
        async with self._free:
            await asyncio.sleep(next(self._takes_s) if payloads else 0.0)
            return await super().predict(payloads)

    async def ready(self) -> bool:
        self.questions += 1
        if not self.hears:
            await asyncio.Event().wait()
        async with self._free:
            return True


@asynccontextmanager
async def loaded(world: World, **changes: Any) -> AsyncIterator[Callable[[], list[object]]]:
    """A pipeline with objects of one row and one batch each. What it tells, if all is not well."""
    for number in range(1_000):
        world.announce(f"{number}.csv", csv(1))
    world.with_settings(window=WindowLimits(1, 1 << 20, 0.01), **changes)
    async with running(world) as pipeline:
        services = ServiceAnswers(pipeline, world.model)
        readiness = Readiness(pipeline, services, 8.0)
        async with services.watching():
            yield lambda: [
                one
                for one in (
                    *[outage.why for outage in pipeline.wiring.outages],
                    readiness.why_not(),
                )
                if one is not None
            ]


@virtual_time
@pytest.mark.parametrize(("takes_s", "calls"), [(30.0, 1), (3.0, 2), (1.3, 4)])
async def test_a_model_whose_slow_calls_keep_a_question_waiting_is_not_away(
    takes_s: float, calls: int
) -> None:
    world = World()
    world.model = model = BusyModel(repeat(takes_s))
    async with loaded(world, callers=calls) as wrong:
        await asyncio.sleep(LAG_EVERY_S)
        for _ in range(300):
            await asyncio.sleep(1.0)
            assert wrong() == []
    assert model.questions <= 300 / MODEL_EVERY_S


@virtual_time
async def test_a_language_model_that_answers_questions_may_take_long_for_one_answer() -> None:
    world = World()
    takes_s = cycle([*[0.5] * 60, 20.0])
    world.model = BusyModel(takes_s, processes=2)
    async with loaded(world, callers=1) as wrong:
        await asyncio.sleep(LAG_EVERY_S)
        for _ in range(200):
            await asyncio.sleep(1.0)
            assert wrong() == []


@virtual_time
async def test_a_model_whose_calls_are_known_and_that_hangs_is_told_within_ten_seconds() -> None:
    world = World()
    world.model = BusyModel([*[0.3] * 200, 1e6], processes=2)
    async with loaded(world, callers=1) as wrong:
        await asyncio.sleep(60.0)
        assert wrong() == []
        await asyncio.sleep(LAG_EVERY_S + 10.0)
        assert "no call is answered" in str(wrong())


@virtual_time
async def test_a_server_that_fails_at_rows_it_answered_before_is_told_by_its_questions() -> None:
    async def hangs_up(payloads: Sequence[Payload]) -> Answers | None:
        if payloads:
            raise HungUp("reset")
        return None

    world = World()
    world.model = BusyModel(repeat(0.1))
    async with loaded(world) as wrong:
        await asyncio.sleep(5.0)
        world.model.script = hangs_up
        await asyncio.sleep(8.0)
        why, *_ = wrong()
        assert "closes the connection when it gets rows" in str(why)
        world.model.script = None
        await asyncio.sleep(20.0)
        assert wrong() == []


@virtual_time
async def test_a_server_that_answers_no_question_either_is_not_said_to_fail_at_rows_only() -> None:
    """Each call is hung up on while the question waits."""

    async def hangs(_: Sequence[Payload]) -> Answers | None:
        await asyncio.sleep(0.9)
        raise HungUp("reset")

    world = World()
    world.model = model = BusyModel(repeat(0.1))
    async with loaded(world, callers=1) as wrong:
        await asyncio.sleep(5.0)
        model.script, model.hears = hangs, False
        for _ in range(60):
            await asyncio.sleep(1.0)
            assert not any("answers a question without rows" in str(why) for why in wrong())
        assert wrong() != []


class SlowObjects(MemoryObjects):
    """`takes_s`: how long an object takes, by its key."""

    def __init__(self, takes_s: Callable[[str], float]) -> None:
        super().__init__()
        self._takes_s = takes_s

    async def open(self, location: Location) -> Any:
        await asyncio.sleep(self._takes_s(location.key))
        return await super().open(location)


@virtual_time
@pytest.mark.parametrize(
    "takes_s",
    [
        # One object is slow; a question takes three times as long as an object usually does.
        lambda key: {"20.csv": 20.0, PROBE_KEY: 1.5}.get(key, 0.5),
        # Objects come while a question waits for ever.
        lambda key: 3_600.0 if key == PROBE_KEY else 2.5,
    ],
)
async def test_a_store_that_answers_slowly_is_not_away(takes_s: Callable[[str], float]) -> None:
    world = World()
    world.objects = SlowObjects(takes_s)
    async with loaded(world, fetchers=1) as wrong:
        await asyncio.sleep(LAG_EVERY_S)
        for _ in range(60):
            await asyncio.sleep(1.0)
            assert wrong() == []


@virtual_time
async def test_a_worker_that_kafka_does_not_answer_is_not_ready() -> None:
    world = World()
    world.source = SilentSource(1)
    async with running(world) as pipeline:
        services = ServiceAnswers(pipeline, world.model)
        readiness = Readiness(pipeline, services, 8.0)
        async with services.watching(), readiness.watching():
            patient = Readiness(pipeline, services, 30.0)
            await asyncio.sleep(10.0)
            assert readiness.why_not() is None
            await asyncio.sleep(20.0)
            assert "Kafka has not answered" in str(readiness.why_not())
            assert patient.why_not() is None
            await asyncio.sleep(40.0)
            assert "Kafka has not answered" in str(patient.why_not())


class SilentSource(MemorySource):
    """Counts the questions for the end of the input; answers them if it `answers`."""

    answers = False
    asked = 0

    async def end_offsets(self) -> Mapping[Where, int]:
        self.asked += 1
        return await (super().end_offsets() if self.answers else asyncio.Future())


class SilentModel(MemoryModel):
    asked = 0

    async def ready(self) -> bool:
        self.asked += 1
        return await asyncio.Future()


async def test_no_page_waits_for_a_service_however_long_it_is_silent() -> None:
    world = World()
    world.source = source = SilentSource(1)
    model = SilentModel()
    async with (
        running(world) as pipeline,
        Page(config.Http(port=0), WorkerSource(pipeline, model, config.Kafka())).open() as url,
        aiohttp.ClientSession(base_url=url) as session,
    ):
        await until(lambda: source.asked > 0 and model.asked > 0)
        for path, status in (("/healthz", 200), ("/readyz", 503), ("/metrics", 200)):
            async with session.get(path) as answer:
                assert answer.status == status
        async with session.get("/api/status") as answer:
            seen = await answer.json()
    assert seen["assignments"][0]["lag"] is None
    assert seen["model"]["answers"] is None
    assert (source.asked, model.asked) == (1, 1)


@virtual_time
async def test_the_lag_is_the_last_known_one_with_its_age() -> None:
    world = World()
    world.source = source = SilentSource(1)
    source.answers = True
    world.sink.hold = True
    async with looking(world) as (_, status):
        world.announce("a.csv", csv(1))
        await asyncio.sleep(10.0)
        fresh = status.look()
        source.answers = False
        await asyncio.sleep(60.0)
        old, asked = status.look(), source.asked
        source.answers = True
        await asyncio.sleep(10.0)
        again = status.look()
        world.sink.deliver()
    assert [one["assignments"][0]["lag"] for one in (fresh, old, again)] == [1, 1, 1]
    assert fresh["lag_age_s"] <= LAG_EVERY_S
    assert 60.0 - LAG_EVERY_S <= old["lag_age_s"] <= 60.0 + LAG_EVERY_S
    assert again["lag_age_s"] <= LAG_EVERY_S
    # Each question ends at its deadline, and the next one follows after the pause.
    assert asked == pytest.approx(5 + 60 / (ANSWER_S + LAG_EVERY_S), abs=2)
    assert [len(one["outages"]) for one in (fresh, old, again)] == [0, 1, 0]


@virtual_time
@pytest.mark.parametrize("exactly_once", [False, True])
@pytest.mark.parametrize("stuck", ["model", "broker"])
async def test_the_backlog_is_the_age_of_the_oldest_record_and_grows_while_nothing_moves(
    stuck: str, exactly_once: bool
) -> None:
    world = World(exactly_once=exactly_once).with_settings(max_objects=1)
    goes_on = asyncio.Event()

    async def silent(_: object) -> None:
        await goes_on.wait()

    if stuck == "model":
        world.model.script = silent
    elif exactly_once:
        world.producers.before_commit = silent
    else:
        world.sink.hold = True
    async with looking(world) as (pipeline, status):
        await asyncio.sleep(5.0)
        assert pipeline.backlog.age_s == 0
        began_ms = world.clock.wall_ms()
        world.announce("a.csv", csv(1), timestamp_ms=began_ms - 3_000)
        for _ in range(2):
            await asyncio.sleep(20.0)
            age_s = 3.0 + (world.clock.wall_ms() - began_ms) / 1000
            assert pipeline.backlog.age_s == pytest.approx(age_s)
            assert status.look()["backlog_s"] == pytest.approx(age_s, abs=0.1)
        goes_on.set()
        world.sink.deliver()
        await until(lambda: world.next_offset() == 1)
        assert pipeline.backlog.age_s == 0


@virtual_time
async def test_the_backlog_counts_records_that_wait_for_room_and_lines_that_stopped() -> None:
    world = World(partitions=2).with_settings(max_objects=1, line=LineLimits(0.0, 1))
    world.sink.hold = True
    async with looking(world) as (pipeline, _):
        now_ms = world.clock.wall_ms()
        world.announce("a.csv", csv(1), timestamp_ms=now_ms)
        world.announce("b.csv", csv(1), timestamp_ms=now_ms - 60_000)
        await asyncio.sleep(1.0)
        assert pipeline.backlog.age_s == pytest.approx(61.0)
        world.sink.hold = False
        world.sink.deliver()
        await until(lambda: world.next_offset() == 2)
        assert pipeline.backlog.age_s == 0
        for number in range(2):
            now_ms = world.clock.wall_ms()
            world.announce(f"gone-{number}.csv", partition=1, stream="s", timestamp_ms=now_ms)
        await until(lambda: len(pipeline.stopped) == 1)
        await asyncio.sleep(30.0)
        assert pipeline.backlog.age_s == pytest.approx((world.clock.wall_ms() - now_ms) / 1000)


@virtual_time
async def test_a_question_that_fails_as_nobody_foresaw_ends_no_worker() -> None:
    class Broken(MemorySource):
        async def end_offsets(self) -> Mapping[Where, int]:
            raise ValueError("a fault of the client")

    class BrokenModel(MemoryModel):
        async def ready(self) -> bool:
            raise ValueError("a fault of the client")

    world = World()
    world.source, world.model = Broken(1), BrokenModel()
    async with looking(world) as (_, status):
        world.announce("a.csv", csv(1))
        await until(lambda: world.next_offset() == 1)
        await asyncio.sleep(60.0)
        seen = status.look()
    assert seen["model"]["answers"] is False
    assert [outage["service"] for outage in seen["outages"]] == ["Kafka broker"]


@asynccontextmanager
async def served(
    token: str | None = None, *, partitions: int = 2
) -> AsyncIterator[aiohttp.ClientSession]:
    """A client of the page of a worker that has these partitions of two, the first of which stopped
    at a hostile stream.
    """
    world = World(partitions).with_settings(line=LineLimits(0.0, 1), input_partitions=2)
    for number in range(3):
        world.announce(f"{number}.csv", stream=HOSTILE)
    http = config.Http(port=0, token=token)
    async with running(world) as pipeline:
        await until(lambda: len(pipeline.stopped) == 1)
        async with (
            Page(http, WorkerSource(pipeline, world.model, config.Kafka())).open() as url,
            aiohttp.ClientSession(base_url=url) as session,
        ):
            yield session


async def test_the_page_is_the_same_bytes_whatever_the_world_is_called() -> None:
    async with served() as session, session.get("/") as answer:
        assert answer.content_type == "text/html"
        assert await answer.text() == DOCUMENT
    assert HOSTILE not in DOCUMENT


async def test_hostile_names_stay_strings_of_a_document_that_is_no_page() -> None:
    async with served() as session, session.get("/api/status") as answer:
        assert answer.content_type == "application/json"
        assert answer.headers["X-Content-Type-Options"] == "nosniff"
        document = await answer.json()
    assert document["assignments"][0]["stopped"][0]["stream"] == HOSTILE


def test_the_page_makes_no_markup_of_texts_and_asks_nobody_else() -> None:
    forbidden = (
        r"innerHTML|outerHTML|insertAdjacent|document\.write|eval\(|Function\(|https?:|src=|href="
    )
    assert not re.search(forbidden, DOCUMENT)


async def test_the_browser_runs_the_page_s_own_script_only() -> None:
    async with served() as session, session.get("/") as answer:
        policy = answer.headers["Content-Security-Policy"]
    script = DOCUMENT.partition("<script>")[2].partition("</script>")[0]
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    assert f"script-src 'sha256-{digest}';" in policy
    assert policy.startswith("default-src 'none'")
    assert "unsafe" not in policy


async def test_with_a_token_people_are_asked_for_it_and_programs_too(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with caplog.at_level(logging.DEBUG):
        async with served(token="open sesame") as session:
            for path in ("/api/status", "/metrics", "/api/live"):
                async with session.get(path) as answer:
                    assert answer.status == 401
                    assert "token" in await answer.text()
            async with session.get("/") as answer:  # it holds no data, and asks for the token
                assert (answer.status, await answer.text()) == (
                    200,
                    DOCUMENT.replace("<body>", "<body data-asks>"),
                )
            for path in ("/healthz", "/readyz"):  # probes have no token
                async with session.get(path) as answer:
                    assert answer.status == 200
            right = {"Authorization": "Bearer open sesame"}
            for path in ("/api/status", "/"):
                async with session.get(path, headers=right) as answer:
                    assert answer.status == 200
    assert "open sesame" not in caplog.text


async def test_nothing_is_served_beyond_this_machine_unless_told_otherwise() -> None:
    async def hello(_: web.Request) -> web.Response:
        return web.Response()

    assert config.Http().host == "127.0.0.1"
    async with serving(config.Http(port=0), {"/": hello}) as url:
        port = int(url.rpartition(":")[2])
        socket.create_connection(("127.0.0.1", port)).close()
        # Another address of the same machine: a server that listens on all of them answers here.
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection(("127.0.0.2", port))


@pytest.mark.parametrize(("partitions", "status"), [(1, 503), (2, 200)])
async def test_a_worker_is_ready_while_one_of_its_lines_goes_on(
    partitions: int, status: int
) -> None:
    async with served(partitions=partitions) as session:
        async with session.get("/readyz") as answer:
            assert answer.status == status
            assert ("line stopped: stream" in await answer.text()) == (status == 503)
        async with session.get("/metrics") as answer:
            assert "penstock_lines_stopped 1.0" in await answer.text()


@virtual_time
async def test_the_status_says_how_far_a_shadow_agrees() -> None:
    world = World().with_shadow()

    async def wrong_in_b(payloads: Sequence[Payload]) -> Answers | None:
        rows = sum(payload.rows for payload in payloads)
        return Answers([b'{"sum":-1}'] * rows, {}) if rows == 2 else None

    world.shadow.script = wrong_in_b
    async with looking(world) as (_, status):
        assert status.look()["shadow"]["rows"] == 0
        for number, rows in enumerate((3, 2, 3)):
            world.announce(f"{number}.csv", csv(rows), stream="b" if rows == 2 else "a")
            await asyncio.sleep(1.0)
        look = status.look()["shadow"]
    assert look.pop("interval") == pytest.approx([0.4093, 0.9285], abs=1e-4)
    assert look == {
        "model": "v2", "percent": 100.0, "is_over": False, "away_s": None, "waiting_rows": 0,
        "rows": 8, "agreed": 6, "worst": [{"stream": "b", "rows": 2, "agreed": 0}],
    }  # fmt: skip


@virtual_time
async def test_a_shadow_that_does_not_answer_is_an_outage_of_its_own() -> None:
    world = World().with_shadow()

    async def away(_: Sequence[Payload]) -> Answers | None:
        raise Unreachable("nobody there")

    world.shadow.script = away
    async with looking(world) as (_, status):
        world.announce("a.csv", csv(3))
        await asyncio.sleep(5.0)
        look = status.look()
    assert [outage["service"] for outage in look["outages"]] == ["shadow model v2"]
    assert look["shadow"]["away_s"] > 4
