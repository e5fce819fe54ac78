"""What one look found.

Rule: each look has a deadline of its own, and one that fails does not keep the others from being
made. Owner: the command `doctor`.
"""

import asyncio
from collections.abc import Awaitable, Callable
from typing import NamedTuple

from penstock.errors import PenstockError

# A person waits for the answer, so a service that takes longer is reported as failed.
LOOK_S = 15.0


class Finding(NamedTuple):
    """`said`: what was found, or what is wrong and how to correct it."""

    what: str
    is_well: bool
    said: str


async def found(what: str, look: Callable[[], Awaitable[str]]) -> Finding:
    try:
        async with asyncio.timeout(LOOK_S):
            return Finding(what, True, await look())
    except PenstockError as error:
        return Finding(what, False, str(error))
    except TimeoutError:
        return Finding(what, False, f"no answer within {LOOK_S:g} s")
