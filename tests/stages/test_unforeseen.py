"""What nobody foresaw costs the object, the row or the batch that it belongs to, not the worker.

Rule: each call of each port and plug-in that belongs to one of them raises in turn, through two
lives, and every other row is answered in order.
"""

import sys
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from penstock.adapters.memory import MemoryResults, MemoryUpload
from penstock.core.routing.store_choice import ConfiguredStore, StoreChoice
from penstock.core.rows.payload import Matrix, Payload
from penstock.encodings.base import AnsweredRows
from penstock.encodings.result_formats import Lines
from penstock.errors import PenstockError
from penstock.ports import Answers, Location, Part, Stored
from penstock.tools.simulation.virtual_time import virtual_time
from tests.stages.test_result_objects import writing
from tests.support.deadly_formats import forget_plugins
from tests.support.pipelines import DEAD_LETTERS, World, csv, running, until
from tests.support.trap_formats import ENTRY_POINTS, Trap

BAD_VALUE = 13.0
# What the message names, what it is answered with, and how many of its rows are answered well.
Case = tuple[Callable[["TrapWorld"], None], str, int]


@pytest.fixture(autouse=True)
def _traps_are_installed(tmp_path: Path) -> Iterator[None]:
    info = tmp_path / "traps-1.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Name: traps\nVersion: 1\n")
    (info / "entry_points.txt").write_text(ENTRY_POINTS)
    sys.path.insert(0, str(tmp_path))
    forget_plugins()
    yield
    sys.path.remove(str(tmp_path))
    forget_plugins()


class TrapWorld(World):
    """`bad` is announced between two good objects; another partition has a good one, too."""

    def bad(self, key: str, data: bytes) -> None:
        self.announce("before.csv", csv(10))
        self.announce(key, data, stream="bad")
        self.announce("after.csv", csv(10))
        self.announce("beside.csv", csv(10), partition=1)

    def answered(self, key: str) -> list[dict[str, Any]]:
        records = self.records(0) + self.records(1)
        return [record for record in records if (record["object"] or {}).get("key") == key]


class _TrapBody:
    def __init__(self, word: str, etag: str | None) -> None:
        self.size, self.etag, self.version_id = 5, etag, None
        self._word = word

    async def __aiter__(self) -> AsyncIterator[bytes]:
        yield b"1,1\n"
        if self._word == "read":
            raise Trap("read")

    async def aclose(self) -> None:
        if self._word == "aclose":
            raise Trap("aclose")


def of_format(key: str, word: bytes = b"word") -> Callable[[TrapWorld], None]:
    return lambda world: world.bad(key, word)


def of_store(word: str) -> Callable[[TrapWorld], None]:
    def prepare(world: TrapWorld) -> None:
        opens, parts = world.objects.open, world.objects.part

        async def open_(location: Location) -> Any:
            body = await opens(location)
            if location.key != "bad.csv":
                return body
            if word == "open":
                raise Trap("open")
            return _TrapBody(word, body.etag)

        async def part(location: Location, start: int, stop: int | None = None) -> Part:
            if location.key == "bad.ranged":
                raise Trap("part")
            return await parts(location, start, stop)

        world.objects = TrapObjects(open_, part, world.objects.put)  # type: ignore[assignment]
        world.bad("bad.ranged" if word == "part" else "bad.csv", csv(1))

    return prepare


class TrapObjects:
    def __init__(self, open_: Any, part: Any, put: Any) -> None:
        self.open, self.part, self.put = open_, part, put


def of_message(world: TrapWorld) -> None:
    class Odd(StoreChoice):
        def of(self, store: str | None, bucket: str, key: str) -> str:
            if key == "bad.csv":
                raise Trap("of")
            return super().of(store, bucket, key)

    # With two stores, as with one alone nothing is asked.
    world.with_settings(
        places=Odd([ConfiguredStore("objects", "s3"), ConfiguredStore("lake", "gs", "lake")])
    )
    world.bad("bad.csv", csv(1))


def of_model(world: TrapWorld) -> None:
    async def trapped(payloads: Sequence[Payload]) -> Answers | None:
        for payload in payloads:
            assert isinstance(payload, Matrix)
            if np.any(payload.values == BAD_VALUE):
                raise Trap("predict")
        return None

    world.model.script = trapped
    world.bad("bad.csv", csv(20, 100) + b"13,13\n" + csv(20, 200))


def of_answers(world: TrapWorld) -> None:
    """One answer for the row too many."""

    async def trapped(payloads: Sequence[Payload]) -> Answers | None:
        rows = np.concatenate([payload.values for payload in payloads])  # type: ignore[attr-defined]
        extra = [b"0"] * int(np.any(rows == BAD_VALUE))
        return Answers([b'{"sum":%g}' % sum(row) for row in rows] + extra, {})

    world.model.script = trapped
    world.bad("bad.csv", csv(20, 100) + b"13,13\n" + csv(20, 200))


