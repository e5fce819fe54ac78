"""Object store and model of one worker, in memory, slow and unreliable; and the answers of the
model.

Rule: a request on the wire may have its effect after the worker's death; a dead worker gets no
answer, a paused one when it goes on. The model answers with the row's own number, and its flag
tells how to treat it, so the right answer depends only on the row.
"""

import asyncio
import functools
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar
from zlib import crc32

import orjson

from penstock.adapters.memory import MemoryObjects
from penstock.adapters.stores.transfer import WholeBody
from penstock.core.routing.store_choice import DEFAULT
from penstock.core.rows.payload import BytesRows, JsonRows, Matrix, Payload
from penstock.errors import (
    ErrorCode,
    HungUp,
    Overloaded,
    Poison,
    Rejected,
    Transient,
    Unreachable,
    WorkerDied,
)
from penstock.ports import PROBE_KEY, Answers, Listed, Location, ObjectBody, Part
from penstock.tools.simulation.process_and_faults import FaultInjector, Process

T = TypeVar("T")
# Some of the objects up to this size come in one piece, as small objects of a real store do.
WHOLE_BYTES = 400
AskModel = Callable[[Sequence[Payload]], Answers]


@dataclass(eq=False)
class SimulatedObjects:
    """The bucket that all workers share, as this worker's connection reaches it. `cursed`: objects
    that can never be opened. `cut`: for some objects, by name, the number of bytes after which the
    transfer always breaks. `broke`: a function that is called when any other transfer breaks.
    """

    objects: MemoryObjects
    cursed: Collection[str]
    cut: Mapping[str, int]
    broke: Callable[[str], None]
    process: Process
    injector: FaultInjector
    reading: int = field(default=0, init=False)

    async def open(self, location: Location) -> ObjectBody:
        body = await self._ask(location, lambda: self.objects.open(location))
        cut = self.cut.get(f"{location.bucket}/{location.key}")
        broke = functools.partial(self.broke, location.key)
        simulated = _SimulatedBody(body, cut, broke, self.process, self.injector)
        if cut is None and body.size <= WHOLE_BYTES and crc32(location.key.encode()) % 2:
            data = b"".join([chunk async for chunk in simulated])
            return WholeBody(data, body.etag, body.version_id)
        return simulated

    async def part(self, location: Location, start: int, stop: int | None = None) -> Part:
        return await self._ask(location, lambda: self.objects.part(location, start, stop))

    async def _ask(self, location: Location, ask: Callable[[], Awaitable[T]]) -> T:
        name = f"{location.bucket}/{location.key}"
        is_transfer = location.key != PROBE_KEY  # a probe asks for an object that is not there
        self.reading += is_transfer
        try:
            await self.process.gate()
            await self.injector.delay_read()
            if crowd_s := self.injector.faults.crowd_s:
                await asyncio.sleep(crowd_s * self.reading**2)
            if self.injector.happens(self.injector.faults.store_away):
                raise Unreachable("the store is away")
            if name in self.cursed or self.injector.happens(self.injector.faults.store_ill):
                raise Transient("the store is ill")
            if self.injector.happens(self.injector.faults.store_full):
                raise Overloaded("503 SlowDown")
            answer = await ask()
            await self.process.gate()
        finally:
            self.reading -= is_transfer
        return answer

    def list(self, bucket: str, pattern: str, store: str = DEFAULT) -> AsyncIterator[Listed]:
        return self.objects.list(bucket, pattern, store)

    async def aclose(self) -> None:
        return


