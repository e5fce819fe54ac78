"""A site decides: against a slow model by seeds, and case by case."""

from collections import Counter
from dataclasses import replace
from random import Random
from typing import Any

import cramjam
import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.scenes.core.arrival import Arrival
from penstock.scenes.core.rules import Rules
from penstock.scenes.core.site import Decisions, Site
from penstock.scenes.core.state import Decided, OtherForm, dump, load
from tests.scenes.flows import EPOCH, HOUR, arrival, flow, rules
from tests.scenes.model import SlowSite
from tests.scenes.near_model import SlowNear

LISTED = {"s": ["a", "b", "c"]}


def in_short(decisions: Decisions) -> tuple[list[Any], list[tuple[str, str]]]:
    """As the model says it."""
    scenes = [
        (
            each.time,
            each.revision,
            each.closed_by,
            {name: taken.id for name, taken in each.taken.items()},
            each.absent,
        )
        for each in decisions.scenes
    ]
    return scenes, [(each.arrival.id, each.reason) for each in decisions.refused]


ANCHORS: dict[str, tuple[type[SlowSite], dict[str, Any]]] = {
    "grid": (SlowSite, {}),
    "smallest": (SlowNear, {"anchor": "smallest"}),
    "leader": (SlowNear, {"anchor": "leader", "leader": "c0"}),
}
# What is learned has no slow model; what holds for every anchor is asked of it, too.
SHAPES = {name: changes for name, (_, changes) in ANCHORS.items()} | {
    "rhythm": {"anchor": "rhythm"},
    "learned": {"anchor": "rhythm", "period_ms": 0, "tolerance_ms": None},
}


@pytest.mark.parametrize(
    ("anchor", "first"),
    # 2,000 seeds of each were tried; those of the anchors that share all but `place` are fewer.
    [("grid", first) for first in range(0, 1_000, 250)] + [("smallest", 0), ("leader", 250)],
)
def test_it_says_what_the_slow_model_says(first: int, anchor: str) -> None:
    slow, changes = ANCHORS[anchor]
    for seed in range(first, first + 250):
        random = Random(seed)
        shape = replace(rules(random), **changes)
        site, model = Site("s", shape), slow("s", shape)
        scenes: list[Any] = []
        refused: list[tuple[str, str]] = []
        for now, member, found in flow(random, shape, random.choice((8, 15, 30))):
            if found is None:
                site.tick(now)
                model.tick(now)
            else:
                site.arrive(found, member, now)
                model.arrive(found, member, now)
            more = in_short(site.take())
            scenes += more[0]
            refused += more[1]
            if random.random() < 0.02:
                site = Site("s", shape, load(dump(site.state)))
        assert scenes == model.scenes, seed
        assert refused == model.refused, seed
        is_once(site, scenes, refused, model.seen)


def is_once(site: Site, scenes: list[Any], refused: list[tuple[str, str]], seen: set[str]) -> None:
    """Each prediction in one place, scenes in order, and what is open is bounded."""
    places = Counter(id for id, _ in refused)
    last = {time: ids for time, _, _, ids, _ in scenes}
    places.update(id for ids in last.values() for id in ids.values())
    places.update(taken.id for each in site.state.open for taken in each.taken.values())
    assert set(places) == seen
    assert set(places.values()) <= {1}
    first = [time for time, revision, *_ in scenes if revision == 1]
    assert first == sorted(set(first))
    assert len(site.state.open) <= site._rules.max_open


@pytest.mark.parametrize("anchor", SHAPES)
def test_it_is_looked_at_only_when_it_is_due_and_misses_nothing(anchor: str) -> None:
    """One site is looked at every 5 ms, the other when it said so: both say the same then."""
    looks = Counter[str]()
    for seed in range(200):
        random = Random(seed)
        shape = replace(rules(random), **SHAPES[anchor])
        events = list(flow(random, shape, 15))
        always, seldom, due, at = Site("s", shape), Site("s", shape), 0, events[0][0]
        for now, member, found in events:
            while at < now:
                at += 5
                always.tick(at)
                looks["always"] += 1
                if due <= at:
                    seldom.tick(at)
                    looks["seldom"] += 1
                    due = seldom.next_look() or 0
                assert in_short(seldom.take()) == in_short(always.take()), (seed, at)
            if found is not None:
                for site in (always, seldom):
                    site.arrive(found, member, max(at, now))
                due = min(due, seldom.next_look() or due)
                assert in_short(seldom.take()) == in_short(always.take()), (seed, now)
    assert looks["seldom"] < looks["always"] / 2


