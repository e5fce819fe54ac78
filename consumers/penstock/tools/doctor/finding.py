"""Runs a check, with a deadline of its own; what it finds, and an error that it raises, become
findings.
"""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Literal, NamedTuple

from msgspec.structs import replace

from penstock import config
from penstock.errors import PenstockError

# The deadline of a check. A person waits for the result, so a service that takes longer is reported
# as failed.
LOOK_S = 15.0

Level = Literal["ok", "mind", "wrong"]


class Finding(NamedTuple):
    """`what`: the thing that was checked. `said`: the result of the check, or what is wrong and how
    to correct it. The level "mind" means: this works, but it may cost something.
    """

    what: str
    level: Level
    said: str

    @property
    def is_well(self) -> bool:
        return self.level != "wrong"


def hurried(kafka: config.Kafka) -> config.Kafka:
    """The same settings with a shorter `kafka.timeout_ms`. So if no broker answers, the client's
    own error comes before the deadline of the check.
    """
    return replace(kafka, timeout_ms=min(kafka.timeout_ms, int(LOOK_S * 1000) - 1_000))


async def run_check(what: str, look: Callable[[], Awaitable[str]]) -> Finding:
    """Run a check that gives one finding. `look`: a function that returns a text if all is well,
    and else raises `PenstockError`.
    """

    async def one() -> list[Finding]:
        return [Finding(what, "ok", await look())]

    (finding,) = await run_checks(what, one)
    return finding


async def run_checks(what: str, look: Callable[[], Awaitable[list[Finding]]]) -> list[Finding]:
    """Run a check that returns several findings. `what`: if the check fails, the name of its only
    finding.
    """
    try:
        async with asyncio.timeout(LOOK_S):
            return await look()
    except PenstockError as error:
        return [Finding(what, "wrong", str(error))]
    except TimeoutError:
        return [Finding(what, "wrong", f"no answer within {LOOK_S:g} s")]
