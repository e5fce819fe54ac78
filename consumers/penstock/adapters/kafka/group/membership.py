"""How a member identifies itself to its group, and what a worker does while the group refuses it.

Rule: a refusal is recognised by its code, so both clients report it in the same words. One about
the configuration of worker or group is exit code 2. An instance id that is in use may be free in a
moment: the worker waits. A worker that cannot join would look healthy and never read: after a
deadline exit code 3.
"""

import asyncio
import logging
import math
import re
import socket
from collections.abc import Awaitable, Callable, Mapping
from typing import Final, NamedTuple, Protocol

from penstock import config
from penstock.errors import EXIT_UNREACHABLE, Fatal, Fenced, Transient, usage
from penstock.ports import InputSource

log = logging.getLogger(__name__)

HOSTNAME: Final = "{hostname}"
# The pattern of the instance ids that Kafka's own client accepts.
_ALLOWED: Final = re.compile(r"[a-zA-Z0-9._-]{1,249}")


def instance_of(settings: config.Kafka) -> str | None:
    """The member's instance id. None: the member has none, so its partitions move as soon as it
    leaves. Raises `Fatal` if Kafka does not accept the id.

    Under its instance id a member keeps its partitions over a restart, so two members may never
    have the same instance id. If each member runs on a host of its own, as in a StatefulSet,
    `{hostname}` in the setting makes the ids differ. A supervisor adds to the id the number of each
    of its processes.
    """
    if settings.instance_id is None:
        return None
    name = settings.instance_id.replace(HOSTNAME, socket.gethostname())
    if not _ALLOWED.fullmatch(name):
        raise usage(
            f"kafka.instance_id = {settings.instance_id!r} makes {name!r}; Kafka takes up to 249 "
            f"of a-z, A-Z, 0-9, '.', '_' and '-', and {HOSTNAME} stands for this host's name"
        )
    return name


class GroupMember(NamedTuple):
    """A worker's membership in one group. Each transaction carries it, so that the broker can
    refuse the transaction if the group has gone on without the member. `generation`: with the
    protocol `consumer` it is the member's epoch.
    """

    group: str
    generation: int
    member_id: str
    instance_id: str | None

    def check(self) -> None:
        """Raises `Fenced` if this worker is not in the group now. Outside the group, a worker lacks
        a generation or a member id. Kafka would then accept its transactions without checking them.
        """
        if self.generation < 0 or not self.member_id:
            raise Fenced("this worker is not in the group at the moment")


class MemberSource(InputSource, Protocol):
    def member_of(self, topic: str) -> GroupMember:
        """This worker's present membership in the group that reads this topic."""
        ...


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
    # The broker sends this code also if the group has the other protocol.
    GROUP_ID_NOT_FOUND: (
        'the group does not have kafka.group_protocol = "consumer" but members of "classic", and '
        "the broker's group.consumer.migration.policy or their way of assigning does not let the "
        "group change over while they run.\n"
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
        "Nothing is lost. Give each worker an id of its own, for example with {hostname} in it."
    ),
}
# The codes of refusals that last.
LASTING: Final = frozenset(_SAID)


def refusal(code: int) -> Fatal:
    """The error for a code of `LASTING`."""
    return usage(f"error {code}: {_SAID[code]}")


# The pause between two tries to get an instance id that is in use.
AGAIN_S: Final = 1.0
# A dead member may keep its instance id this much longer than its session, because the broker
# measures sessions by a clock of its own.
MARGIN_S: Final = 5.0
# During one wait the group refuses us every few seconds. If the group accepts us without giving us
# partitions, we do not learn that the wait is over. So a refusal that comes this long after the
# last one begins a new wait.
APART_S: Final = 30.0


class InstanceIdWait:
    """Waits for an instance id that the group still counts as in use.

    With the protocol `consumer` the broker gives an instance id to one member at a time, and a
    killed member keeps its id until its session is over. If the id stays in use for longer, a
    living member has it, and this process ends with exit code 3.
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
        """Pause between two tries to get the id. Raises `Fatal` when all pauses together have
        lasted too long.
        """
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
                f"kafka.instance_id {instance_id} has been in use for longer than a dead member's "
                "session: another worker has it.\n"
                "End that worker, or give this one an id of its own.",
                exit_code=EXIT_UNREACHABLE,
            )
        await asyncio.sleep(AGAIN_S)


# The deadline of a question for metadata; a healthy broker answers within milliseconds.
ANSWER_S: Final = 2.0
ASK_EVERY_S: Final = 4.0
SESSIONS: Final = 2
GO_ON: Final = "Nothing is lost: start the worker again, it goes on at the last commit."


class JoinDeadline:
    """Ends a worker that cannot join its group.

    A join may take the time that members have to hand their partitions back, plus twice the
    session. If the worker is no member after that time, although the broker answers other
    questions, waiting longer does not help, so the worker ends. While the broker does not answer or
    has no input topic, the worker waits, up to `kafka.timeout_ms`. (The check of topics tells
    people about a missing topic.) `ask`: a function that asks the broker something, and raises
    `Transient` if no answer comes.
    """

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

    async def check(self, since_s: float) -> None:
        """Raises `Fatal` if the join has taken too long. `since_s`: when the current rebalance
        began.
        """
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
