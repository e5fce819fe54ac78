"""The open scenes of a site: to which a prediction belongs, and when and why one closes.

Rule: a scene closes at once when all members are in it, after the patience with a quorum, else at
the deadline. Two kinds wait for the deadline instead of the patience: a scene with a single member
that is far ahead of all others, and a scene of the past that members can still reach. This module
only judges; the site closes or drops.
"""

from bisect import bisect_left

from penstock.messages.scene import ClosedBy
from penstock.scenes.core.arrival import Arrival
from penstock.scenes.core.members_and_feeds import SiteMembers
from penstock.scenes.core.rules import BEHIND_MS, Rules
from penstock.scenes.core.state import Open, SiteState


def grid_time(time: int, rules: Rules) -> int | None:
    """The multiple of the period that is nearest to `time`. If two are equally near, it is the
    later one. None: the nearest multiple is farther away than the tolerance.
    """
    slot = (time + rules.period_ms // 2) // rules.period_ms * rules.period_ms
    return slot if abs(time - slot) <= rules.within_ms else None


def find(scenes: list[Open], slot: int, gap: int) -> Open | None:
    """The open scene whose time is nearest to this one, and no farther away than the gap."""
    at = bisect_left(scenes, slot, key=_time)
    near = scenes[max(0, at - 1) : at + 1]
    scene = min(near, key=lambda each: abs(each.time - slot), default=None)
    return scene if scene is not None and abs(scene.time - slot) <= gap else None


def insert(scenes: list[Open], scene: Open) -> None:
    scenes.insert(bisect_left(scenes, scene.time, key=_time), scene)


def near(scenes: list[Open], member: str, time: int, rules: Rules) -> Open | None:
    """The scene for a prediction of this member and time, among the open scenes within the
    tolerance. Among those in which the member has no place yet, it is the scene whose span stays
    smallest with the prediction. If the member has a place in each of them, it is the first of
    them. None: no open scene is within the tolerance.
    """
    within = [scene for scene in scenes if abs(time - scene.time) <= rules.within_ms]
    free = [scene for scene in within if member not in scene.taken]
    if free:
        return min(free, key=lambda scene: (_span_with(scene, time), scene.time))
    return within[0] if within else None


def lead(scenes: list[Open], scene: Open, time: int, floor: int | None) -> None:
    """Give the scene the time of the leader's prediction, unless the scenes would then be in
    another order. `floor`: the time of the last published scene.
    """
    at = scenes.index(scene)
    after_floor = floor is None or time > floor
    after_previous = at == 0 or scenes[at - 1].time < time
    before_next = at + 1 == len(scenes) or time < scenes[at + 1].time
    if after_floor and after_previous and before_next:
        scene.time = time


def _span_with(scene: Open, time: int) -> int:
    times = scene.times.values()
    return max(time, *times) - min(time, *times)


def _time(scene: Open) -> int:
    return scene.time


class Closing:
    def __init__(self, rules: Rules, state: SiteState, members: SiteMembers) -> None:
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
        """True if the prediction's time is so far ahead that no other member would reach it by the
        deadline, if that member's time moves on as fast as the wall clock. This is asked only of
        predictions of the past (`_is_past`), because predictions of the present are compared with
        Kafka's clock instead.
        """
        if not _is_past(time, arrival.recorded_ms):
            return False
        pace = self._members.pace(member, since - self._rules.deadline_ms)
        return pace is not None and time - since > pace + self._rules.deadline_ms

    def is_led(self, scene: Open) -> bool:
        """True if the scene has a single member, and that member is beyond all others
        (`is_beyond`). In this case the deadline must decide, because either this member's clock is
        wrong or the other members are still coming. If the scene were published at once, all other
        members would be late.
        """
        if len(scene.taken) > 1:
            return False
        ((member, arrival),) = scene.taken.items()
        return self.is_beyond(member, arrival, scene.times[member], scene.start)

    def _is_awaited(self, scene: Open) -> bool:
        """True if this is a scene of the past (`_is_past`) and members are still on their way to
        it. Such a scene waits for the deadline instead of the patience.
        """
        member, arrival = next(iter(scene.taken.items()))
        if not _is_past(scene.times[member], arrival.recorded_ms):
            return False
        return self._members.are_coming(scene.taken, scene.time)


def _is_past(time: int, recorded_ms: int) -> bool:
    """True if the event is much older than its record in Kafka. If so, the prediction comes from a
    recording, or the worker that made it was behind.
    """
    return time < recorded_ms - BEHIND_MS
