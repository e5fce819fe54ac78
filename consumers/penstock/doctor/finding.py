"""What one look found.

Rule: each look has a deadline of its own, and one that fails does not keep the others from being
made. Owner: the command `doctor`.
"""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Literal, NamedTuple

from msgspec.structs import replace

from penstock import config
from penstock.errors import PenstockError

# A person waits for the answer, so a service that takes longer is reported as failed.
LOOK_S = 15.0

Level = Literal["ok", "mind", "wrong"]


class Finding(NamedTuple):
    """`said`: what was found, or what is wrong and how to correct it. "mind": it works, but may
    cost something.
    """

    what: str
    level: Level
    said: str

    @property
    def is_well(self) -> bool:
        return self.level != "wrong"


def hurried(kafka: config.Kafka) -> config.Kafka:
    """So that a broker that is away is told before the look's own deadline."""
    return replace(kafka, timeout_ms=min(kafka.timeout_ms, int(LOOK_S * 1000) - 1_000))


async def found(what: str, look: Callable[[], Awaitable[str]]) -> Finding:
    async def one() -> list[Finding]:
        return [Finding(what, "ok", await look())]

    (finding,) = await all_found(what, one)
    return finding


async def all_found(what: str, look: Callable[[], Awaitable[list[Finding]]]) -> list[Finding]:
    """`what`: where no look is possible."""
    try:
        async with asyncio.timeout(LOOK_S):
            return await look()
    except PenstockError as error:
        return [Finding(what, "wrong", str(error))]
    except TimeoutError:
        return [Finding(what, "wrong", f"no answer within {LOOK_S:g} s")]
