"""One slow answer holds nobody up: the read is sent again, and a stalled body goes on."""

import asyncio
from collections.abc import Awaitable, Callable
from types import SimpleNamespace
from typing import Any, cast

import pytest

from penstock.adapters.memory import MemoryObjects
from penstock.core.health.retries import LEAST_ANSWERS, Hedging
from penstock.errors import Overloaded, Poison, Transient
from penstock.ports import Location, Part
from penstock.process.hedged import Alarms, Hedged
from penstock.stages.store_reads import HedgedObjects
from penstock.tools.simulation.virtual_time import VirtualClock, virtual_time
from tests.support.partitions import P0
from tests.support.pipelines import World, csv, rows_and_sums, run_to_end, running, until

USUAL_S = 0.03


class Store:
    """A store whose reads take `USUAL_S`, unless `next_s` has times for the next ones."""

    def __init__(self) -> None:
        self.memory = MemoryObjects(chunk_bytes=1 << 20)
        self.memory.on_open = self._wait
        self.next: list[float | Exception] = []
        self.hedging = Hedging()
        self.told: list[tuple[str, str]] = []
        self.cancelled = 0
        self.read = HedgedObjects(
            self.memory,
            {"objects": self.hedging},
            VirtualClock(),
            lambda store, outcome: self.told.append((store, outcome)),
        )
        self.memory.put("b", "k", b"0123456789")

    async def _wait(self, _: Location) -> None:
        how = self.next.pop(0) if self.next else USUAL_S
        if isinstance(how, Exception):
            await asyncio.sleep(USUAL_S)
            raise how
        try:
            await asyncio.sleep(how)
        except asyncio.CancelledError:
            self.cancelled += 1
            raise

    async def learn(self) -> "Store":
        for _ in range(LEAST_ANSWERS):
            await self.read.open(Location("b", "k"))
        return self

    async def timed(self, ask: Callable[[], Awaitable[Any]]) -> tuple[Any, float]:
        loop = asyncio.get_running_loop()
        began_s, before = loop.time(), len(self.memory.opened)
        answer = await ask()
        self.asked = len(self.memory.opened) - before
        return answer, loop.time() - began_s

    async def open(self) -> tuple[Any, float]:
        return await self.timed(lambda: self.read.open(Location("b", "k")))


@virtual_time
async def test_a_late_read_is_sent_again_and_the_first_answer_ends_the_other() -> None:
    store = await Store().learn()
    store.next = [1.0]
    body, took_s = await store.open()
    assert body.size == 10
    assert took_s < 3 * USUAL_S
    assert (store.asked, store.cancelled, store.told) == (2, 1, [("objects", "won")])


@virtual_time
async def test_a_second_read_that_loses_is_cancelled() -> None:
    store = await Store().learn()
    store.next = [0.05, 1.0]
    _, took_s = await store.open()
    assert took_s == pytest.approx(0.05)
    assert (store.asked, store.cancelled, store.told) == (2, 1, [("objects", "lost")])


@virtual_time
async def test_a_part_is_sent_again_as_well() -> None:
    store = await Store().learn()
    store.next = [1.0]
    part, took_s = await store.timed(lambda: store.read.part(Location("b", "k"), 2, 5))
    assert part.data == b"234"
    assert took_s < 3 * USUAL_S


@virtual_time
async def test_an_error_is_no_answer_while_the_other_read_is_on_its_way() -> None:
    store = await Store().learn()
    store.next = [1.0, Transient("ill")]
    _, took_s = await store.open()
    assert took_s == pytest.approx(1.0)
    assert store.told == [("objects", "lost")]


@virtual_time
async def test_a_first_read_that_fails_leaves_the_answer_to_the_second() -> None:
    store = await Store().learn()

    async def fails_late(_: Location) -> None:
        if len(store.memory.opened) % 2:
            await asyncio.sleep(0.05)
            raise Transient("ill")
        await asyncio.sleep(0.05)

    if len(store.memory.opened) % 2:
        await store.open()
    store.memory.on_open = fails_late
    body, took_s = await store.open()
    assert body.size == 10
    assert took_s < 0.1
    assert store.told[-1] == ("objects", "won")


@virtual_time
async def test_what_the_store_refuses_is_refused_at_once() -> None:
    store = await Store().learn()
    before = len(store.memory.opened)
    store.next = [Poison("not_found", "gone")]
    with pytest.raises(Poison):
        await store.open()
    assert len(store.memory.opened) == before + 1


