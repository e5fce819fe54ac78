"""Who a member is to its group: its generation, its member id, and its instance id.

Rule: a transaction carries all three, and is refused if the group has gone on without the member.
Under its instance id a member keeps its partitions over a restart, so two members may never have
the same instance id. `{hostname}` in the setting tells members apart where each has a host of its
own, as in a StatefulSet; a supervisor adds the number of each of its processes. Owner: the sources.
"""

import re
import socket
from typing import Final, NamedTuple, Protocol

from penstock import config
from penstock.errors import Fenced, usage
from penstock.ports import Source

HOSTNAME: Final = "{hostname}"
# The instance ids that Kafka's own client accepts.
_ALLOWED: Final = re.compile(r"[a-zA-Z0-9._-]{1,249}")


def instance_of(settings: config.Kafka) -> str | None:
    """The member's instance id. None: the member has none, so its partitions move as soon as it
    leaves. Raises `Fatal` if Kafka does not accept the id.
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
    """`generation`: with the protocol `consumer` it is the member's epoch."""

    group: str
    generation: int
    member_id: str
    instance_id: str | None

    def check(self) -> None:
        """Raises `Fenced` if this worker is not in the group now: it has no generation or no member
        id then, and Kafka would accept its transactions without checking them.
        """
        if self.generation < 0 or not self.member_id:
            raise Fenced("this worker is not in the group at the moment")


class MemberSource(Source, Protocol):
    def member_of(self, topic: str) -> GroupMember:
        """Who this worker is now to the group that reads this topic."""
        ...
