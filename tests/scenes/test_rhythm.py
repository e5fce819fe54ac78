"""Cameras without a common clock make scenes by the defaults."""

from collections import Counter
from collections.abc import Iterator
from random import Random
from typing import Any, NamedTuple

import pytest

from penstock.config.sections import Scenes
from penstock.scenes.core.arrival import Arrival
from penstock.scenes.core.site import Site
from penstock.scenes.core.state import dump, load
from penstock.scenes.settings import rules_of
from tests.scenes.flows import EPOCH, HOUR, arrival

TICK_MS = 10


class Cameras(NamedTuple):
    """`jitter_ms`: how far a frame's time may be from its camera's beat. `drift`: by what share the
    cameras' periods differ. `dropped`: the share of the frames that never come.
    """

    period_ms: float = 200
    jitter_ms: float = 50
    drift: float = 200e-6
    dropped: float = 0
    members: int = 8
    seconds: int = 60

    def frames(self, seed: int) -> Iterator[tuple[int, str, Arrival]]:
        """(now, member, arrival), in the order of arrival. Each camera begins at a time of its
        own.
        """
        random = Random(seed)
        frames = []
        for number in range(self.members):
            name = f"c{number}"
            period = self.period_ms * (1 + random.uniform(-self.drift, self.drift))
            begins = random.uniform(0, period)
            for offset in range(int((self.seconds * 1000 - begins) / period)):
                time = EPOCH + begins + offset * period
                time = round(time + random.uniform(-self.jitter_ms, self.jitter_ms))
                now = time + random.randint(20, 60)
                if random.random() >= self.dropped:
                    frames.append((now, name, arrival(name, offset, 0, time, now)))
        # A camera's frames may overtake each other by a jitter near half a period.
        frames.sort(key=lambda frame: frame[0])
        yield from frames


class Tally(Counter[str]):
    def take(self, site: Site, since: int) -> None:
        decisions = site.take()
        for scene in decisions.scenes:
            if scene.time >= since:
                self["scenes"] += 1
                self[scene.closed_by] += 1
                self["in"] += len(scene.taken)
        self["out"] += sum((each.arrival.time or 0) >= since for each in decisions.refused)


def played(cameras: Cameras, seed: int, passes_on: bool = False, **keys: Any) -> Tally:
    """What becomes of the frames after the first tenth of the time. `passes_on`: half-way another
    worker takes over, whose clock is an hour off.
    """
    rules, tally, wrong = rules_of(Scenes(**keys)), Tally(), 0
    site, at = Site("s", rules), EPOCH
    since = EPOCH + cameras.seconds * 100
    for now, member, frame in cameras.frames(seed):
        while at + TICK_MS <= now:
            at += TICK_MS
            site.tick(at + wrong)
            tally.take(site, since)
        if passes_on and now > EPOCH + cameras.seconds * 500:
            passes_on, wrong = False, HOUR
            site = Site("s", rules, load(dump(site.state)))
            site.resume(now + wrong)
        site.arrive(frame, member, now + wrong)
        tally.take(site, since)
    site.finish()
    tally.take(site, since)
    return tally


@pytest.mark.parametrize(
    ("cameras", "complete"),
    [
        (Cameras(), 0.95),
        (Cameras(members=2), 0.95),
        (Cameras(drift=2e-3), 0.95),
        (Cameras(dropped=0.03), 0.7),  # 0.97 ** 8 is 0.78
        (Cameras(period_ms=1000 / 15, jitter_ms=15), 0.95),
        (Cameras(period_ms=50, jitter_ms=10), 0.95),
        (Cameras(period_ms=2_000, jitter_ms=200, seconds=400), 0.95),
    ],
)
def test_predictions_are_in_scenes_of_all_by_the_defaults(
    cameras: Cameras, complete: float
) -> None:
    tally = played(cameras, 1)
    assert tally["out"] <= 0.01 * tally["in"]
    assert tally["complete"] >= complete * tally["scenes"]
    assert tally["scenes"] == pytest.approx(cameras.seconds * 900 / cameras.period_ms, rel=0.02)


def test_a_worker_that_takes_over_goes_on_with_the_rhythm() -> None:
    tally = played(Cameras(), 3, passes_on=True)
    assert tally["out"] <= 0.01 * tally["in"]
    assert tally["complete"] >= 0.95 * tally["scenes"]


def test_a_period_that_is_set_gives_scenes_its_multiples_as_times() -> None:
    site = Site("s", rules_of(Scenes(period_ms=200)))
    times = set()
    for now, member, frame in Cameras(seconds=20).frames(4):
        site.arrive(frame, member, now)
        times |= {scene.time % 200 for scene in site.take().scenes}
    assert times == {0}
    tally = played(Cameras(), 4, period_ms=200)
    assert tally["out"] <= 0.01 * tally["in"]
    assert tally["complete"] >= 0.95 * tally["scenes"]


def test_another_rate_is_followed() -> None:
    site, slow, fast = Site("s", rules_of(Scenes())), Cameras(seconds=30), Cameras(100, 20)
    for now, member, frame in slow.frames(5):
        site.arrive(frame, member, now)
    offset = 1 << 20
    for now, member, frame in fast.frames(6):
        later = frame.time + slow.seconds * 1000 if frame.time is not None else None
        number = offset + frame.position[0]
        site.arrive(arrival(member, number, 0, later, now + 30_000), member, now + 30_000)
    assert site.state.beat.period == pytest.approx(100, rel=0.01)


def test_cameras_that_are_gone_do_not_hold_the_rhythm_of_those_that_came_instead() -> None:
    site, tally = Site("s", rules_of(Scenes())), Tally()
    gone = Cameras(1000 / 30, 1, members=3, seconds=60)
    for now, member, frame in gone.frames(8):
        site.arrive(frame, member, now)
    since, at = EPOCH + 90_000, EPOCH + 60_000
    for came, member, frame in Cameras(40, 1, members=3, seconds=90).frames(9):
        now, time = came + 60_000, (frame.time or 0) + 60_000
        while at + TICK_MS <= now:
            at += TICK_MS
            site.tick(at)
            tally.take(site, since)
        name = f"new {member}"
        site.arrive(arrival(name, frame.position[0], 0, time, now), name, now)
    assert site.state.beat.period == pytest.approx(40, rel=0.01)
    assert tally["scenes"] == pytest.approx(60 * 25, rel=0.02)
    # All of those that are there are in the scene.
    assert tally["members"] >= 0.95 * tally["scenes"]


def test_a_time_far_from_its_members_rhythm_is_off_grid() -> None:
    tally = played(Cameras(jitter_ms=5), 7, tolerance_ms=10)
    assert tally["out"] <= 0.01 * tally["in"]
    assert played(Cameras(jitter_ms=50), 7, tolerance_ms=10)["out"] > tally["in"] / 2
