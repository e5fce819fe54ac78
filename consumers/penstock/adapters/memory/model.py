"""A model in memory for tests and simulations.

Rule: the model keeps the same promises as the real adapters (all pass one contract suite). If a
test needs other answers, it gives the model a script. Owner: the test.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field

import numpy as np

from penstock.core.rows.payload import Matrix, Payload
from penstock.ports import Answers

Script = Callable[[Sequence[Payload]], Awaitable[Answers | None]]


@dataclass(slots=True)
class MemoryModel:
    """Answers each row with the sum of its numbers. `script`: a function that may wait, raise, or
    give other answers.
    """

    script: Script | None = None
    calls: list[list[Payload]] = field(default_factory=list)
    in_flight: int = 0
    most_in_flight: int = 0
    version: str | None = None
    most_rows: int | None = None

    async def predict(self, payloads: Sequence[Payload]) -> Answers:
        self.calls.append(list(payloads))
        self.in_flight += 1
        self.most_in_flight = max(self.most_in_flight, self.in_flight)
        try:
            answers = await self.script(payloads) if self.script is not None else None
            await asyncio.sleep(0)
        finally:
            self.in_flight -= 1
        return answers if answers is not None else sums(payloads)

    async def ready(self) -> bool:
        return True

    async def aclose(self) -> None:
        return


def sums(payloads: Sequence[Payload]) -> Answers:
    """`{"sum": x}` for each row of float32 payloads."""
    values: list[bytes] = []
    for payload in payloads:
        assert isinstance(payload, Matrix)
        values += [b'{"sum":%g}' % total for total in np.sum(payload.values, axis=1)]
    return Answers(values, {})