@given(
    st.sampled_from([Rules(**changes) for changes in SHAPES.values()]),
    st.integers(0, 1 << 32),
)
def test_every_prediction_is_in_one_place_whatever_the_anchor(shape: Rules, seed: int) -> None:
    random = Random(seed)
    site, scenes, refused, seen = Site("s", shape), [], [], set()
    for now, member, found in flow(random, shape, 20):
        if found is None:
            site.tick(now)
        else:
            site.arrive(found, member, now)
            seen.add(found.id)
        more = in_short(site.take())
        scenes += more[0]
        refused += more[1]
    is_once(site, scenes, refused, seen)


@pytest.mark.parametrize("anchor", SHAPES)
def test_lives_whose_clocks_and_lists_differ_lose_nothing_and_wait_for_nobody(anchor: str) -> None:
    for seed in range(150):
        random = Random(seed)
        shape = replace(rules(random), **SHAPES[anchor])
        site, scenes, refused, seen, wrong = Site("s", shape), [], [], set[str](), 0
        for now, member, found in flow(random, shape, 25):
            if random.random() < 0.03:
                wrong = random.choice((0, -HOUR, HOUR, 10_000 * HOUR, -10_000 * HOUR))
                listed = {"s": [f"c{n}" for n in range(6) if random.random() < 0.5]}
                shape = replace(shape, listed=random.choice((listed, {})))
                site = Site("s", shape, load(dump(site.state)))
                site.resume(now + wrong)
            if found is None:
                site.tick(now + wrong)
            else:
                site.arrive(found, member, now + wrong)
                seen.add(found.id)
            more = in_short(site.take())
            scenes += more[0]
            refused += more[1]
        is_once(site, scenes, refused, seen)
        # By a learned rhythm the last member may be due two periods after the first.
        site.tick(now + wrong + 1_000 + shape.deadline_ms + round(2 * site.state.beat.period))
        assert not site.state.open, seed


class Desk:
    """Says predictions of one site; `at` counts milliseconds from the epoch of the tests."""

    def __init__(self, **changes: Any) -> None:
        changes.setdefault("listed", LISTED)
        self.site = Site("s", Rules(**changes))
        self.offset = 0

    def say(self, member: str, time: int, at: int | None = None, error: bool = False) -> str:
        self.offset += 1
        now = EPOCH + (time if at is None else at)
        found = arrival(member, self.offset, 0, EPOCH + time, now, error)
        self.site.arrive(found, member, now)
        return found.id

    def tick(self, at: int) -> None:
        self.site.tick(EPOCH + at)

    def scenes(self) -> list[Decided]:
        return self.site.take().scenes

    def reasons(self) -> list[str]:
        return [each.reason for each in self.site.take().refused]


def test_a_scene_with_everybody_in_it_is_complete_at_once() -> None:
    desk = Desk()
    ids = {member: desk.say(member, skew, 30) for member, skew in (("a", -20), ("b", 0), ("c", 20))}
    (scene,) = desk.scenes()
    assert {name: taken.id for name, taken in scene.taken.items()} == ids
    assert (scene.time, scene.span_ms, scene.closed_by) == (EPOCH, 40, "complete")


def test_an_error_counts_as_arrived() -> None:
    desk = Desk()
    for member in "abc":
        desk.say(member, 0, 30, error=member == "b")
    (scene,) = desk.scenes()
    assert scene.closed_by == "complete"


@pytest.mark.parametrize(
    ("quorum", "closed_by", "waited"),
    [(0, "quorum", 100), (2, "quorum", 100), (3, "deadline", 500)],
)
def test_a_missing_member_is_waited_for(quorum: int, closed_by: str, waited: int) -> None:
    desk = Desk(quorum=quorum)
    desk.say("a", 0, 10)
    desk.say("b", 0, 10)
    desk.tick(10 + waited - 1)
    assert not desk.scenes()
    desk.tick(10 + waited)
    (scene,) = desk.scenes()
    assert (scene.closed_by, scene.absent) == (closed_by, {"c": "missing"})


def test_event_time_closes_too() -> None:
    desk = Desk(quorum=3)
    desk.say("a", 0, 1_000)
    for member in "ab":
        desk.say(member, 500, 1_001)
    (scene,) = desk.scenes()
    assert (scene.time, scene.closed_by) == (EPOCH, "deadline")


