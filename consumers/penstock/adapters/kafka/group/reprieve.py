"""How long a member waits for its own place: until the session of a dead one in it is over.

Rule: by the protocol `consumer` the broker gives nobody a name that is in use, and a member that
was killed counts for its session. If the name is in use for longer, another member lives under it,
and the process ends with exit code 3. Owner: the source.
"""

import asyncio
import logging
import math
from typing import Final

from penstock.errors import EXIT_UNREACHABLE, Fatal

log = logging.getLogger(__name__)

AGAIN_S: Final = 1.0
# The broker looks for ended sessions by a clock of its own.
MARGIN_S: Final = 5.0
# Refusals of one wait come every few seconds. A member without partitions is not told that it has a
# place: a refusal so long after the last one belongs to a wait of its own.
APART_S: Final = 30.0


class Reprieve:
    def __init__(self, session_s: float) -> None:
        self._most_s = session_s + MARGIN_S
        self._since_s: float | None = None
        self._last_s = -math.inf

    def over(self) -> None:
        """We have a place. If it is lost, the next one is waited for as long."""
        self._since_s = None

    async def wait(self, instance_id: str | None) -> None:
        """Between two tries. Raises `Fatal`."""
        now_s = asyncio.get_running_loop().time()
        is_apart = now_s - self._last_s > APART_S
        self._last_s = now_s
        if self._since_s is None or is_apart:
            self._since_s = now_s
            log.warning(
                "the group still counts a member %s; if it is dead, its session of %.0f s ends "
                "first",
                instance_id,
                self._most_s - MARGIN_S,
            )
        if now_s - self._since_s > self._most_s:
            raise Fatal(
                f"the group has kept the place {instance_id} (kafka.instance_id) for longer than "
                "a dead member's session: another worker has it.\n"
                "End that one, or give this one a name of its own.",
                exit_code=EXIT_UNREACHABLE,
            )
        await asyncio.sleep(AGAIN_S)
