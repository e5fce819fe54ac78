"""Figures of sites for people: last scenes, each member's skew, completeness over time; and of
predictions that have no site.

Rule: no decision depends on them. They cost time per scene, not per prediction; their memory is
bounded, and freed with the site.
"""

import logging
from collections import Counter, deque
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, Final, Literal, get_args

from penstock.core.diagnosis.problem import named, seconds
from penstock.messages.scene import Status
from penstock.scenes.core.site import Decisions, Site
from penstock.scenes.core.state import Decided, Reason, Refused

log = logging.getLogger(__name__)

# A frame that comes late now and then is normal; more than one in twenty is a wrong setting or a
# wrong clock. Once told, it is told until it is half as many.
IN_BULK: Final = 0.05
FEWEST: Final = 20
# A member of which so many predictions in a row are in no scene is named.
IN_A_ROW: Final = 10
# For these reasons no place in a scene is meant for the stream.
OF_NO_MEMBER: Final = {"other_model", "stranger", "crowded"}

MENDS: Final[Mapping[str, str]] = {
    "late": "they came after their scene had closed: raise scenes.patience_ms, or look at why "
    "their streams are slow; cameras that are triggered, not periodic, need "
    'scenes.anchor = "smallest" and a scenes.tolerance_ms',
    "surplus": "their member speaks more than once a period: set scenes.period_ms to the period of "
    "the fastest member",
    "off_grid": "their times are farther from the grid or the rhythm than scenes.tolerance_ms: "
    'leave scenes.anchor and scenes.tolerance_ms at "rhythm" and "auto"',
    "ahead": "their event time is ahead of Kafka's clock or of the other members: set the member's "
    "clock, or scenes.offsets_ms",
    "no_time": "they have no event time: announce objects with event_time, or take it from the key "
    "(kafka.time_from) or from a column (rows.time)",
    "other_model": "another model than scenes.model made them",
    "stranger": "their member is not on the site's list: add it to scenes.members",
    "crowded": "the site has scenes.max_members already: is scenes.site right?",
    "overload": "scenes.max_open scenes are undecided: members are too far apart in time",
    "no_site": "scenes.site finds no site and member in the names of their streams",
    "unreadable": "they are no predictions: scenes.input_topic must be the topic of answers",
}


def losses(refused: Mapping[str, int], placed: int, *, is_told: bool) -> str | None:
    """What to tell about this many refused predictions, beside `placed` in scenes. None: nothing.
    `is_told`: True if it was told already.
    """
    lost = sum(refused.values())
    if lost + placed < FEWEST or lost <= IN_BULK * (lost + placed) / (2 if is_told else 1):
        return None
    reason = max(refused, key=refused.__getitem__)
    share = f"{100 * lost / (lost + placed):.0f} %"
    return (
        f"{share} of the last minute's predictions are in no scene, most {reason}: {MENDS[reason]}"
    )


def lost_members(runs: Mapping[str, Refused]) -> str:
    """What to tell about members of which each prediction is in no scene, with their last ones."""
    last = list(runs.values())
    reason = Counter(each.reason for each in last).most_common(1)[0][0]
    ahead_ms = max((each.arrival.time or 0) - each.arrival.recorded_ms for each in last)
    by = f" by {seconds(ahead_ms / 1000)}" if reason == "ahead" and ahead_ms > 0 else ""
    return f"no prediction of {_listed(runs.keys())} is in a scene, {reason}{by}: {MENDS[reason]}"


LAST = 20
# What people see of all sites together has about this many characters: 1,000 sites of 20 members
# each have half as many.
MOST_LOOK_CHARS: Final = 4 << 20
_LOOK_CHARS: Final = 1_000
_MEMBER_CHARS: Final = 80
# A log line names so many members.
NAMED: Final = 8
# Completeness is kept for ten minutes, in steps of ten seconds.
STEP_MS = 10_000
STEPS = 60
# What is lost is judged by the steps of the last minute.
LOST_STEPS = 6
# Predictions without a site are judged this often.
JUDGED_MS: Final = 1_000
# The weight of a new scene in the mean of a member's skew. The mean covers about twenty scenes.
SKEW_WEIGHT = 0.05


class Step:
    """Counts the scenes of ten seconds: how many there were, how many of them were complete, how
    many places for members they had together, and how many of these places were taken. `refused`:
    predictions that are in no scene.
    """

    def __init__(self, since_ms: int) -> None:
        self.since_ms = since_ms
        self.scenes = 0
        self.complete = 0
        self.places = 0
        self.taken = 0
        self.refused: Counter[str] = Counter()