class _SimulatedBody:
    def __init__(
        self,
        body: ObjectBody,
        cut: int | None,
        broke: Callable[[], None],
        process: Process,
        injector: FaultInjector,
    ) -> None:
        self.size, self.etag, self.version_id = body.size, body.etag, body.version_id
        self._body = body
        self._broke = broke
        self._left = body.size if cut is None else cut
        self._process = process
        self._injector = injector

    async def __aiter__(self) -> AsyncIterator[bytes]:
        async for chunk in self._body:
            await self._process.gate()
            if self._injector.happens(self._injector.faults.body_breaks):
                await self._injector.delay()
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
    """The model, as this worker's connection reaches it."""

    version: str | None = None
    most_rows: int | None = None

    def __init__(self, ask: AskModel, process: Process, injector: FaultInjector) -> None:
        self.in_flight = 0
        self._ask = ask
        self._process = process
        self._injector = injector

    async def predict(self, payloads: Sequence[Payload]) -> Answers:
        injector, faults = self._injector, self._injector.faults
        self.in_flight += 1
        try:
            await self._process.gate()
            await injector.delay(faults.model_s)
            if injector.happens(faults.model_away):
                raise Unreachable("the model server is away")
            if injector.happens(faults.model_ill):
                raise Overloaded("the model server has too much to do")
            if injector.happens(faults.model_hangs_up):
                raise HungUp("the server hung up, whatever the rows")
            if injector.worker_dies():
                raise WorkerDied("Worker died.")
            try:
                answers = self._ask(payloads)
            except Deadly as error:
                await asyncio.sleep(error.after_s)
                raise error.loss from error
            if injector.happens(faults.answer_lost):
                raise Transient("the answer was lost on its way")
            await self._process.gate()
        finally:
            self.in_flight -= 1
        return answers

    async def ready(self) -> bool:
        return self._process.alive

    async def aclose(self) -> None:
        return


# The flag of a row, which tells the model how to treat the row.
FINE, REFUSED_ALONE, REFUSED_WITH_ALL, KILLS, HANGS, LARGE, HUNG_UP_ON = 0, 1, 2, 3, 4, 5, 6
# How long a large answer is: more than the output topic takes, in worlds where records must be
# small.
LARGE_BYTES = 8_000
# If a process hangs for this long, the server ends it.
HANGS_S = 8.0


class Deadly(Poison):
    """A call with such a row gets no answers: the model's process ends after `after_s`, or the
    server hangs up. `code`: the error by which the row must be answered in the end.
    """

    def __init__(self, code: ErrorCode, loss: Transient, after_s: float = 0.0) -> None:
        super().__init__(code, str(loss))
        self.loss = loss
        self.after_s = after_s


def echo(payload: Payload) -> Answers:
    """The answers of the model to rows in any form."""
    pairs = _pairs(payload)
    flags = {flag for _, flag in pairs}
    if flags & {KILLS, HANGS}:
        died = WorkerDied("Worker died.")
        raise Deadly("model_rejected", died, 0.0 if KILLS in flags else HANGS_S)
    if HUNG_UP_ON in flags:
        raise Deadly("unavailable", HungUp("the server hung up"))
    if REFUSED_WITH_ALL in flags:
        raise Rejected("model_rejected", "a row made the handler raise")
    errors = {index: "no" for index, (_, flag) in enumerate(pairs) if flag == REFUSED_ALONE}
    values = [
        b"null" if index in errors else _answer(number, flag)
        for index, (number, flag) in enumerate(pairs)
    ]
    return Answers(values, errors)


def _answer(number: int, flag: int) -> bytes:
    if flag == LARGE:
        return b'{"n":%d,"pad":"%b"}' % (number, b"x" * LARGE_BYTES)
    return b'{"n":%d}' % number


def _pairs(payload: Payload) -> list[Any]:
    if isinstance(payload, Matrix):
        pairs: list[Any] = payload.values.tolist()
        return pairs
    if isinstance(payload, BytesRows):
        return [_pair_of(bytes(payload.row(index))) for index in range(payload.rows)]
    assert isinstance(payload, JsonRows)
    return [_pair(row) for row in orjson.loads(b"[%b]" % bytes(payload.body))]


def _pair_of(line: bytes) -> Any:
    """The two numbers of a line of text. A line without two numbers gets the flag with which the
    model refuses it.
    """
    number, _, flag = line.partition(b",")
    return (int(number), int(flag)) if number.isdigit() and flag.isdigit() else (0, REFUSED_ALONE)


def _pair(row: object) -> Any:
    """The two numbers of a JSON row. A row without two numbers gets the flag with which the model
    refuses it.
    """
    if isinstance(row, list) and len(row) == 2 and all(_is_number(cell) for cell in row):
        return row
    return (0, REFUSED_ALONE)


def _is_number(cell: object) -> bool:
    return isinstance(cell, int | float)
