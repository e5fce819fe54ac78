"""Decides for one site: from predictions and the time to decided scenes and refused predictions.

Rule: each prediction is given out once, in a scene or refused. Scenes are given out in the order of
their times; a published one may be amended, never contradicted.
"""

from collections.abc import Mapping
from typing import NamedTuple

from msgspec.structs import replace

from penstock.messages.scene import ClosedBy, Status
from penstock.scenes.core import open_scenes
from penstock.scenes.core.arrival import Arrival, without_answer
from penstock.scenes.core.members_and_feeds import FeedProgress, SiteMembers
from penstock.scenes.core.rhythm import Rhythm
from penstock.scenes.core.rules import Rules
from penstock.scenes.core.state import Decided, Open, Reason, Refused, SiteState


class Decisions(NamedTuple):
    scenes: list[Decided]
    refused: list[Refused]


# After a take-over a site must be silent for this many leases before it may end, because the time
# at which the site was last heard was measured by another machine's clock.
GRACE_LEASES = 10


class Site:
    """All times `now` are milliseconds of the same clock; which clock that is does not matter. If
    the clock goes back, the site treats it as a clock that stands still.
    """

    def __init__(self, name: str, rules: Rules, state: SiteState | None = None) -> None:
        self.name = name
        self.state = SiteState() if state is None else state
        self._rules = rules
        self._members = SiteMembers(name, rules, self.state)
        self._closing = open_scenes.Closing(rules, self.state, self._members)
        self._feeds = FeedProgress(rules, self.state)
        self._rhythm = Rhythm(rules, self.state)
        self._scenes: list[Decided] = []
        self._refused: list[Refused] = []
        self._heard = self._looked_at = self.state.now
        self._may_be_sooner = True
        self._ends_first = 0

    def resume(self, now: int) -> None:
        """Go on after a restart. All times of the state are moved to the clock of `now`, for two
        reasons: the time during which no worker listened must not use up leases or patience, and
        the clocks of two machines may differ.
        """
        state, rules = self.state, self._rules
        passed = now - state.now
        for scene in state.open:
            scene.start += passed
        self._feeds.resume(passed)
        state.changed += passed
        self._heard = min(self._heard, now)
        self._ends_first = now + min(rules.forget_ms, GRACE_LEASES * rules.lease_ms)
        state.now = now
        self._may_be_sooner = True
        self._members.resume(passed)

    def arrive(self, arrival: Arrival, member: str, now: int) -> None:
        """Take a prediction of one of the site's streams."""
        self._heard = self.state.now = max(self.state.now, now)
        self._count("arrived")
        if self._rules.model not in (None, arrival.model):
            if not arrival.is_empty:
                self._refuse(arrival, member, "other_model", None)
            return
        if self._feeds.is_repeat(arrival):
            self._count("duplicate")
            return
        time = arrival.time
        if time is not None:
            time += self._rules.offsets_ms.get(member, 0)
        self._members.expire()
        why = self._members.admit(member, time)
        if arrival.is_empty:
            self._count("empty")
        elif why is not None:
            self._refuse(arrival, member, why, None)
        elif time is None:
            self._refuse(arrival, member, "no_time", None)
        elif time > arrival.recorded_ms + self._rules.ahead_ms:
            # If the prediction were accepted, it would open and close a scene in the future, and
            # all other members would be late.
            self._refuse(arrival, member, "ahead", None)
        else:
            self._place(arrival, member, time)
        self._may_be_sooner |= self.state.changed == self.state.now
        self._close()

    def tick(self, now: int) -> None:
        """Evict silent members and close the scenes whose time is over."""
        self.state.now = max(self.state.now, now)
        self._may_be_sooner = True
        self._members.expire()
        self._close()

    def take(self) -> Decisions:
        """The decisions since the last call."""
        taken = Decisions(self._scenes, self._refused)
        self._scenes, self._refused = [], []
        return taken

    @property
    def has_decided(self) -> bool:
        """True if there are decisions to `take`."""
        return bool(self._scenes or self._refused)

    @property
    def is_over(self) -> bool:
        """True if the site has been silent for so long that it ends."""
        return not self.state.open and self.state.now >= self._ends_at

    @property
    def heard(self) -> int:
        """The time of the last prediction."""
        return self._heard

    def finish(self) -> None:
        """Decide all open scenes now."""
        while self.state.open:
            self.shed()

    def next_look(self) -> int | None:
        """The time at which `tick` must be called, unless a prediction comes before that time.
        None: the time that was returned last still holds.
        """
        if not self._may_be_sooner:
            return None
        self._may_be_sooner = False
        state, rules = self.state, self._rules
        moments = self._members.leases_end()
        if state.open:
            moments += (state.open[0].start + rules.patience_ms, state.changed + rules.deadline_ms)
            moments += (scene.start + rules.deadline_ms for scene in state.open)
        else:
            moments.append(self._ends_at)
        return min((each for each in moments if each > self._looked_at), default=state.now)

    @property
    def _ends_at(self) -> int:
        return max(self._heard + self._rules.forget_ms, self._ends_first)

    def lighten(self) -> bool:
        """Called because the state does not fit into one record: drop the answers of the scene with
        the most bytes of answers. Returns False if there was no answer left to drop.
        """
        held = [scene.taken for scene in self.state.open]
        held += [scene.taken for scene in self.state.decided]
        heaviest = max(held, key=_weight, default={})
        is_lighter = _weight(heaviest) > 0
        heaviest.update((name, without_answer(each)) for name, each in heaviest.items())
        return is_lighter

    def shed(self) -> bool:
        """Decide the earlier half of the open scenes now, and drop the decided scenes that could be
        amended. The ledger calls this method when the state nearly fills a record even without
        answers. Returns False if nothing was decided.
        """
        scenes = self.state.open
        for scene in [scenes.pop(0) for _ in range((len(scenes) + 1) // 2)]:
            if self._closing.is_led(scene):
                self._dissolve(scene)
            else:
                self._count("forced")
                self._emit(scene, "deadline")
        self.state.decided = []
        return self.has_decided

    def _place(self, arrival: Arrival, member: str, time: int) -> None:
        rules, scenes = self._rules, self.state.open
        slot = self._slot(member, time)
        if slot is None:
            self._refuse(arrival, member, "off_grid", None)
            return
        if rules.anchor in ("rhythm", "grid"):
            scene = open_scenes.find(scenes, slot, self._gap)
        else:
            scene = open_scenes.near(scenes, member, time, rules)
        if scene is None:
            scene = self._opened(arrival, member, slot, time)
        elif member in scene.taken:
            self._refuse(arrival, member, "surplus", scene.time)
            return
        if scene is not None:
            scene.taken[member] = arrival
            scene.times[member] = time
            if member == rules.leader:
                open_scenes.lead(scenes, scene, time, self.state.emitted)

    def _slot(self, member: str, time: int) -> int | None:
        """The time of the scene to which the prediction belongs, if there is no such scene yet.
        None: it belongs to none.
        """
        if self._rules.anchor == "rhythm":
            return self._rhythm.instant(self.state.members[member], time)
        return open_scenes.grid_time(time, self._rules) if self._rules.anchor == "grid" else time

    @property
    def _gap(self) -> int:
        """If a prediction's slot is this close to a scene's time (in milliseconds), it belongs to
        that scene.
        """
        if self._rules.anchor == "rhythm":
            return int(self._rhythm.period_ms / 2)
        return 0 if self._rules.anchor == "grid" else self._rules.within_ms

    def _opened(self, arrival: Arrival, member: str, slot: int, time: int) -> Open | None:
        """A new open scene for the prediction. None: the prediction was refused, or it amended a
        decided scene.
        """
        floor = self._floor()
        if floor is not None and slot <= floor:
            self._late(arrival, member, slot, time)
            return None
        if len(self.state.open) >= self._rules.max_open:
            why = self._make_room(arrival, member, slot, time)
            if why is not None:
                self._refuse(arrival, member, why, slot if why == "overload" else None)
                return None
        # If the prediction's time is in the future, patience and deadline begin only then.
        due = self._rhythm.last_due(slot) if self._rules.anchor == "rhythm" else time
        scene = Open(slot, self.state.now + max(0, time - arrival.recorded_ms, due - time))
        open_scenes.insert(self.state.open, scene)
        self._may_be_sooner = True
        return scene

    def _make_room(self, arrival: Arrival, member: str, slot: int, time: int) -> Reason | None:
        """The site has as many open scenes as it may have. Try to remove one, so that there is room
        for a new one. Returns None if there is room now; if not, returns why the prediction is
        refused.
        """
        scenes = self.state.open
        if self._closing.is_beyond(member, arrival, time, self.state.now):
            return "ahead"
        if self._closing.is_led(scenes[-1]):
            self._dissolve(scenes.pop())
        elif slot < scenes[0].time:
            return "overload"
        else:
            self._count("forced")
            self._emit(scenes.pop(0), "deadline")
        return None

    def _floor(self) -> int | None:
        """No scene may open at or before this time, because a scene of this or a later time was
        published, or is ready to be published. Without this floor, a member whose clock says 1970
        would keep opening early scenes, and all other scenes would have to wait for those.
        """
        emitted = self.state.emitted
        floors = [] if emitted is None else [emitted + self._gap]
        for scene in reversed(self.state.open):
            if self._closing.reason(scene) is not None:
                floors.append(scene.time)
                break
        return max(floors, default=None)

    def _late(self, arrival: Arrival, member: str, slot: int, time: int) -> None:
        for decided in self.state.decided if self._rules.late == "amend" else ():
            if abs(decided.time - slot) <= self._gap and member not in decided.taken:
                decided.revision += 1
                decided.taken[member] = arrival
                decided.times[member] = time
                decided.absent.pop(member, None)
                self._count("amended")
                self._give_out(decided)
                return
        self._refuse(arrival, member, "late", slot)

    def _close(self) -> None:
        """Decide the earliest open scene, again and again, until the earliest one has no reason to
        close.
        """
        self._looked_at = self.state.now
        scenes, over = self.state.open, self.state.now - self._rules.deadline_ms
        for scene in [each for each in scenes if each.start <= over and self._closing.is_led(each)]:
            scenes.remove(scene)
            self._dissolve(scene)
        while scenes and (why := self._closing.reason(scenes[0])) is not None:
            self._emit(scenes.pop(0), why)

    def _dissolve(self, scene: Open) -> None:
        """Drop the scene, and refuse the prediction of its only member, because the time of this
        prediction is far ahead of all others.
        """
        ((member, arrival),) = scene.taken.items()
        self._may_be_sooner = True
        self._refuse(arrival, member, "ahead", None)

    def _emit(self, scene: Open, why: ClosedBy) -> None:
        absent: dict[str, Status] = {
            name: "evicted" if member.is_evicted else "missing"
            for name, member in self.state.members.items()
            if name not in scene.taken
        }
        decided = Decided(scene.time, 1, why, scene.taken, scene.times, absent)
        self.state.emitted = scene.time
        self._may_be_sooner = True
        self._count(why)
        self._give_out(decided)
        if self._rules.late == "amend":
            self.state.decided = [*self.state.decided, decided][-self._rules.max_open :]

    def _give_out(self, decided: Decided) -> None:
        """Give out a copy, because an amendment may change the original before `take` is called."""
        taken, times, absent = dict(decided.taken), dict(decided.times), dict(decided.absent)
        self._scenes.append(replace(decided, taken=taken, times=times, absent=absent))

    def _refuse(self, arrival: Arrival, member: str, why: Reason, scene: int | None) -> None:
        self._count(why)
        self._refused.append(Refused(arrival, member, why, scene))

    def _count(self, what: str) -> None:
        self.state.counts[what] = self.state.counts.get(what, 0) + 1


def _weight(taken: Mapping[str, Arrival]) -> int:
    return sum(len(each.value) for each in taken.values())