class Steps(deque[Step]):
    """The last steps, the present one at the end."""

    def __init__(self, most: int) -> None:
        super().__init__(maxlen=most)

    def at(self, now_ms: int) -> Step:
        since_ms = now_ms // STEP_MS * STEP_MS
        if not self or self[-1].since_ms != since_ms:
            self.append(Step(since_ms))
        return self[-1]

    def lost(self, now_ms: int, *, begun: int, is_told: bool) -> str | None:
        """What to tell about the last minute. The first `begun` steps are not judged."""
        judged = self.judged(now_ms, begun)
        refused = sum((step.refused for step in judged), Counter[str]())
        return losses(refused, sum(step.taken for step in judged), is_told=is_told)

    def judged(self, now_ms: int, begun: int) -> list[Step]:
        since_ms = now_ms - LOST_STEPS * STEP_MS
        return [step for step in list(self)[begun:] if step.since_ms >= since_ms]


class KeyedFigures:
    """Counts the predictions that this worker has read, and those of them that have no site: these
    are in no site's figures. `totals`: by `arrived`, `no_site`, `unreadable`.
    """

    def __init__(self, wall_ms: Callable[[], int]) -> None:
        self._wall_ms = wall_ms
        self._steps = Steps(LOST_STEPS + 1)
        self._lost: str | None = None
        self._judged_ms = 0
        self._stream = ""
        self.totals = {"arrived": 0, "no_site": 0, "unreadable": 0}

    def placed(self) -> None:
        self.totals["arrived"] += 1
        self._steps.at(self._wall_ms()).taken += 1

    def refused(self, reason: Literal["no_site", "unreadable"], stream: str) -> None:
        now_ms = self._wall_ms()
        self.totals["arrived"] += 1
        self.totals[reason] += 1
        self._stream = stream
        self._steps.at(now_ms).refused[reason] += 1
        if now_ms - self._judged_ms >= JUDGED_MS:
            self.judge()

    def judge(self) -> str | None:
        """What to tell now; None: nothing."""
        self._judged_ms = self._wall_ms()
        before = self._lost
        self._lost = self._steps.lost(self._judged_ms, begun=0, is_told=before is not None)
        if self._lost is not None:
            self._lost += f"; the last of {named(self._stream)}"
        if before is None and self._lost is not None:
            log.warning("%s", self._lost)
        if before is not None and self._lost is None:
            log.info("predictions have a site again")
        return self._lost


class SiteView:
    """The figures of one site."""

    def __init__(self) -> None:
        self.last: deque[dict[str, Any]] = deque(maxlen=LAST)
        self.absent: Mapping[str, Status] = {}
        self.skews: dict[str, float] = {}
        self.steps = Steps(STEPS)
        self.lost: str | None = None
        # For each member whose last predictions are in no scene: how many, and the last of them.
        self._runs: dict[str, tuple[int, Refused]] = {}

    def judge(self, site: str, now_ms: int) -> None:
        """Tell it when many predictions are in no scene, or no longer. In a site's first step its
        rhythm is learned, so the step is not judged.
        """
        before = self.lost
        self.lost = self.steps.lost(now_ms, begun=1, is_told=before is not None)
        runs = {name: last for name, (count, last) in self._runs.items() if count >= IN_A_ROW}
        if runs and self.steps.judged(now_ms, begun=1):
            self.lost = lost_members(runs)
        if before is None and self.lost is not None:
            log.warning("site %s: %s", site, self.lost)
        if before is not None and self.lost is None:
            log.info("site %s: its predictions are in scenes again", site)

    def refuse(self, refused: Sequence[Refused], now_ms: int) -> None:
        self.steps.at(now_ms).refused.update(each.reason for each in refused)
        for each in refused:
            if each.reason not in OF_NO_MEMBER:
                count, _ = self._runs.get(each.member, (0, each))
                self._runs[each.member] = count + 1, each

    def add(self, site: str, scene: Decided, now_ms: int) -> None:
        self.last.append(_scene(scene))
        if scene.revision == 1 and scene.absent != self.absent:
            _tell(site, _evicted(self.absent), _evicted(scene.absent))
            self.absent = dict(scene.absent)
        for member in self._runs.keys() & scene.taken.keys():
            del self._runs[member]
        for member, time in scene.times.items():
            skew = time - scene.time
            before = self.skews.get(member, skew)
            self.skews[member] = before + SKEW_WEIGHT * (skew - before)
        for member in self.skews.keys() - scene.times.keys() - scene.absent.keys():
            del self.skews[member]  # the site has forgotten the member
        if scene.revision == 1:
            self._count(scene, now_ms)

    def _count(self, scene: Decided, now_ms: int) -> None:
        step = self.steps.at(now_ms)
        step.scenes += 1
        step.complete += scene.closed_by == "complete"
        step.taken += len(scene.taken)
        step.places += len(scene.taken) + len(scene.absent)


