"""Object store, model and output topic of one worker, in memory, slow and unreliable.

Rule: what a worker asked of them may still happen after it is dead, as with a request on the wire;
but a dead worker hears nothing any more, and a paused one only when it goes on. Owner: the
simulation, one of each per worker.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from typing import TypeVar

from consumers.adapters.memory import MemoryObjects
from consumers.core.payload import Payload
from consumers.errors import Fatal, Overloaded, Transient, Unreachable, WorkerDied
from consumers.ports import Answers, Body, Listed, Location, Outgoing, Part
from consumers.testing.faults import Weather

T = TypeVar("T")
AskModel = Callable[[Sequence[Payload]], Answers]


class Process:
    """The worker's process as the services see it: runs, is stopped for a while, is dead."""

    def __init__(self) -> None:
        self.alive = True
        self.is_cut = False
        self.going = asyncio.Event()
        self.going.set()

    async def gate(self) -> None:
        """Return when the process runs; never for a dead one."""
        while not (self.alive and self.going.is_set()):
            if not self.alive:
                await asyncio.get_running_loop().create_future()
            await self.going.wait()

    def die(self, *, is_cut: bool) -> None:
        """`is_cut`: what it had sent and not yet arrived never will."""
        self.alive, self.is_cut = False, is_cut
        self.going.set()


class SimulatedObjects:
    """A bucket that all workers share, behind this worker's connection. What is `cursed` never
    answers.
    """

    def __init__(
        self, objects: MemoryObjects, cursed: set[str], process: Process, weather: Weather
    ) -> None:
        self.reading = 0
        self._objects = objects
        self._cursed = cursed
        self._process = process
        self._weather = weather

    async def open(self, location: Location) -> Body:
        body = await self._ask(location, lambda: self._objects.open(location))
        return _SimulatedBody(body, self._process, self._weather)

    async def part(self, location: Location, start: int, stop: int | None = None) -> Part:
        return await self._ask(location, lambda: self._objects.part(location, start, stop))

    async def _ask(self, location: Location, ask: Callable[[], Awaitable[T]]) -> T:
        name = f"{location.bucket}/{location.key}"
        self.reading += 1
        try:
            await self._process.gate()
            await self._weather.pass_by()
            if self._weather.happens(self._weather.faults.store_away):
                raise Unreachable("the store is away")
            if name in self._cursed or self._weather.happens(self._weather.faults.store_ill):
                raise Transient("the store is ill")
            answer = await ask()
            await self._process.gate()
        finally:
            self.reading -= 1
        return answer

    def list(self, bucket: str, pattern: str) -> AsyncIterator[Listed]:
        return self._objects.list(bucket, pattern)

    async def aclose(self) -> None:
        return


class _SimulatedBody:
    def __init__(self, body: Body, process: Process, weather: Weather) -> None:
        self.size, self.etag, self.version_id = body.size, body.etag, body.version_id
        self._body = body
        self._process = process
        self._weather = weather

    async def __aiter__(self) -> AsyncIterator[bytes]:
        async for chunk in self._body:
            await self._process.gate()
            if self._weather.happens(self._weather.faults.body_breaks):
                await self._weather.pass_by()
                raise Transient("the transfer broke")
            yield chunk

    async def aclose(self) -> None:
        await self._body.aclose()


class SimulatedModel:
    """The model behind this worker's connection."""

    version: str | None = None

    def __init__(self, ask: AskModel, process: Process, weather: Weather) -> None:
        self.in_flight = 0
        self._ask = ask
        self._process = process
        self._weather = weather

    async def predict(self, payloads: Sequence[Payload]) -> Answers:
        weather, faults = self._weather, self._weather.faults
        self.in_flight += 1
        try:
            await self._process.gate()
            await weather.pass_by()
            if weather.happens(faults.model_away):
                raise Unreachable("the model server is away")
            if weather.happens(faults.model_ill):
                raise Overloaded("the model server has too much to do")
            if weather.worker_dies():
                raise WorkerDied("Worker died.")
            answers = self._ask(payloads)
            if weather.happens(faults.answer_lost):
                raise Transient("the answer was lost on its way")
            await self._process.gate()
        finally:
            self.in_flight -= 1
        return answers

    async def ready(self) -> bool:
        return self._process.alive

    async def aclose(self) -> None:
        return


# What was appended, and what to call when its report has reached the worker.
Append = Callable[[Outgoing], Callable[[], None]]
# Keeps two things of one connection in their order on the loop's heap.
IN_ORDER_S = 1e-6


class SimulatedSink:
    """This worker's producer. `append` says what becomes of records that reach the broker."""

    def __init__(
        self,
        partitions: int,
        accept: Callable[[Outgoing], Append],
        process: Process,
        weather: Weather,
    ) -> None:
        self.failure: Fatal | None = None
        self._partitions = partitions
        self._accept = accept
        self._process = process
        self._weather = weather
        self._busy_until_s: dict[tuple[str, int, str], float] = {}

    async def start(self) -> None:
        return

    async def partitions(self, topic: str) -> int:
        return self._partitions

    async def send(self, outgoing: Outgoing) -> Awaitable[None]:
        await self._process.gate()
        append = self._accept(outgoing)
        await self._weather.pass_by()
        await self._process.gate()
        loop = asyncio.get_running_loop()
        report: asyncio.Future[None] = loop.create_future()
        report.add_done_callback(lambda done: done.cancelled() or done.exception())
        fails = self._weather.happens(self._weather.faults.delivery_fails)
        is_lost = self.failure is not None or (fails and self._weather.happens(0.5))
        if fails and self.failure is None:
            self.failure = Fatal("the broker did not take a batch")

        def reach_broker() -> None:
            acknowledge = None if is_lost or self._process.is_cut else append(outgoing)
            loop.call_at(self._next_s(outgoing, "report"), reach_worker, acknowledge)

        failure = self.failure

        def reach_worker(acknowledge: Callable[[], None] | None) -> None:
            if report.done() or not self._process.alive:
                return
            if failure is not None or acknowledge is None:
                report.set_exception(failure or Fatal("the broker did not take a batch"))
            else:
                acknowledge()
                report.set_result(None)

        loop.call_at(self._next_s(outgoing, "records"), reach_broker)
        return report

    def fits(self, topic: str, key: bytes | None, value_bytes: int) -> bool:
        return True

    async def forget(self) -> None:
        await self._process.gate()

    async def stop(self) -> None:
        return

    def _next_s(self, outgoing: Outgoing, what: str) -> float:
        """When the next thing of this kind arrives, never before the one before it."""
        where = (outgoing.topic, outgoing.partition, what)
        now_s = asyncio.get_running_loop().time()
        arrives_s = max(
            now_s + self._weather.delay_s(), self._busy_until_s.get(where, 0.0) + IN_ORDER_S
        )
        self._busy_until_s[where] = arrives_s
        return arrives_s
