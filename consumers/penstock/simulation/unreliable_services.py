"""Object store and model of one worker, in memory, slow and unreliable.

Rule: a request that is on the wire may still have its effect after the worker's death, but a dead
worker gets no answer, and a paused one gets it when it goes on. Owner: the simulation, one of each
per worker.
"""

import asyncio
import functools
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeVar
from zlib import crc32

from penstock.adapters.memory.objects import MemoryObjects
from penstock.core.routing.store_choice import DEFAULT
from penstock.core.rows.payload import Payload
from penstock.errors import HungUp, Overloaded, Transient, Unreachable, WorkerDied
from penstock.ports import Answers, Body, Listed, Location, Part, WholeBody
from penstock.simulation.announcements import Deadly
from penstock.simulation.faults import Weather

T = TypeVar("T")
# Some of the objects up to this size come at once, as small ones do from a real store.
WHOLE_BYTES = 400
AskModel = Callable[[Sequence[Payload]], Answers]


class Process:
    """The worker's process as the services see it: running, paused, or dead."""

    def __init__(self) -> None:
        self.alive = True
        self.is_cut = False
        self.paused_s = 0.0
        self._paused_at_s = 0.0
        self.going = asyncio.Event()
        self.going.set()

    async def gate(self) -> None:
        """Returns when the process runs; for a dead one never."""
        while not (self.alive and self.going.is_set()):
            if not self.alive:
                await asyncio.get_running_loop().create_future()
            await self.going.wait()

    def pause(self) -> None:
        if self.going.is_set():
            self._paused_at_s = asyncio.get_running_loop().time()
            self.going.clear()

    def go_on(self) -> None:
        if not self.going.is_set():
            self.paused_s += asyncio.get_running_loop().time() - self._paused_at_s
            self.going.set()

    def die(self, *, is_cut: bool) -> None:
        """`is_cut`: what it sent and has not yet arrived is lost."""
        self.alive, self.is_cut = False, is_cut
        self.going.set()


@dataclass(eq=False)
class SimulatedObjects:
    """The bucket that all workers share, through this worker's connection. Objects in `cursed`
    never answer; the transfer of one in `cut` always breaks after that many bytes. `broke` is
    called when any other transfer breaks.
    """

    objects: MemoryObjects
    cursed: Collection[str]
    cut: Mapping[str, int]
    broke: Callable[[str], None]
    process: Process
    weather: Weather
    reading: int = field(default=0, init=False)

    async def open(self, location: Location) -> Body:
        body = await self._ask(location, lambda: self.objects.open(location))
        cut = self.cut.get(f"{location.bucket}/{location.key}")
        broke = functools.partial(self.broke, location.key)
        simulated = _SimulatedBody(body, cut, broke, self.process, self.weather)
        if cut is None and body.size <= WHOLE_BYTES and crc32(location.key.encode()) % 2:
            data = b"".join([chunk async for chunk in simulated])
            return WholeBody(data, body.etag, body.version_id)
        return simulated

    async def part(self, location: Location, start: int, stop: int | None = None) -> Part:
        return await self._ask(location, lambda: self.objects.part(location, start, stop))

    async def _ask(self, location: Location, ask: Callable[[], Awaitable[T]]) -> T:
        name = f"{location.bucket}/{location.key}"
        self.reading += 1
        try:
            await self.process.gate()
            await self.weather.pass_by()
            if self.weather.happens(self.weather.faults.store_away):
                raise Unreachable("the store is away")
            if name in self.cursed or self.weather.happens(self.weather.faults.store_ill):
                raise Transient("the store is ill")
            answer = await ask()
            await self.process.gate()
        finally:
            self.reading -= 1
        return answer

    def list(self, bucket: str, pattern: str, store: str = DEFAULT) -> AsyncIterator[Listed]:
        return self.objects.list(bucket, pattern, store)

    async def aclose(self) -> None:
        return


class _SimulatedBody:
    def __init__(
        self,
        body: Body,
        cut: int | None,
        broke: Callable[[], None],
        process: Process,
        weather: Weather,
    ) -> None:
        self.size, self.etag, self.version_id = body.size, body.etag, body.version_id
        self._body = body
        self._broke = broke
        self._left = body.size if cut is None else cut
        self._process = process
        self._weather = weather

    async def __aiter__(self) -> AsyncIterator[bytes]:
        async for chunk in self._body:
            await self._process.gate()
            if self._weather.happens(self._weather.faults.body_breaks):
                await self._weather.pass_by()
                self._broke()
                raise Transient("the transfer broke")
            if len(chunk) > self._left:
                yield chunk[: self._left]
                raise Unreachable("the transfer broke where it always does")
            self._left -= len(chunk)
            yield chunk

    async def aclose(self) -> None:
        await self._body.aclose()


class SimulatedModel:
    """The model, through this worker's connection."""

    version: str | None = None
    most_rows: int | None = None

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
            if weather.happens(faults.model_hangs_up):
                raise HungUp("the server hung up, whatever the rows")
            if weather.worker_dies():
                raise WorkerDied("Worker died.")
            try:
                answers = self._ask(payloads)
            except Deadly as error:
                await asyncio.sleep(error.after_s)
                raise error.loss from error
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
