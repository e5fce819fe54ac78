"""When does an open scene close, and why?

Rule: a scene closes at once when all members are in it. If members are missing, the scene closes
after the patience if a quorum is in it, and otherwise at the deadline. Two kinds of scenes wait for
the deadline and not for the patience: those with a single member that is far ahead of all others,
and those of the past to which members are still on their way. This module judges a scene, the site
changes it. Owner: the `Site`.
"""

from penstock.messages.scene import ClosedBy
from penstock.scenes.core.arrival import Arrival
from penstock.scenes.core.members import Members
from penstock.scenes.core.rules import BEHIND_MS, Rules
from penstock.scenes.core.state import Open, SiteState


class Closing:
    def __init__(self, rules: Rules, state: SiteState, members: Members) -> None:
        self._rules = rules
        self._state = state
        self._members = members

    def reason(self, scene: Open) -> ClosedBy | None:
        """Why the scene closes now. None: the scene stays open."""
        rules, waited = self._rules, self._state.now - scene.start
        if self._members.is_settled and (all_in := self._members.all_in(scene.taken)):
            return all_in
        if self.is_led(scene):
            return None
        if not self._is_awaited(scene):
            if waited >= rules.patience_ms and len(scene.taken) >= max(1, rules.quorum):
                return "quorum"
            event_time = self._members.event_time()
            if event_time is not None and event_time >= scene.time + rules.deadline_ms:
                return "deadline"
        return "deadline" if waited >= rules.deadline_ms else None

    def is_beyond(self, member: str, arrival: Arrival, time: int, since: int) -> bool:
        """True if the prediction's time is so far ahead that all other members, at the pace of the
        wall clock, would not reach it by the deadline. Only a prediction of the past (`_is_past`)
        can be beyond the others; predictions of the present are compared with Kafka's clock
        instead.
        """
        if not _is_past(time, arrival.recorded_ms):
            return False
        pace = self._members.pace(member, since - self._rules.deadline_ms)
        return pace is not None and time - since > pace + self._rules.deadline_ms

    def is_led(self, scene: Open) -> bool:
        """True if the scene has a single member, and that member is beyond all others
        (`is_beyond`). Either this member's clock is wrong or the other members are still coming, so
        the deadline must decide. If the scene were published now, all other members would be late.
        """
        if len(scene.taken) > 1:
            return False
        ((member, arrival),) = scene.taken.items()
        return self.is_beyond(member, arrival, scene.times[member], scene.start)

    def _is_awaited(self, scene: Open) -> bool:
        """True if this is a scene of the past (`_is_past`) and members are still on their way to
        it. Such a scene waits until the deadline instead of for the patience.
        """
        member, arrival = next(iter(scene.taken.items()))
        if not _is_past(scene.times[member], arrival.recorded_ms):
            return False
        return self._members.are_coming(scene.taken, scene.time)


def _is_past(time: int, recorded_ms: int) -> bool:
    """True if the event is much older than its record in Kafka. Either the prediction is from a
    recording then, or the predicting worker is behind.
    """
    return time < recorded_ms - BEHIND_MS
