"""What a refusal by the group's coordinator means: a person must act, or the worker waits.

Rule: a refusal is known by its code in Kafka's protocol, so that both clients say the same about
it. A refusal that lasts is about the configuration of this worker or of the group: the process ends
with exit code 2. An instance id that is in use may be free again in a moment: the worker waits.
Owner: the clients.
"""

import asyncio
import logging
import math
from collections.abc import Mapping
from typing import Final

from penstock.errors import EXIT_UNREACHABLE, Fatal, usage

log = logging.getLogger(__name__)

INCONSISTENT_GROUP_PROTOCOL: Final = 23
INVALID_SESSION_TIMEOUT: Final = 26
GROUP_ID_NOT_FOUND: Final = 69
FENCED_INSTANCE_ID: Final = 82
UNRELEASED_INSTANCE_ID: Final = 111

_SAID: Final[Mapping[int, str]] = {
    INCONSISTENT_GROUP_PROTOCOL: (
        "the group's members share no way of assigning partitions with this worker, and the broker "
        "will refuse it for as long as they run.\n"
        "Stop all members of kafka.group, then start them with one kafka.client, "
        "kafka.group_protocol and version; or give this worker a kafka.group of its own."
    ),
    # The broker also answers with this code if the group has the other protocol.
    GROUP_ID_NOT_FOUND: (
        'the group is none of kafka.group_protocol = "consumer": it has members of "classic", and '
        "the broker's group.consumer.migration.policy or their way of assigning does not let it "
        "change over while they run.\n"
        "Stop all members of kafka.group, then start them with one kafka.group_protocol; or give "
        "this worker a kafka.group of its own."
    ),
    INVALID_SESSION_TIMEOUT: (
        "the broker allows no such session.\n"
        "Set kafka.session_ms between its group.min.session.timeout.ms and "
        "group.max.session.timeout.ms."
    ),
    FENCED_INSTANCE_ID: (
        "another worker has joined the group under the kafka.instance_id of this one, and has its "
        "partitions now.\n"
        "Nothing is lost. Give each worker an id of its own, as by {hostname} in it."
    ),
}


# The codes of refusals that last.
LASTING: Final = frozenset(_SAID)

# The pause between two tries to get an instance id that is in use.
AGAIN_S: Final = 1.0
# How much longer than its session a dead member may keep its id: the broker looks for ended
# sessions by a clock of its own.
MARGIN_S: Final = 5.0
# During one wait the group refuses us every few seconds. A member without partitions does not learn
# that it got its id. So a refusal that comes this long after the last one begins a new wait.
APART_S: Final = 30.0


def refusal(code: int) -> Fatal:
    """The error for a code of `LASTING`."""
    return usage(f"error {code}: {_SAID[code]}")


class InstanceIdWait:
    """Waits for an instance id that the group still counts as in use.

    With the protocol `consumer` the broker gives an id to one member at a time, and a member that
    was killed counts until its session is over. If the id stays in use for longer, another member
    lives under it, and the process ends with exit code 3.
    """

    def __init__(self, session_s: float) -> None:
        self._most_s = session_s + MARGIN_S
        self._since_s: float | None = None
        self._last_s = -math.inf

    def end(self) -> None:
        """Call this when the group has given us the id: the next wait may again last the full
        time.
        """
        self._since_s = None

    async def pause(self, instance_id: str | None) -> None:
        """Wait between two tries. Raises `Fatal` when the whole wait has lasted too long."""
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
