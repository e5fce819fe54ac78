"""Which members a site has, which are expected, whether all are in, and how far each of its
feeds has come.

Rule: if the settings list members, these are the members, whatever the state remembers. Each
prediction renews its member's lease; a member is expected while it runs, then evicted, and back
with its next prediction.
"""

from collections.abc import Collection

from penstock.messages.scene import ClosedBy
from penstock.scenes.core.arrival import Arrival
from penstock.scenes.core.rules import MOST_NAMES_CHARS, Rules
from penstock.scenes.core.state import Mark, Reason, SiteMember, SiteState


class SiteMembers:
    def __init__(self, site: str, rules: Rules, state: SiteState) -> None:
        self._rules = rules
        self._state = state
        self._listed = rules.listed.get(site)

    def resume(self, passed_ms: int) -> None:
        """Go on after a time during which no worker listened. This time does not count as silence
        of the members, so the leases of expected members begin anew. If the list in the settings
        has changed, follow the new list.
        """
        state = self._state
        for member in state.members.values():
            member.heard = member.heard + passed_ms if member.is_evicted else state.now
        if self._listed is not None and state.members:
            for name in state.members.keys() - set(self._listed):
                del state.members[name]
            self._add_listed()

    def admit(self, name: str, time: int | None) -> Reason | None:
        """Renew the member's lease. Returns why the member is refused, or None if it is not
        refused. `time`: the event time that the member's prediction states; None if none.
        """
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
            member = state.members[name] = SiteMember(state.now)
            state.changed = state.now
        member.heard = state.now
        member.is_evicted = False
        member.said = member.said if time is None else time
        return None

    def _add_listed(self) -> None:
        """Add every name on the list that is not a member yet. The leases of these members start
        now.
        """
        for name in self._listed or ():
            self._state.members.setdefault(name, SiteMember(self._state.now))

    def _is_full(self, name: str) -> bool:
        members = self._state.members
        chars = len(name) + sum(map(len, members))
        return len(members) >= self._rules.max_members or chars > MOST_NAMES_CHARS

    def _give_up_one(self) -> bool:
        """Make room for a new member by removing the evicted member that was silent longest.
        Returns False if there is no room, because no member is evicted.
        """
        members = self._state.members
        gone = [name for name, member in members.items() if member.is_evicted]
        if gone:
            del members[min(gone, key=lambda name: members[name].heard)]
        return bool(gone)

    def _pass_over_silence(self) -> None:
        """If the whole site was silent for longer than a lease, count this pause as only one
        deadline. It is not the fault of a single member, so members that were heard just before the
        pause must still be expected.
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
        """Evict the members whose lease has ended. Forget the learned members that were silent for
        `forget_ms`.
        """
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
        """The times at which the leases of the expected members end if the members stay silent."""
        lease = self._rules.lease_ms
        return [m.heard + lease + 1 for m in self._state.members.values() if not m.is_evicted]

    @property
    def is_settled(self) -> bool:
        """True if all members are known. If members are learned, all count as known only when
        `deadline_ms` has passed since the last new member came. Without this wait, the first member
        alone would make a scene complete.
        """
        since_change = self._state.now - self._state.changed
        return self._listed is not None or since_change >= self._rules.deadline_ms

    def all_in(self, taken: Collection[str]) -> ClosedBy | None:
        """Returns `complete` if every member has a place in the scene; `members` if only evicted
        members have no place; and None if an expected member has no place. `taken`: the names of
        the members with a place.
        """
        closed_by: ClosedBy = "complete"
        for name, member in self._state.members.items():
            if name not in taken:
                if not member.is_evicted:
                    return None
                closed_by = "members"
        return closed_by

    def event_time(self) -> float | None:
        """The site's event time: the latest time that at least two members have reached. Two are
        required so that one wrong clock cannot move the event time. If the site has a single
        member, its event time is that member's time.
        """
        times = sorted(
            member.beat
            for member in self._state.members.values()
            if member.beat is not None and not member.is_evicted
        )
        return times[-2] if len(times) > 1 else times[0] if times else None

    def are_coming(self, taken: Collection[str], time: int) -> bool:
        """True if a member is on its way to this time: the member is expected, has no place in the
        scene, and its last prediction is older than this time, but by no more than a lease.
        `taken`: the names of the members with a place in the scene.
        """
        rules = self._rules
        return any(
            member.beat is not None
            and time - rules.lease_ms <= member.beat < time
            and not member.is_evicted
            and name not in taken
            for name, member in self._state.members.items()
        )

    def pace(self, name: str, since: int) -> int | None:
        """By how many milliseconds the fastest member other than `name` is ahead of the wall clock;
        usually negative. Only members that were heard since `since` count. Returns None if there
        are fewer than two such members: if only two clocks can be compared, nothing shows which of
        them is wrong.
        """
        paces = [
            member.said - member.heard
            for other, member in self._state.members.items()
            if other != name and member.said is not None and member.heard >= since
        ]
        return max(paces) if len(paces) > 1 else None


class FeedProgress:
    """Recognises repeats. With at-least-once delivery a feed may go back, so a record at or before
    its feed's last position is a repeat. The event time of a repeat is never later than the latest
    event time of its feed. Therefore, if a record has a lower position but a later event time, it
    is not a repeat: it shows that the input topic was created again.
    """

    def __init__(self, rules: Rules, state: SiteState) -> None:
        self._rules = rules
        self._state = state

    def resume(self, passed_ms: int) -> None:
        """Move the noted times forward by the time during which no worker ran."""
        for mark in self._state.marks.values():
            mark.heard += passed_ms

    def is_repeat(self, arrival: Arrival) -> bool:
        marks, time, now, feed = self._state.marks, arrival.time, self._state.now, arrival.feed
        mark = marks.get(feed)
        if mark is not None and mark.model not in ("", arrival.model):
            # Several models may answer a row, so each model has a position of its own in a feed.
            feed = f"{arrival.model}#{feed}"
            mark = marks.get(feed)
        if mark is None:
            self._make_room()
            marks[feed] = Mark(arrival.position, time, now, arrival.model)
            return False
        mark.model = arrival.model
        mark.heard = now
        is_newer = time is not None and mark.time is not None and time > mark.time
        if arrival.position <= mark.position and not is_newer:
            return True
        mark.position = arrival.position
        mark.time = time if mark.time is None or is_newer else mark.time
        return False

    def _make_room(self) -> None:
        """Forget the feeds that were silent longest. The number of feeds must be bounded, because a
        sender may invent any number of stream names.
        """
        marks, most = self._state.marks, 4 * self._rules.max_members
        while len(marks) >= most or sum(map(len, marks)) > MOST_NAMES_CHARS:
            del marks[min(marks, key=lambda feed: marks[feed].heard)]