def test_a_dead_member_is_evicted_and_welcomed_back() -> None:
    desk = Desk(lease_ms=200)
    for time in range(0, 400, 50):
        desk.say("a", time)
        desk.say("b", time)
    desk.tick(1_000)
    closed = [(scene.closed_by, scene.absent["c"]) for scene in desk.scenes()]
    assert closed[0] == ("quorum", "missing")
    desk = Desk(lease_ms=200)
    for time in range(0, 400, 50):
        for member in "ab":
            desk.say(member, time)
    last = desk.scenes()[-1]
    assert (last.closed_by, last.absent) == ("members", {"c": "evicted"})
    assert desk.site.state.counts.get("complete") is None
    for member in "cab":
        desk.say(member, 400)
    assert (scene := desk.scenes()[-1]).closed_by == "complete"
    assert not scene.absent


def test_members_are_learned_before_anything_is_complete() -> None:
    desk = Desk(listed={})
    for time in range(0, 700, 50):
        for member in "abc":
            desk.say(member, time, time + 1)
    closed = [(scene.closed_by, len(scene.taken)) for scene in desk.scenes()]
    assert closed[0] == ("quorum", 3)
    assert closed[-1] == ("complete", 3)


@pytest.mark.parametrize(
    ("late", "reasons", "revisions"), [("topic", ["late"], []), ("amend", [], [2])]
)
def test_what_comes_late(late: Any, reasons: list[str], revisions: list[int]) -> None:
    desk = Desk(late=late)
    desk.say("a", 0, 0)
    desk.tick(100)
    assert len(desk.scenes()) == 1
    id = desk.say("b", 0, 150)
    scenes, refused = desk.site.take()
    assert [each.reason for each in refused] == reasons
    assert [each.revision for each in scenes] == revisions
    assert all(each.taken["b"].id == id for each in scenes)
    assert desk.site.state.counts["late" if reasons else "amended"] == 1


def test_a_repeat_changes_nothing() -> None:
    desk = Desk()
    found = arrival("a", 1, 0, EPOCH, EPOCH)
    for _ in range(3):
        desk.site.arrive(found, "a", EPOCH)
    desk.tick(100)
    desk.site.arrive(found, "a", EPOCH + 200)
    scenes, refused = desk.site.take()
    assert (len(scenes), refused, desk.site.state.counts["duplicate"]) == (1, [], 3)


def test_an_input_topic_made_anew_is_no_repeat() -> None:
    desk = Desk()
    desk.site.arrive(arrival("a", 1_000, 0, EPOCH, EPOCH), "a", EPOCH)
    desk.site.arrive(arrival("a", 0, 0, EPOCH + 50, EPOCH + 50), "a", EPOCH + 50)
    assert "duplicate" not in desk.site.state.counts


WRONG = {"ahead": HOUR, "a little": 200, "1970": -EPOCH}


@pytest.mark.parametrize(
    ("wrong", "is_live"),
    [
        ("ahead", True),
        ("ahead", False),
        ("1970", True),
        ("1970", False),
        ("a little", True),
        ("a little", False),
    ],
)
def test_one_wrong_clock_spoils_no_other_member(wrong: str, is_live: bool) -> None:
    """Recorded: everything is long past for Kafka's clock, so that only the others show it."""
    site = Site("s", Rules(listed=LISTED))
    scenes = []
    for step in range(100):
        due = EPOCH + step * 50
        now = due + (20 if is_live else 24 * HOUR)
        for member, time in (("a", due + WRONG[wrong]), ("b", due), ("c", due)):
            site.arrive(arrival(member, step, 0, time, now), member, now)
        site.tick(now + 40)
        found, refused = site.take()
        scenes += found
        assert {each.member for each in refused} <= {"a"}
    site.tick(EPOCH + 25 * HOUR)
    scenes += site.take().scenes
    right = [each for each in scenes if {"b", "c"} <= each.taken.keys()]
    assert len(right) == 100