class SiteFigures:
    """The figures of all sites in our partitions."""

    def __init__(self, wall_ms: Callable[[], int]) -> None:
        self._wall_ms = wall_ms
        self._views: dict[str, SiteView] = {}

    def decided(self, site: str, decisions: Decisions) -> None:
        if not decisions.scenes and not decisions.refused:
            return
        view = self._views.get(site)
        if view is None:
            view = self._views[site] = SiteView()
        now_ms = self._wall_ms()
        if decisions.refused:
            view.refuse(decisions.refused, now_ms)
        for scene in decisions.scenes:
            view.add(site, scene, now_ms)
        if decisions.refused or view.lost is not None:
            view.judge(site, now_ms)

    def forget(self, site: str) -> None:
        self._views.pop(site, None)

    def clear(self) -> None:
        self._views.clear()

    def look(self, site: Site) -> dict[str, Any]:
        """The figures of a site, as a JSON document; times are epoch milliseconds."""
        view, state = self._views.get(site.name) or SiteView(), site.state
        if view.lost is not None:
            view.judge(site.name, self._wall_ms())
        return {
            "site": site.name,
            "partition": state.partition,
            "members": [
                {
                    "member": name,
                    "state": _state(member.is_evicted, name in view.absent),
                    "heard": member.heard,
                    "skew_ms": _rounded(view.skews.get(name)),
                }
                for name, member in sorted(state.members.items())
            ],
            "open": len(state.open),
            "emitted": state.emitted,
            "counts": state.counts,
            "in_no_scene": sum(state.counts.get(reason, 0) for reason in get_args(Reason)),
            "lost": view.lost,
            "last": list(reversed(view.last)),
            "completeness": [
                {
                    "since": step.since_ms,
                    "scenes": step.scenes,
                    "complete": step.complete,
                    "present": round(step.taken / max(1, step.places), 4),
                }
                for step in view.steps
            ],
        }


def _evicted(absent: Mapping[str, Status]) -> set[str]:
    return {name for name, status in absent.items() if status == "evicted"}


def _tell(site: str, before: set[str], now: set[str]) -> None:
    if now - before:
        message = "evicted, as silent for longer than scenes.lease_ms while others spoke"
        log.warning("site %s: %s: %s", site, _listed(now - before), message)
    if before - now:
        log.info("site %s: no longer evicted: %s", site, _listed(before - now))


def _listed(members: Collection[str]) -> str:
    shown = ", ".join(sorted(members)[:NAMED])
    return shown if len(members) <= NAMED else f"{shown} and {len(members) - NAMED} more"


def chars_of(look: Mapping[str, Any]) -> int:
    """About how many characters the figures of a site take, as a document and as metrics."""
    site, members = len(look["site"]), [len(each["member"]) for each in look["members"]]
    absent = [len(name) for scene in look["last"] for name in scene["absent"]]
    metrics = (len(members) + 1) * site
    return _LOOK_CHARS + metrics + sum(members) + sum(absent) + _MEMBER_CHARS * len(members)


def _state(is_evicted: bool, is_absent: bool) -> str:
    """A member's state. `late` means that the member's lease still runs, but that the member had no
    place in the last scene.
    """
    return "gone" if is_evicted else "late" if is_absent else "present"


def _rounded(skew: float | None) -> float | None:
    return None if skew is None else round(skew, 1)


def _scene(scene: Decided) -> dict[str, Any]:
    return {
        "time": scene.time,
        "revision": scene.revision,
        "closed_by": scene.closed_by,
        "present": len(scene.taken),
        "members": len(scene.taken) + len(scene.absent),
        "span_ms": scene.span_ms,
        "absent": sorted(scene.absent),
    }