@virtual_time
async def test_after_a_refusal_no_read_is_added() -> None:
    store = await Store().learn()
    store.next = [1.0, Overloaded("SlowDown")]
    await store.open()
    store.next = [1.0]
    _, took_s = await store.open()
    assert took_s == pytest.approx(1.0)
    assert store.told == [("objects", "lost")]


@virtual_time
async def test_an_object_that_fails_leaves_late_reads_of_others_sent_again() -> None:
    store = await Store().learn()
    for _ in range(5):
        store.next = [Transient("500")]
        with pytest.raises(Transient):
            await store.open()
    store.next = [1.0]
    _, took_s = await store.open()
    assert took_s < 3 * USUAL_S


@virtual_time
async def test_of_two_answers_the_one_that_is_not_used_is_closed() -> None:
    answers: list[asyncio.Future[_Body]] = []
    told: list[str] = []

    async def ask() -> _Body:
        answers.append(asyncio.get_running_loop().create_future())
        return await answers[-1]

    read = Hedged(ask, ask, lambda _: True, told.append, Alarms(), _Body.aclose)
    reading = asyncio.create_task(read.answer(USUAL_S))
    await asyncio.sleep(1.0)
    first, second = _Body(), _Body()
    # Both are answered in one turn, and the second one is awake first.
    answers[1].set_result(second)
    answers[0].set_result(first)
    assert await reading is first
    assert (first.is_closed, second.is_closed, told) == (False, True, ["lost"])


@pytest.mark.parametrize("error", [Transient("broke"), Poison("changed", "broke")])
@virtual_time
async def test_a_library_that_makes_an_error_of_the_cancellation_leaves_none_behind(
    error: Exception,
) -> None:
    asked = 0

    async def ask() -> int:
        nonlocal asked
        asked += 1
        if asked == 2:
            return asked
        try:
            await asyncio.sleep(60.0)
        except asyncio.CancelledError:
            raise error from None
        return asked

    read = Hedged(ask, ask, lambda _: True, lambda _: None, Alarms())
    task = asyncio.current_task()
    assert task is not None
    if isinstance(error, Transient):
        assert await read.answer(USUAL_S) == 2
    else:
        with pytest.raises(Poison):
            await read.answer(USUAL_S)
    assert task.cancelling() == 0


