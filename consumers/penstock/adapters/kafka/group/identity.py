"""Who we are to the group, and the name under which a member keeps its place over a restart.

Rule: a transaction carries who we are, and the group refuses one of a member that it has gone on
without. A name is one member's alone. `{hostname}` makes it so where each worker has a host of its
own, as in a StatefulSet; a supervisor adds its processes' numbers. Owner: the sources.
"""

import re
import socket
from typing import Final, NamedTuple, Protocol

from penstock import config
from penstock.errors import Fenced, usage
from penstock.ports import Source

HOSTNAME: Final = "{hostname}"
# What Kafka's own client takes.
_ALLOWED: Final = re.compile(r"[a-zA-Z0-9._-]{1,249}")


def instance_of(settings: config.Kafka) -> str | None:
    """None: a member without a name, whose place is free when it leaves. Raises `Fatal`."""
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
    """`generation`: under the protocol `consumer`, the member's epoch."""

    group: str
    generation: int
    member_id: str
    instance_id: str | None

    def check(self) -> None:
        """Raises `Fenced` for who is no member: Kafka would take its transactions unseen."""
        if self.generation < 0 or not self.member_id:
            raise Fenced("this worker is not in the group at the moment")


class MemberSource(Source, Protocol):
    def member_of(self, topic: str) -> GroupMember:
        """Who we are now to the group that reads this topic."""
        ...