def test_a_member_a_hundred_times_too_fast_is_bounded() -> None:
    desk = Desk()
    for step in range(20):
        for tick in range(100):
            desk.say("a", step * 50 + tick // 5)
        for member in "bc":
            desk.say(member, step * 50, step * 50 + 49)
    scenes, refused = desk.site.take()
    assert len(scenes) == 20
    assert len(refused) == 20 * 99
    assert len(desk.site.state.open) <= 1
    assert len(dump(desk.site.state)) < 10_000


def test_the_leader_gives_the_time() -> None:
    desk = Desk(anchor="leader", leader="b")
    for member, time in (("a", 3), ("b", 10), ("c", 20)):
        desk.say(member, time, 30)
    (scene,) = desk.scenes()
    assert (scene.time, scene.closed_by) == (EPOCH + 10, "complete")


def test_a_dead_leader_does_not_stop_the_pictures() -> None:
    desk = Desk(anchor="leader", leader="b")
    desk.say("a", 3, 30)
    desk.say("c", 20, 30)
    desk.tick(130)
    (scene,) = desk.scenes()
    assert (scene.time, set(scene.taken)) == (EPOCH + 3, {"a", "c"})


def test_the_smallest_span_is_chosen() -> None:
    desk = Desk(anchor="smallest", tolerance_ms=40)
    desk.say("a", 0, 100)
    desk.say("a", 50, 100)
    desk.say("b", 30, 100)
    desk.tick(300)
    first, second = desk.scenes()
    assert (set(first.taken), set(second.taken)) == ({"a"}, {"a", "b"})


def test_a_state_with_fields_of_a_later_version_is_read_and_one_of_another_form_is_refused() -> (
    None
):
    desk = Desk()
    desk.say("a", 0)
    plain = msgspec.msgpack.decode(bytes(cramjam.lz4.decompress_block(dump(desk.site.state))))

    def packed(fields: list[Any]) -> bytes:
        return bytes(cramjam.lz4.compress_block(msgspec.msgpack.encode(fields)))

    assert load(packed([*plain, "more"])) == desk.site.state
    assert load(packed(plain[:-1])) == desk.site.state, "partition 0, as the default is"
    for other in (packed([*plain[:3], "members"]), b"\0\0\0\1", b""):
        with pytest.raises(OtherForm):
            load(other)


def test_a_pause_of_the_worker_evicts_nobody() -> None:
    desk = Desk(lease_ms=200)
    for member in "abc":
        desk.say(member, 0)
    site = Site("s", Rules(listed=LISTED, lease_ms=200), load(dump(desk.site.state)))
    site.resume(EPOCH + 60_000)
    site.tick(EPOCH + 60_001)
    assert not any(member.is_evicted for member in site.state.members.values())


def test_a_pause_of_the_worker_closes_nothing() -> None:
    desk = Desk()
    desk.say("a", 0)
    site = Site("s", Rules(listed=LISTED), load(dump(desk.site.state)))
    site.resume(EPOCH + 60_000)
    site.tick(EPOCH + 60_099)
    assert not site.has_decided, "what the others said meanwhile lies in Kafka"
    site.tick(EPOCH + 60_100)
    assert site.take().scenes[0].closed_by == "quorum"


def lagging(desk: Desk, lags: dict[str, int]) -> tuple[list[Decided], list[str]]:
    """What makes the predictions is behind, by so many milliseconds in each member's partition.
    What follows when everybody has been heard.
    """
    said = [
        (step * 50 + lag, member, step * 50) for step in range(200) for member, lag in lags.items()
    ]
    for at, member, time in sorted(said):
        desk.say(member, time, at)
        desk.tick(at + 10)
        if at < 9_000:
            desk.site.take()
    scenes, refused = desk.site.take()
    return scenes, [f"{each.member} {each.reason}" for each in refused]


@pytest.mark.parametrize("first", ["a", "ab"])
def test_members_that_lag_less_than_the_deadline_are_waited_for(first: str) -> None:
    lags = {member: 1_100 if member in first else 1_550 for member in "abc"}
    scenes, refused = lagging(Desk(), lags)
    assert Counter(each.closed_by for each in scenes).keys() == {"complete"}
    assert not refused


def test_who_is_alone_ahead_of_members_that_lag_more_than_the_deadline_spoils_nothing() -> None:
    lags = {"a": 1_100, "b": 4_000, "c": 4_000}
    scenes, refused = lagging(Desk(), lags)
    assert set(refused) == {"a ahead"}
    assert all({"b", "c"} <= each.taken.keys() for each in scenes)
    scenes, refused = lagging(Desk(deadline_ms=4_000), lags)
    assert Counter(each.closed_by for each in scenes).keys() == {"complete"}
    assert not refused


def test_live_a_deadline_for_those_who_lag_costs_no_patience() -> None:
    desk = Desk(deadline_ms=4_000)
    for member in "abc":
        desk.say(member, 0, 30)
    for member in "ab":
        desk.say(member, 50, 80)
    desk.tick(180)
    assert [each.closed_by for each in desk.scenes()] == ["complete", "quorum"]


@pytest.mark.parametrize("away_ms", [6_000, 60_000])
def test_what_was_piled_up_while_nobody_predicted_becomes_complete_scenes(away_ms: int) -> None:
    """Partition by partition, as fast as it goes; it may be that all leases have run out."""
    desk = Desk()
    for time in range(0, 500, 50):
        for member in "abc":
            desk.say(member, time, time + 30)
    desk.tick(500 + away_ms)
    at = 1_500 + away_ms
    for first in range(500, 500 + away_ms, 3_000):
        for member in "abc":
            at += 20
            for time in range(first, first + 3_000, 50):
                desk.say(member, time, at)
                desk.tick(at)
    scenes, refused = desk.site.take()
    assert {each.closed_by for each in scenes} == {"complete"}
    assert not refused
    assert len(desk.site.state.open) == 0


def test_held_back_is_bounded_and_gives_way() -> None:
    """A clock an hour ahead in a recording that is read fast: more than `max_open` in a moment."""
    site = Site("s", Rules(listed=LISTED, max_open=8))
    members = set()
    for step in range(200):
        time, now = EPOCH + step * 50, EPOCH + 24 * HOUR + step
        for member, ahead in (("b", 0), ("c", 0), ("a", HOUR)):
            site.arrive(arrival(member, step, 0, time + ahead, now), member, now)
        assert len(site.state.open) <= 8
        members |= {each.member for each in site.take().refused}
    site.tick(EPOCH + 25 * HOUR)
    assert members == {"a"}
    assert site.state.counts.get("late", 0) == 0


def test_a_site_that_was_silent_is_waited_for_as_a_whole() -> None:
    desk = Desk(lease_ms=1_000)
    for member in "abc":
        desk.say(member, 0, 10)
    desk.tick(3_000)
    assert all(member.is_evicted for member in desk.site.state.members.values())
    desk.scenes()
    desk.say("a", 3_000, 3_010)
    assert not desk.scenes(), "it is not complete alone"
    for member in "bc":
        desk.say(member, 3_000, 3_030)
    assert desk.scenes()[0].closed_by == "complete"


def next_life(desk: Desk, at: int, **changes: Any) -> Desk:
    """Another worker goes on with the site, by the rules of now; its clock says `at`."""
    after = Desk(**changes)
    after.site = Site("s", after.site._rules, load(dump(desk.site.state)))
    after.site.resume(EPOCH + at)
    after.offset = desk.offset
    return after


def test_who_is_new_on_the_list_is_a_member_in_the_next_life() -> None:
    desk = Desk(listed={"s": ["a", "b"]})
    for member in "ab":
        desk.say(member, 0)
    assert [each.closed_by for each in desk.scenes()] == ["complete"]
    after = next_life(desk, 1_000, listed={"s": ["a", "b", "c"]})
    for member in "ab":
        after.say(member, 1_000)
    assert not after.scenes(), "c is waited for"
    after.say("c", 1_000)
    assert [(each.closed_by, len(each.taken)) for each in after.scenes()] == [("complete", 3)]
    assert not after.reasons()


def test_who_was_taken_off_the_list_is_a_stranger_in_the_next_life() -> None:
    desk = Desk()
    for member in "ab":
        desk.say(member, 0)
    after = next_life(desk, 50, listed={"s": ["a", "c"]})
    after.say("c", 0, 60)
    (scene,) = after.scenes()
    assert (scene.closed_by, set(scene.taken)) == ("complete", {"a", "b", "c"}), "b was in time"
    after.say("b", 50, 110)
    assert after.reasons() == ["stranger"]
    after.say("a", 100, 110)
    after.say("c", 100, 110)
    assert after.scenes()[0].absent == {}


@pytest.mark.parametrize("wrong", [HOUR, -HOUR, 1_000 * 24 * HOUR, -1_000 * 24 * HOUR])
def test_the_clock_of_the_worker_before_stops_nothing_and_hastens_nothing(wrong: int) -> None:
    desk = Desk(lease_ms=1_000)
    for member, time in (("a", 0), ("b", 0), ("c", 0), ("a", 50)):
        desk.offset += 1
        found = arrival(member, desk.offset, 0, EPOCH + time, EPOCH + time)
        desk.site.arrive(found, member, EPOCH + time + wrong)
    assert len(desk.scenes()) == 1
    after = next_life(desk, 60, lease_ms=1_000)
    after.tick(60 + 99)
    assert not after.scenes(), "patience has a millisecond yet"
    after.tick(60 + 100)
    assert [each.closed_by for each in after.scenes()] == ["quorum"]
    for step in range(4, 40):
        for member in "ab":
            after.say(member, step * 50)
    after.tick(3_000)
    closed = [(each.closed_by, each.absent) for each in after.scenes()]
    assert closed[0] == ("quorum", {"c": "missing"})
    assert closed[-1] == ("members", {"c": "evicted"})
    assert not after.site.state.open
    assert not after.site.is_over


def test_a_dead_member_that_was_learned_is_told_of_until_it_is_forgotten() -> None:
    desk = Desk(listed={}, lease_ms=200, forget_ms=5_000)
    for step in range(140):
        for member in "ab" if step > 20 else "abc":
            desk.say(member, step * 50)
    said = [(each.closed_by, each.absent) for each in desk.scenes()]
    assert said[18] == ("complete", {})
    assert {each for _, absent in said[30:110] for each in absent.items()} == {("c", "evicted")}
    assert {closed_by for closed_by, _ in said[30:110]} == {"members"}
    assert said[-1] == ("complete", {})


def test_the_member_that_is_silent_the_longest_makes_room_for_one_who_speaks() -> None:
    desk = Desk(listed={}, lease_ms=200, max_members=3)
    for at, member in ((0, "a"), (50, "b"), (60, "c"), (70, "d")):
        desk.say(member, at)
    assert desk.reasons() == ["crowded"]
    desk.say("c", 300)
    desk.say("d", 310)
    assert desk.site.state.members.keys() == {"b", "c", "d"}


def by_model(model: str, member: str, step: int) -> Arrival:
    found = arrival(member, step, 0, EPOCH + step * 50, EPOCH + step * 50)
    return msgspec.structs.replace(found, model=model)


def test_a_scene_is_made_of_one_model_and_the_other_is_refused() -> None:
    site = Site("s", Rules(listed={"s": ["a", "b"]}, model="rows"))
    for step in range(3):
        for model in ("rows", "rows-v2"):
            for member in "ab":
                site.arrive(by_model(model, member, step), member, EPOCH + step * 50)
    scenes, refused = site.take()
    assert [each.closed_by for each in scenes] == ["complete"] * 3
    assert {taken.model for each in scenes for taken in each.taken.values()} == {"rows"}
    assert [each.reason for each in refused] == ["other_model"] * 6
    assert site.state.counts["other_model"] == 6


def test_another_model_renews_no_lease() -> None:
    site = Site("s", Rules(listed={"s": ["a", "b"]}, model="rows", lease_ms=1_000))
    for step in range(40):
        for member, model in (("a", "rows"), ("b", "rows" if step < 5 else "rows-v2")):
            site.arrive(by_model(model, member, step), member, EPOCH + step * 50)
    assert site.take().scenes[-1].absent == {"b": "evicted"}


def test_two_models_and_none_chosen_each_prediction_has_a_place_and_repeats_none() -> None:
    """One of the two is in the scene, its member has a place then; a route with one model for each
    stream needs no choice.
    """
    site = Site("s", Rules(listed={"s": ["a", "b"]}))
    for again in range(2):
        for step in range(3):
            for model in ("rows", "rows-v2"):
                for member in "ab":
                    site.arrive(by_model(model, member, step), member, EPOCH + step * 50)
        scenes, refused = site.take()
        if not again:
            assert [len(each.taken) for each in scenes] == [2] * 3
            assert {each.reason for each in refused} <= {"surplus", "late"}
            assert len(refused) == 6
        else:
            assert not scenes + refused
    assert site.state.counts["duplicate"] == 12


def test_a_site_is_over_when_nobody_has_spoken_for_so_long() -> None:
    desk = Desk(forget_ms=5_000)
    desk.say("a", 0)
    desk.tick(500)
    assert not desk.site.is_over
    desk.tick(4_999)
    assert not desk.site.is_over
    desk.tick(5_000)
    assert desk.site.is_over
    desk.say("a", 5_050)
    assert not desk.site.is_over


def test_silence_before_a_takeover_counts_but_a_clock_far_behind_ends_nothing_at_once() -> None:
    desk = Desk(forget_ms=100_000, lease_ms=1_000)
    desk.say("a", 0)
    desk.tick(500)
    after = next_life(desk, 95_000, forget_ms=100_000, lease_ms=1_000)
    after.tick(104_999)
    assert not after.site.is_over, "its members have ten leases to speak again"
    after.tick(105_000)
    assert after.site.is_over, "of which five seconds were enough"
