"""Which scene a prediction belongs to: by a grid, by a leader, or by the smallest span.

Rule: this module picks a scene, the site changes it. Times are corrected by `scenes.offsets_ms`.
Owner: the `Site`.
"""

from bisect import bisect_left

from penstock.scenes.core.rules import Rules
from penstock.scenes.core.state import Open


def grid_time(time: int, rules: Rules) -> int | None:
    """The nearest multiple of the period. If two are equally near, the later one. None if the
    nearest one is farther away than the tolerance.
    """
    slot = (time + rules.period_ms // 2) // rules.period_ms * rules.period_ms
    return slot if abs(time - slot) <= rules.tolerance_ms else None


def find(scenes: list[Open], slot: int) -> Open | None:
    """The open scene of exactly this time."""
    at = bisect_left(scenes, slot, key=_time)
    return scenes[at] if at < len(scenes) and scenes[at].time == slot else None


def insert(scenes: list[Open], scene: Open) -> None:
    scenes.insert(bisect_left(scenes, scene.time, key=_time), scene)


def near(scenes: list[Open], member: str, time: int, rules: Rules) -> Open | None:
    """Only the open scenes within the tolerance count. Returns the one that lacks this member and
    whose span stays smallest with this prediction. If each of them has the member already, returns
    the first one. None: no open scene is within the tolerance.
    """
    within = [scene for scene in scenes if abs(time - scene.time) <= rules.tolerance_ms]
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
