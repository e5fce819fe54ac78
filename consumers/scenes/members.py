"""Who belongs to a site, and who of them is expected: members by list, or learned by leases.

Rule: a member is expected while its lease runs; a silent one is evicted and welcomed back by its
next prediction. Owner: the `Site`.
"""

from collections.abc import Collection

from consumers.scenes.rules import Rules
from consumers.scenes.state import Member, Reason, SiteState

# A learned member is forgotten after so many leases; until then scenes show it as evicted.
FORGOTTEN_AFTER = 10


class Members:
    def __init__(self, site: str, rules: Rules, state: SiteState) -> None:
        self._rules = rules
        self._state = state
        self._listed = rules.listed.get(site)

    def admit(self, name: str, said: int | None) -> Reason | None:
        """Renew its lease; or why it is no member."""
        state = self._state
        self._start_list()
        self._pass_over_silence()
        member = state.members.get(name)
        if member is None:
            if self._listed is not None:
                return "stranger"
            if len(state.members) >= self._rules.max_members:
                return "crowded"
            member = state.members[name] = Member(state.now)
            state.changed = state.now
        member.heard = state.now
        member.is_evicted = False
        member.said = member.said if said is None else said
        return None

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

    def _start_list(self) -> None:
        """Listed members have a lease from the site's first prediction on."""
        if self._listed is not None and not self._state.members:
            self._state.members.update((name, Member(self._state.now)) for name in self._listed)

    def expire(self) -> None:
        """Evict the silent, forget the long gone."""
        now, lease = self._state.now, self._rules.lease_ms
        gone = []
        for name, member in self._state.members.items():
            if now - member.heard > lease:
                member.is_evicted = True
                silent = self._last_heard() - member.heard
                if self._listed is None and silent > FORGOTTEN_AFTER * lease:
                    gone.append(name)
        for name in gone:
            del self._state.members[name]

    def renew_all(self) -> None:
        """Nobody listened for a while: silence during it is no member's fault."""
        for member in self._state.members.values():
            if not member.is_evicted:
                member.heard = self._state.now

    @property
    def is_settled(self) -> bool:
        """Whether "everybody is there" means something: a site that is being learned would be
        complete with its first member.
        """
        since_change = self._state.now - self._state.changed
        return self._listed is not None or since_change >= self._rules.deadline_ms

    def has_all(self, taken: Collection[str]) -> bool:
        """Has every member that is expected a place?"""
        members = self._state.members
        return all(member.is_evicted or name in taken for name, member in members.items())

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