def of_record(world: TrapWorld) -> None:
    """An answer of which no record can be made."""

    async def trapped(payloads: Sequence[Payload]) -> Answers | None:
        rows = np.concatenate([payload.values for payload in payloads])  # type: ignore[attr-defined]
        values: list[Any] = [b'{"sum":%g}' % sum(row) for row in rows]
        for index in np.flatnonzero(rows[:, 0] == BAD_VALUE):
            values[index] = "text"
        return Answers(values, {}, 20 * len(values))

    world.model.script = trapped
    world.bad("bad.csv", csv(20, 100) + b"13,13\n" + csv(20, 200))


def of_letter(world: TrapWorld) -> None:
    """Of all forms but the last, which fits whatever it is asked."""
    raised: list[str] = []
    fits = world.sink.fits

    def trapped(topic: str, key: bytes | None, value_bytes: int) -> bool:
        if topic == DEAD_LETTERS and len(raised) < 3:
            raised.append(topic)
            raise Trap("fits")
        return fits(topic, key, value_bytes)

    world.sink.fits = trapped  # type: ignore[method-assign]
    world.bad("bad.csv", csv(2) + b"x,y\n")


CASES: dict[str, Case] = {
    "message": (of_message, "unavailable", 0),
    "store.open": (of_store("open"), "unavailable", 0),
    "store.read": (of_store("read"), "unavailable", 0),
    "store.aclose": (of_store("aclose"), "unavailable", 1),
    "store.part": (of_store("part"), "unavailable", 0),
    "format.open": (of_format("bad.shut"), "bad_format", 0),
    "format.heavy": (of_format("bad.heavy"), "bad_format", 0),
    "format.feed": (of_format("bad.trap", b"feed"), "bad_format", 2),
    "format.close": (of_format("bad.trap", b"close"), "bad_format", 2),
    "format.memory": (of_format("bad.trap", b"memory"), "bad_format", 2),
    "format.ranged": (of_format("bad.ranged"), "bad_format", 2),
    "format.flat": (of_format("bad.trap", b"flat"), "bad_format", 2),
    "format.none": (of_format("bad.trap", b"none"), "bad_format", 2),
    "format.list": (of_format("bad.trap", b"list"), "bad_format", 2),
    "model.predict": (of_model, "model_mismatch", 40),
    "model.answers": (of_answers, "model_mismatch", 40),
    "record": (of_record, "unavailable", 40),
    "letter": (of_letter, "bad_row", 2),
}


# Rows that are looked at where they come in, so what is wrong with them is known.
REFUSED = {"format.flat", "format.none", "format.list"}


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("exactly_once", [False, True])
def test_each_call_that_raises_costs_what_it_was_for(name: str, exactly_once: bool) -> None:
    prepare, code, good = CASES[name]

    @virtual_time
    async def scenario() -> None:
        world = TrapWorld(partitions=2, exactly_once=exactly_once, forgives=True)
        prepare(world)
        async with running(world):
            await until(lambda: (world.next_offset(0), world.next_offset(1)) == (3, 1))
        world.announce("later.csv", csv(10))
        async with running(world):
            await until(lambda: world.next_offset(0) == 4)
        for key in ("before.csv", "after.csv", "beside.csv", "later.csv"):
            assert [one["prediction"]["sum"] for one in world.answered(key)] == [
                2 * row for row in range(10)
            ]
        bad = [
            record
            for record in world.records(0)
            if record["stream"] == "bad" or record.get("error")
        ]
        assert [one["error"]["code"] for one in bad if one.get("error")] == [code]
        assert sum(one.get("error") is None for one in bad) == good
        assert len(world.dead_letters()) == 1
        offsets = [record["source"]["offset"] for record in world.records(0)]
        assert offsets == sorted(offsets)
        assert (unforeseen(world, name) >= 1) is (name not in REFUSED)

    scenario()


def unforeseen(world: World, name: str) -> float:
    """How often it was counted, where the case says."""
    place = {"format": "decode"}.get(name.partition(".")[0], name.partition(".")[0])
    value = world.telemetry.registry.get_sample_value("penstock_unforeseen_total", {"place": place})
    return value or 0.0


@virtual_time
async def test_it_is_tried_once_more_before_it_is_answered() -> None:
    world = TrapWorld(partitions=2, forgives=True)
    failed: list[Location] = []

    async def once(location: Location) -> None:
        if location.key == "bad.csv" and not failed:
            failed.append(location)
            raise Trap("once")

    world.objects.on_open = once
    world.bad("bad.csv", csv(5))
    async with running(world):
        await until(lambda: world.next_offset(0) == 3)
    assert [one["row"] for one in world.answered("bad.csv")] == list(range(5))
    assert world.dead_letters() == []


