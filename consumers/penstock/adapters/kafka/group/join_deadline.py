"""Ends a worker that cannot join its group. Otherwise the worker would look healthy, and never
read.

Rule: a join may take the time that members have to hand their partitions back, plus twice the
session. If the worker is no member after that, although the broker answers other questions, waiting
longer does not help: the process ends with exit code 3. While the broker does not answer or has no
input topic, the worker waits, up to `kafka.timeout_ms`; the check of topics tells people about a
missing topic. Both Kafka clients use this. Owner: the source.
"""

import asyncio
import math
from collections.abc import Awaitable, Callable
from typing import Final

from penstock.errors import EXIT_UNREACHABLE, Fatal, Transient

# The deadline of a question for metadata; a healthy broker answers within milliseconds.
ANSWER_S: Final = 2.0
ASK_EVERY_S: Final = 4.0
SESSIONS: Final = 2
GO_ON: Final = "Nothing is lost: start the worker again, it goes on at the last commit."


class JoinDeadline:
    """`ask` puts a question to the broker, and raises `Transient` unless it is answered."""

    def __init__(
        self,
        group: str,
        ask: Callable[[], Awaitable[object]],
        *,
        timeout_s: float,
        rebalance_s: float,
        session_s: float,
    ) -> None:
        self._group = group
        self._ask = ask
        self._timeout_s = timeout_s
        self._bound_s = rebalance_s + SESSIONS * session_s
        self._asked_s = self._silent_s = -math.inf

    async def check(self, since_s: float | None) -> None:
        """Raises `Fatal` if the join has taken too long. `since_s`: when the current rebalance
        began; None: this worker is a member.
        """
        if since_s is None:
            return
        now_s = asyncio.get_running_loop().time()
        if now_s - since_s > self._timeout_s:
            raise Fatal(
                f"Kafka did not let us join group {self._group} within {self._timeout_s:g} s.\n"
                "Is the coordinator up? Do the group's other members hand back their partitions "
                "in time?",
                exit_code=EXIT_UNREACHABLE,
            )
        if now_s - self._asked_s < ASK_EVERY_S:
            return
        self._asked_s = now_s
        if not await self._answers():
            self._silent_s = now_s
        elif now_s - max(since_s, self._silent_s) > self._bound_s:
            raise Fatal(
                f"the broker answers, but group {self._group} has not had us as a member for "
                f"{now_s - since_s:.0f} s, longer than a rebalance and twice the session.\n{GO_ON}",
                exit_code=EXIT_UNREACHABLE,
            )

    async def _answers(self) -> bool:
        try:
            async with asyncio.timeout(ANSWER_S):
                await self._ask()
        except (Transient, TimeoutError):
            return False
        return True
