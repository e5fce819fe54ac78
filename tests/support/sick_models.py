"""Model servers that are ill in known ways, as scripts of a `MemoryModel`, on virtual time.

Rule: they behave as TorchServe was seen to and keep count of what they were asked.
"""

import asyncio
import math
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field

import numpy as np

from penstock.core.rows.payload import Matrix, Payload
from penstock.errors import Overloaded, Rejected, Transient, WorkerDied
from penstock.ports import Answers


def values_of(payloads: Sequence[Payload]) -> list[float]:
    """The first number of every row."""
    found: list[float] = []
    for payload in payloads:
        assert isinstance(payload, Matrix)
        found += payload.values[:, 0].tolist()
    return found


@dataclass
class Poisoned:
    """The handler raises for these rows, so the whole request fails."""

    rows: Collection[float]
    requests: int = 0

    async def __call__(self, payloads: Sequence[Payload]) -> Answers | None:
        self.requests += 1
        if any(value in self.rows for value in values_of(payloads)):
            raise Rejected("model_rejected", "503 InternalServerException: Prediction failed")
        return None


@dataclass
class Away:
    """Fails with `error` until `until_s`; keeps when it was asked, and for how many rows."""

    error: Callable[[], Transient]
    until_s: float
    asked: list[tuple[float, int]] = field(default_factory=list)
    in_flight: int = 0
    most_in_flight: int = 0

    async def __call__(self, payloads: Sequence[Payload]) -> Answers | None:
        now_s = asyncio.get_running_loop().time()
        self.asked.append((now_s, len(values_of(payloads))))
        self.in_flight += 1
        self.most_in_flight = max(self.most_in_flight, self.in_flight)
        await asyncio.sleep(0.001)
        self.in_flight -= 1
        if now_s < self.until_s:
            raise self.error()
        return None


@dataclass
class Queueing:
    """One worker and a short queue: beyond it requests are refused at once."""

    room: int
    call_s: float = 0.010
    waiting: int = 0
    answered: int = 0
    refused_s: list[float] = field(default_factory=list)
    worker: asyncio.Lock = field(default_factory=asyncio.Lock)

    async def __call__(self, payloads: Sequence[Payload]) -> Answers | None:
        if self.waiting >= self.room:
            self.refused_s.append(asyncio.get_running_loop().time())
            raise Overloaded("503 ServiceUnavailableException")
        self.waiting += 1
        async with self.worker:
            await asyncio.sleep(self.call_s)
        self.waiting -= 1
        self.answered += 1
        return None


@dataclass
class Mortal:
    """One worker that takes its time: it dies of `killers`, and every `period_s` of something else.

    A new one is there after `recovery_s`; requests in the queue survive.
    """

    killers: Collection[float] = ()
    period_s: float = math.inf
    call_s: float = 0.010
    recovery_s: float = 2.0
    deaths: int = 0
    requests: int = 0
    up_s: float = 0.0
    worker: asyncio.Lock = field(default_factory=asyncio.Lock)

    async def __call__(self, payloads: Sequence[Payload]) -> Answers | None:
        self.requests += 1
        loop = asyncio.get_running_loop()
        async with self.worker:
            if loop.time() < self.up_s:
                await asyncio.sleep(self.up_s - loop.time())
            began_s = loop.time()
            await asyncio.sleep(self.call_s)
            if self._dies(values_of(payloads), began_s, loop.time()):
                self.deaths += 1
                self.up_s = loop.time() + self.recovery_s
                raise WorkerDied("507 InternalServerException: Worker died.")
        return None

    def _dies(self, values: list[float], began_s: float, ended_s: float) -> bool:
        is_struck = began_s // self.period_s != ended_s // self.period_s
        return is_struck or any(value in self.killers for value in values)


def row(value: float) -> Matrix:
    """As rows of the test's CSV are."""
    return Matrix(np.full((1, 2), value, np.float32))
