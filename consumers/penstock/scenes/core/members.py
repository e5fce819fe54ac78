"""Who belongs to a site, and who of them is expected: members by list, or learned by leases.

Rule: a list follows the present rules, not its former members; a member is expected while its
lease runs; a silent one is evicted and welcomed back by its next prediction. Owner: the `Site`.
"""

from collections.abc import Collection

from penstock.messages.scene import ClosedBy
from penstock.scenes.core.rules import MOST_NAMES_CHARS, Rules
from penstock.scenes.core.state import Member, Reason, SiteState


class Members:
    def __init__(self, site: str, rules: Rules, state: SiteState) -> None:
        self._rules = rules
        self._state = state
        self._listed = rules.listed.get(site)

    def resume(self, passed_ms: int) -> None:
        """So many milliseconds nobody listened: silence during them is no member's fault. The list
        may have changed meanwhile.
        """
        state = self._state
        for member in state.members.values():
            member.heard = member.heard + passed_ms if member.is_evicted else state.now
        if self._listed is not None and state.members:
            for name in state.members.keys() - set(self._listed):
                del state.members[name]
            self._add_listed()

    def admit(self, name: str, said: int | None) -> Reason | None:
        """Renew its lease; or why it is no member."""
        state = self._state
        if self._listed is not None and not state.members:
            self._add_listed()
        self._pass_over_silence()
        member = state.members.get(name)
        if member is None:
            if self._listed is not None:
                return "stranger"
            if self._is_full(name) and not self._give_up_one():
                return "crowded"
            member = state.members[name] = Member(state.now)
            state.changed = state.now
        member.heard = state.now
        member.is_evicted = False
        member.said = member.said if said is None else said
        return None

    def _add_listed(self) -> None:
        """Those who are new have a lease from now on."""
        for name in self._listed or ():
            self._state.members.setdefault(name, Member(self._state.now))

    def _is_full(self, name: str) -> bool:
        members = self._state.members
        chars = len(name) + sum(map(len, members))
        return len(members) >= self._rules.max_members or chars > MOST_NAMES_CHARS

    def _give_up_one(self) -> bool:
        """Who is evicted and was silent the longest makes room for one who speaks."""
        members = self._state.members
        gone = [name for name, member in members.items() if member.is_evicted]
        if gone:
            del members[min(gone, key=lambda name: members[name].heard)]
        return bool(gone)

    def _pass_over_silence(self) -> None:
        """A site that was silent as a whole for a lease was so by no member's doing: it counts as
        the deadline, so that who spoke before it is expected.
        """
        state, rules = self._state, self._rules
        pause = state.now - self._last_heard()
        if pause <= rules.lease_ms:
            return
        for member in state.members.values():
            member.heard += max(0, pause - rules.deadline_ms)
            member.is_evicted = state.now - member.heard > rules.lease_ms

    def _last_heard(self) -> int:
        members = self._state.members.values()
        return max((member.heard for member in members), default=self._state.now)

    def expire(self) -> None:
        """Evict the silent, forget the long gone."""
        now, lease = self._state.now, self._rules.lease_ms
        gone = []
        for name, member in self._state.members.items():
            if now - member.heard > lease:
                member.is_evicted = True
                silent = self._last_heard() - member.heard
                if self._listed is None and silent > self._rules.forget_ms:
                    gone.append(name)
        for name in gone:
            del self._state.members[name]

    def leases_end(self) -> list[int]:
        """When each member that is expected is so no more, if it stays silent."""
        lease = self._rules.lease_ms
        return [m.heard + lease + 1 for m in self._state.members.values() if not m.is_evicted]

    @property
    def is_settled(self) -> bool:
        """Whether "everybody is there" means something: a site that is being learned would be
        complete with its first member.
        """
        since_change = self._state.now - self._state.changed
        return self._listed is not None or since_change >= self._rules.deadline_ms

    def all_in(self, taken: Collection[str]) -> ClosedBy | None:
        """`complete`: every member has a place; `members`: every one that is expected."""
        found: ClosedBy = "complete"
        for name, member in self._state.members.items():
            if name not in taken:
                if not member.is_evicted:
                    return None
                found = "members"
        return found

    def event_time(self) -> int | None:
        """What at least two members have passed, or the only one: one wrong clock moves nothing."""
        said = sorted(
            member.said
            for member in self._state.members.values()
            if member.said is not None and not member.is_evicted
        )
        return said[-2] if len(said) > 1 else said[0] if said else None

    def are_coming(self, taken: Collection[str], time: int) -> bool:
        """Whether a member whose lease runs is on the way to this time, by no more than a lease."""
        rules = self._rules
        return any(
            member.said is not None
            and time - rules.lease_ms <= member.said < time - rules.tolerance_ms
            and not member.is_evicted
            and name not in taken
            for name, member in self._state.members.items()
        )

    def pace(self, name: str, since: int) -> int | None:
        """By how much the fastest of the others who were heard `since` is ahead of the wall clock
        (most often less than nothing); None: they are fewer than two, and one against one says
        nothing.
        """
        paces = [
            member.said - member.heard
            for other, member in self._state.members.items()
            if other != name and member.said is not None and member.heard >= since
        ]
        return max(paces) if len(paces) > 1 else None