@virtual_time
async def test_the_callers_own_end_ends_both_reads() -> None:
    store = await Store().learn()
    store.next = [5.0, 5.0]
    task = asyncio.create_task(store.open())
    await asyncio.sleep(1.0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert store.cancelled == 2


@virtual_time
async def test_a_timeout_of_the_caller_stays_a_timeout() -> None:
    store = await Store().learn()
    store.next = [5.0, 5.0]
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(1.0):
            await store.open()


@virtual_time
async def test_of_1000_reads_at_most_5_of_100_more_are_sent() -> None:
    store = await Store().learn()
    before = len(store.memory.opened)
    for number in range(1_000):
        store.next = [1.0] if number % 10 == 0 else [USUAL_S]
        await store.open()
    assert len(store.memory.opened) - before <= 1_051


DATA = bytes(range(256)) * 4096 * 3


class _Body:
    is_closed = False

    async def aclose(self) -> None:
        self.is_closed = True


class Stalling(MemoryObjects):
    """The first body stops for a minute after its first chunk."""

    stalls_s = 60.0

    async def open(self, location: Location) -> Any:
        body = await super().open(location)
        return _StallingBody(body, self.stalls_s) if len(self.opened) == 1 else body


class _StallingBody:
    def __init__(self, body: Any, stalls_s: float) -> None:
        self._body, self._stalls_s = body, stalls_s
        self.size, self.etag, self.version_id = body.size, body.etag, body.version_id

    async def __aiter__(self) -> Any:
        pause_s = 0.0
        async for chunk in self._body:
            await asyncio.sleep(pause_s)
            yield chunk
            pause_s = self._stalls_s

    async def aclose(self) -> None:
        await self._body.aclose()


@virtual_time
async def test_a_body_that_stalls_goes_on_by_ranges_of_the_same_version() -> None:
    memory, told = Stalling(), []
    memory.put("b", "k", DATA)
    objects = HedgedObjects(
        memory, {"objects": Hedging()}, VirtualClock(), lambda *news: told.append(news)
    )
    began_s = asyncio.get_running_loop().time()
    body = await objects.open(Location("b", "k"))
    got = b"".join([chunk async for chunk in body])
    await body.aclose()
    assert got == DATA
    assert asyncio.get_running_loop().time() - began_s < 5.0
    assert told == [("objects", "resumed")]
    assert memory.opened[1].etag == body.etag


@virtual_time
async def test_a_rest_that_comes_whole_may_take_longer_than_a_chunk_of_a_large_body() -> None:
    memory, told = Stalling(), []
    memory.put("b", "small", DATA)
    memory.put("b", "large", DATA * 4)
    objects = HedgedObjects(
        memory, {"objects": Hedging()}, VirtualClock(), lambda *news: told.append(news)
    )

    async def read(key: str, pause_s: float) -> None:
        memory.opened.clear()
        memory.stalls_s = pause_s
        body = await objects.open(Location("b", key))
        assert [chunk async for chunk in body]
        await body.aclose()

    for _ in range(LEAST_ANSWERS):
        await read("small", 3.0)
        await read("large", 0.01)
    assert not told
    await read("small", 9.0)
    assert not told
    await read("large", 1.5)
    assert told == [("objects", "resumed")]


class Slow(MemoryObjects):
    """150 kB come in a second, and a connection is cut after 40 s."""

    per_s, cut_s = 150e3, 40.0

    async def open(self, location: Location) -> Any:
        return _SlowBody(await super().open(location), self.per_s)

    async def part(self, location: Location, start: int, stop: int | None = None) -> Part:
        body = await super().open(location)
        assert stop is not None
        await asyncio.sleep(min((stop - start) / self.per_s, self.cut_s))
        if (stop - start) / self.per_s > self.cut_s:
            raise Transient("the connection was cut")
        return Part(body.data[start:stop], body.size, body.etag, body.version_id)


class _SlowBody(_StallingBody):
    async def __aiter__(self) -> Any:
        async for chunk in self._body:
            await asyncio.sleep(len(chunk) / self._stalls_s)
            yield chunk


@virtual_time
async def test_a_store_that_is_slow_is_known_by_the_ranges_of_the_bodies_that_stalled() -> None:
    memory, told = Slow(), []
    large, small = DATA * 4, DATA
    memory.put("b", "large", large)
    memory.put("b", "small", small)
    objects = HedgedObjects(
        memory, {"objects": Hedging()}, VirtualClock(), lambda *news: told.append(news)
    )

    async def read(key: str) -> bytes:
        body = await objects.open(Location("b", key))
        return b"".join([chunk async for chunk in body])

    assert await read("large") == large
    assert len(told) == 1
    for _ in range(LEAST_ANSWERS):
        assert await read("small") == small
    before = len(told)
    assert await read("small") == small
    assert len(told) == before


@virtual_time
async def test_a_stalled_body_that_was_replaced_is_not_mixed_with_its_successor() -> None:
    memory = Stalling()
    memory.put("b", "k", DATA)
    objects = HedgedObjects(memory, {"objects": Hedging()}, VirtualClock(), lambda *_: None)
    body = await objects.open(Location("b", "k"))
    memory.put("b", "k", DATA[::-1])
    with pytest.raises(Poison) as caught:
        [chunk async for chunk in body]
    assert caught.value.code == "changed"


@pytest.mark.parametrize(("stalls_s", "outcomes"), [(3.9, []), (60.0, ["resumed"])])
@virtual_time
async def test_while_no_other_request_may_be_sent_only_a_dead_body_goes_on_by_ranges(
    stalls_s: float, outcomes: list[str]
) -> None:
    memory, told = Stalling(), list[str]()
    memory.put("b", "k", DATA)
    memory.stalls_s = stalls_s
    hedging = Hedging()
    for _ in range(LEAST_ANSWERS):
        hedging.unanswered()
    objects = HedgedObjects(
        memory, {"objects": hedging}, VirtualClock(), lambda _, outcome: told.append(outcome)
    )
    began_s = asyncio.get_running_loop().time()
    body = await objects.open(Location("b", "k"))
    assert b"".join([chunk async for chunk in body]) == DATA
    assert told == outcomes
    assert asyncio.get_running_loop().time() - began_s <= max(2 * 3.9, 5.0)


@pytest.mark.parametrize("hedged", [(), ("objects",)])
def test_two_in_a_thousand_slow_reads_hold_nobody(hedged: tuple[str, ...]) -> None:
    """The objects behind a slow one do not wait for it, because it is read anew."""

    @virtual_time
    async def scenario() -> None:
        world = World().with_settings(hedged=hedged, max_objects=200)
        reads = 0

        async def sometimes_slow(_: Location) -> None:
            nonlocal reads
            reads += 1
            await asyncio.sleep(1.0 if reads % 250 == 100 else 0.03)

        world.objects.on_open = sometimes_slow
        behind = 0
        async with running(world):
            for number in range(1_000):
                world.announce(f"{number}.csv", csv(2), stream=f"s{number % 4}")
                await asyncio.sleep(0.0125)
                if number % 20 == 0:
                    behind = max(behind, number - world.published() // 2)
            await until(lambda: world.published() == 2_000)
        assert (behind > 60) != bool(hedged)
        assert reads <= 1.05 * 1_000
        assert rows_and_sums(world) == sorted(rows_and_sums(world))
        assert world.telemetry.replicas.hedged.totals == (
            {"objects": {"won": 4, "lost": 0, "resumed": 0}} if hedged else {}
        )

    scenario()


@virtual_time
async def test_an_object_whose_read_was_sent_again_is_answered_once() -> None:
    world = World().with_settings(hedged=("objects",))
    for number in range(40):
        world.announce(f"{number}.csv", csv(2))

    async def slow(location: Location) -> None:
        await asyncio.sleep(2.0 if location.key == "39.csv" else 0.03)

    world.objects.on_open = slow
    await run_to_end(world, 40)
    assert world.published() == 80


@virtual_time
async def test_what_waits_behind_a_late_object_is_told() -> None:
    world = World()

    async def slow(location: Location) -> None:
        await asyncio.sleep(60.0 if location.key == "0.csv" else 0.03)

    world.objects.on_open = slow
    async with running(world) as pipeline:
        for number in range(5):
            world.announce(f"{number}.csv", csv(2), stream=f"s{number}")
        await asyncio.sleep(5.0)
        lane = pipeline.wiring.lanes[P0]
        found = lane.held_back()
        assert found is not None
        held, waiting = found
        assert (held.stream, waiting) == ("s0", 4)
        await until(lambda: world.published() == 10, within_s=100.0)
        assert lane.held_back() is None


class _Timers:
    """The timers of a loop, and its time."""

    def __init__(self) -> None:
        self.now_s = 0.0
        self.set: list[tuple[float, Callable[..., None]]] = []

    def time(self) -> float:
        return self.now_s

    def call_at(self, when_s: float, ring: Callable[..., None], *_: object) -> Any:
        entry = (when_s, ring)
        self.set.append(entry)
        return SimpleNamespace(when=lambda: when_s, cancel=lambda: self.set.remove(entry))

    def ring(self) -> None:
        self.now_s, ring = self.set.pop()
        ring(self)


def test_one_timer_serves_all_requests() -> None:
    alarms, timers, late = Alarms(), _Timers(), list[str]()

    def request(name: str) -> Any:
        return SimpleNamespace(
            is_over=False, is_late=lambda _, now_s: late.append(f"{name} {now_s:g}")
        )

    requests = {name: request(name) for name in "abcd"}
    for name, due_s in zip("abcd", (3.0, 1.0, 2.0, 4.0), strict=True):
        alarms.begin()
        alarms.set(cast("Any", timers), due_s, requests[name])
        assert len(timers.set) == 1
    timers.ring()
    requests["c"].is_over = True
    timers.ring()
    assert late == ["b 1"]
    timers.ring()
    requests["d"].is_over = True
    timers.ring()
    assert (late, timers.set) == (["b 1", "a 3"], [])


def test_no_timer_rings_while_no_request_is_under_way() -> None:
    alarms, timers = Alarms(), _Timers()
    for due_s in (1.0, 2.0):
        alarms.begin()
        alarms.set(cast("Any", timers), due_s, cast("Any", SimpleNamespace(is_over=True)))
    alarms.end()
    assert len(timers.set) == 1
    alarms.end()
    assert timers.set == []
