"""The shadow model of a simulated worker. In each call it may be slow, mute, away or wrong, or it
may have another opinion than the live model.

Rule: the shadow draws from a random source of its own and notes nothing in the history. So a world
has the same history with a shadow and without one, unless the shadow disturbs live work. Owner: one
simulation.
"""

import asyncio
from collections import Counter
from collections.abc import Awaitable, Sequence
from random import Random

from penstock.core.comparing.comparison import Agreement
from penstock.core.rows.payload import Payload
from penstock.errors import Fatal, Overloaded, Poison, Unreachable
from penstock.messages.shadow import ModelId
from penstock.ports import Answers, Outgoing
from penstock.stages.shadow_asking import ShadowPlan
from penstock.stages.shadow_topic import ShadowTerms
from penstock.tools.simulation.process_and_faults import Process
from penstock.tools.simulation.unreliable_services import AskModel

MANNERS = ("agrees", "differs", "slow", "mute", "away", "full", "refuses", "wrong", "too few")
# How long a mute shadow is silent: longer than most worlds last.
MUTE_S = 600.0


def drawn_shadow(random: Random) -> ShadowPlan:
    pick = random.choice
    return ShadowPlan(
        ShadowTerms("predictions.shadow", ModelId("rows"), "shade", 0.0, ()),
        percent=pick((10.0, 50.0, 100.0)),
        agreement=Agreement(),
        rows=pick((4, 100, 10_000)),
        nbytes=pick((500, 1 << 20)),
        call_rows=pick((1, 7, 512)),
        callers=pick((1, 3)),
    )


class SimulatedShadow:
    """The shadow model, as this worker's connection reaches it. `seen`: for each manner of
    answering, how many calls met it.
    """

    version: str | None = None
    most_rows: int | None = None

    def __init__(self, ask: AskModel, process: Process, random: Random, seen: Counter[str]) -> None:
        self._ask = ask
        self._process = process
        self._random = random
        self._seen = seen

    async def predict(self, payloads: Sequence[Payload]) -> Answers:
        await self._process.gate()
        manner = self._random.choice(MANNERS)
        self._seen[f"shadow {manner}"] += 1
        if manner in ("slow", "mute"):
            await asyncio.sleep(MUTE_S if manner == "mute" else 10 * self._random.random())
        if manner in ("mute", "away"):
            raise Unreachable("the shadow is away")
        if manner == "full":
            raise Overloaded("the shadow has too much to do")
        if manner == "refuses":
            raise Poison("model_rejected", "the shadow will not have it")
        if manner == "wrong":
            raise Fatal("there is no such shadow")
        answers = self._ask(payloads)
        if manner == "too few":
            raise Poison("model_mismatch", "one answer is missing")
        if manner == "differs":
            return Answers([b'"other"'] * len(answers.values), {})
        return answers

    async def ready(self) -> bool:
        return False

    async def aclose(self) -> None:
        return


class ShadowSink:
    """A producer for the shadow's topic. It often fails."""

    def __init__(self, process: Process, random: Random) -> None:
        self._process = process
        self._random = random

    async def start(self) -> None:
        await self._process.gate()
        if self._random.random() < 0.3:
            raise Unreachable("the broker is away")

    async def partitions(self, topic: str) -> int:
        return self._random.choice((0, 1, 3))

    async def send(self, outgoing: Outgoing) -> Awaitable[None]:
        await self._process.gate()
        await asyncio.sleep(self._random.choice((0.0, 0.1, 30.0)))
        report: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        if self._random.random() < 0.3:
            report.set_exception(Fatal("the broker did not take a batch"))
        else:
            report.set_result(None)
        return report

    def fits(self, topic: str, key: bytes | None, value_bytes: int) -> bool:
        return value_bytes < 2_000

    async def forget(self) -> None:
        return

    async def stop(self) -> None:
        await asyncio.sleep(self._random.choice((0.0, 5.0)))