@virtual_time
async def test_a_row_that_a_request_falls_over_is_asked_alone_twice_at_most() -> None:
    world = TrapWorld(partitions=2, forgives=True)
    of_model(world)
    async with running(world):
        await until(lambda: world.next_offset(0) == 3)
    alone = [call for call in world.model.calls if [one.rows for one in call] == [1]]
    tried = [call for call in alone if call[0].values[0, 0] == BAD_VALUE]  # type: ignore[attr-defined]
    assert len(tried) == 1  # once among others before
    [bad] = [record for record in world.records() if record.get("error")]
    assert bad["error"]["message"].startswith("Trap: predict: nobody foresaw this")


@virtual_time
async def test_the_trace_is_logged_once_an_hour(caplog: pytest.LogCaptureFixture) -> None:
    world = World(forgives=True)
    for number in range(20):
        world.announce(f"{number}.trap", b"feed")
    async with running(world):
        await until(lambda: world.next_offset() == 20)
    said = [record for record in caplog.records if record.getMessage().startswith("nobody foresaw")]
    assert len(said) == 1
    assert said[0].exc_info is not None


@virtual_time
async def test_what_belongs_to_nobody_ends_the_worker() -> None:
    world = World(forgives=True)

    async def send(_: object) -> None:
        raise Trap("send")

    world.sink.send = send  # type: ignore[assignment, method-assign]
    world.announce("a.csv", csv(1))
    with pytest.raises(ExceptionGroup) as caught:
        async with running(world):
            await until(lambda: world.next_offset() == 1)
    assert caught.group_contains(Trap)
    assert world.next_offset() == 0


@virtual_time
async def test_tests_fail_on_what_nobody_foresaw() -> None:
    world = World()
    world.announce("a.trap", b"feed")
    with pytest.raises(ExceptionGroup) as caught:
        async with running(world):
            await until(lambda: world.next_offset() == 1)
    assert caught.group_contains(Trap)
    assert not caught.group_contains(PenstockError)


@pytest.mark.parametrize("word", ["begin", "write", "complete", "encode"])
@pytest.mark.parametrize("exactly_once", [False, True])
def test_a_result_that_cannot_be_written_costs_its_object(word: str, exactly_once: bool) -> None:
    @virtual_time
    async def scenario() -> None:
        world = TrapWorld(partitions=2, exactly_once=exactly_once, forgives=True)
        writing(world)
        world.results = TrapResults(word)
        if word == "encode":
            terms = world.settings.results
            assert terms is not None
            world.with_settings(results=replace(terms, encoding=TrapLines))
        world.bad("bad.csv", b"13,13\n" * 3)
        async with running(world):
            await until(lambda: (world.next_offset(0), world.next_offset(1)) == (3, 1))
        world.announce("later.csv", csv(10))
        async with running(world):
            await until(lambda: world.next_offset(0) == 4)
        results = sorted(key for _, key in world.results.objects)
        keys = ("after", "before", "beside", "later")
        assert results == [f"b/{key}.csv.jsonl" for key in keys]
        assert world.results.begun == {}
        codes = [
            record["error"]["code"] if record.get("error") else None for record in world.records(0)
        ]
        assert codes == [None, "unavailable", None, None]
        [letter] = world.dead_letters()
        assert letter["reference"].get("rows") is None
        assert unforeseen(world, "result") >= 1

    scenario()


@pytest.mark.parametrize("word", ["begin", "write", "complete"])
@virtual_time
async def test_a_result_is_written_once_more_before_its_object_is_answered(word: str) -> None:
    world = TrapWorld(partitions=2, forgives=True)
    writing(world)
    world.results = TrapResults(word, times=1)
    world.bad("bad.csv", b"13,13\n" * 3)
    async with running(world):
        await until(lambda: world.next_offset(0) == 3)
    assert world.dead_letters() == []
    assert world.results.begun == {}
    written = {key: data for (_, key), data in world.results.objects.items()}
    assert len(written["b/bad.csv.jsonl"].splitlines()) == 3
    assert unforeseen(world, "result") == 1


class TrapUpload(MemoryUpload):
    trap: Callable[[str], None]

    async def write(self, data: bytes) -> None:
        await super().write(data)
        self.trap("write")

    async def complete(self) -> Stored:
        self.trap("complete")
        return await super().complete()


class TrapResults(MemoryResults):
    """So many `times` one call for the bad object raises."""

    def __init__(self, word: str, times: int = 1_000) -> None:
        super().__init__()
        self._word, self._times = word, times

    def begin(self, location: Location) -> MemoryUpload:
        if "bad" not in location.key:
            return super().begin(location)
        self._trap("begin")
        upload = TrapUpload(self, location)
        upload.trap = self._trap
        self.begun[location.bucket, location.key] = upload
        return upload

    def _trap(self, word: str) -> None:
        if word == self._word and self._times:
            self._times -= 1
            raise Trap(word)


class TrapLines(Lines):
    def add(self, rows: AnsweredRows) -> None:
        if any(b'"sum":26' in answer for answer in rows.answers):
            raise Trap("add")
        super().add(rows)
