"""Who we are to the group. A transaction carries it, and the group refuses one of a member that it
has gone on without.
"""

from typing import NamedTuple, Protocol

from penstock.errors import Fenced
from penstock.ports import Source


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
