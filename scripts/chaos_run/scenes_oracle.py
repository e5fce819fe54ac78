"""Computes from the topics, in the simplest way, what scenes on a grid should hold.

Rule: the oracle knows the rules of the grid and imports nothing of the package. A prediction
belongs to the nearest multiple of the period. A prediction must be in the scene of that instant, or
on the late topic for a reason that is true. Owner: the run.
"""

from bisect import bisect_left
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import orjson

EXAMPLES = 5
# A prediction whose event is older than this when Kafka gets its record counts as a prediction of
# the past.
PAST_MS = 1_000
# The longest time from a record's arrival at Kafka until a scenes worker handles it.
HANDLED_MS = 250


class Said(NamedTuple):
    """A record's value, and when Kafka got it."""

    value: bytes
    recorded_ms: int


class Spoken(NamedTuple):
    """A prediction: when Kafka got it, who predicted, and its event time."""

    recorded_ms: int
    site: str
    member: str
    time: int


class Bounds(NamedTuple):
    """`is_uneven`: the engine works off a backlog partition by partition (docs/scenes.md), so that
    one member may come long before the others.
    """

    deadline_ms: int
    ahead_ms: int
    is_uneven: bool = False


class Verdict(NamedTuple):
    scenes: int
    complete: int
    late: int
    wait_ms: dict[str, int]
    wrong: Counter[str]
    examples: list[str]


def compare(
    predictions: Iterable[Said],
    scenes: Iterable[Said],
    late: Iterable[Said],
    *,
    period_ms: int,
    members: dict[str, list[str]],
    bounds: Bounds,
) -> Verdict:
    """`members`: the members of each site, in any order."""
    belongs, errors, spoken = _belonging(predictions, period_ms)
    wrong: Counter[str] = Counter()
    examples: list[str] = []

    def blame(what: str, example: str) -> None:
        wrong[what] += 1
        if len(examples) < EXAMPLES:
            examples.append(f"{what}: {example}")

    late_ids = _late(late, spoken, bounds, blame)
    seen: set[str] = set()
    waits: dict[str, list[int]] = defaultdict(list)
    placed: set[str] = set()
    for value, recorded_ms in scenes:
        scene = orjson.loads(value)
        if scene["id"] in seen:
            continue
        seen.add(scene["id"])
        expected = belongs.get((scene["site"], scene["time"]), {})
        ids = _check(scene, expected, errors, late_ids, members[scene["site"]], blame)
        placed |= ids
        waits[scene["closed_by"]].append(
            recorded_ms - max(spoken[each].recorded_ms for each in ids)
        )
    for (site, time), expected in belongs.items():
        for id in expected.values():
            if id not in placed and id not in late_ids:
                blame("lost", f"{id} of {site}/{time}")
    complete = waits["complete"]
    return Verdict(len(seen), len(complete), len(late_ids), tails(complete), wrong, examples)


def _belonging(
    predictions: Iterable[Said], period_ms: int
) -> tuple[dict[tuple[str, int], dict[str, str]], set[str], dict[str, Spoken]]:
    """Returns three things: the ids by site and time, then by member; the ids of errors; and each
    prediction by its id.
    """
    belongs: dict[tuple[str, int], dict[str, str]] = defaultdict(dict)
    errors, spoken = set(), dict[str, Spoken]()
    for value, recorded_ms in predictions:
        record = orjson.loads(value)
        if record["id"] in spoken:
            continue
        site, _, member = record["stream"].partition("/")
        time = int((record["event_time"] + period_ms / 2) // period_ms * period_ms)
        spoken[record["id"]] = Spoken(recorded_ms, site, member, record["event_time"])
        belongs[site, time].setdefault(member, record["id"])
        if record.get("error"):
            errors.add(record["id"])
    return belongs, errors, spoken


def _late(
    late: Iterable[Said], spoken: Mapping[str, Spoken], bounds: Bounds, blame: Any
) -> set[str]:
    ids = set()
    of_site: dict[str, list[Spoken]] = defaultdict(list)
    for each in sorted(spoken.values()):
        of_site[each.site].append(each)
    for value, refused_ms in late:
        record = orjson.loads(value)
        id, reason = record["id"], record["reason"]
        ids.add(id)
        if reason == "ahead" and id in spoken:
            one = spoken[id]
            had_piled_up = refused_ms - one.recorded_ms > bounds.deadline_ms + HANDLED_MS
            is_so = _is_ahead(one, of_site[one.site], bounds) or (
                bounds.is_uneven and had_piled_up and one.recorded_ms - one.time > PAST_MS
            )
        else:
            is_so = reason == "late"
        if not is_so:
            blame("refused for a reason that is not true", f"{id}: {reason}")
    return ids


def _is_ahead(one: Spoken, of_site: Sequence[Spoken], bounds: Bounds) -> bool:
    """True if this prediction was rightly refused as "ahead": if it is ahead of Kafka's clock, or
    if it is of the past and ahead of at least two other members. Because lags go up and down, each
    of the other members counts with its largest lag around that time.
    """
    lag = one.recorded_ms - one.time
    if lag < -bounds.ahead_ms:
        return True
    since = one.recorded_ms - bounds.deadline_ms - HANDLED_MS
    until = one.recorded_ms + bounds.deadline_ms + HANDLED_MS
    found = of_site[bisect_left(of_site, (since,)) : bisect_left(of_site, (until,))]
    slowest: dict[str, int] = {}
    for each in found:
        if each.member != one.member:
            its = each.recorded_ms - each.time
            slowest[each.member] = max(its, slowest.get(each.member, its))
    if lag <= PAST_MS or len(slowest) < 2:
        return False
    return lag + bounds.deadline_ms < min(slowest.values()) + HANDLED_MS


def _check(
    scene: dict[str, Any],
    expected: dict[str, str],
    errors: set[str],
    late: set[str],
    members: Sequence[str],
    blame: Any,
) -> set[str]:
    ids = {name: seat["id"] for name, seat in scene["members"].items() if "id" in seat}
    in_time = {name: id for name, id in expected.items() if id not in late}
    if ids != in_time:
        blame(
            "not the members that belong there",
            f"{scene['id']}: {sorted(ids)}, not {sorted(in_time)}",
        )
    if scene["members"].keys() != set(members):
        blame("not all members named", scene["id"])
    for name, id in ids.items():
        status = "rejected" if id in errors else "present"
        if scene["members"][name]["status"] != status:
            blame("wrong status", f"{scene['id']} {name}")
    absent = Counter(seat["status"] for seat in scene["members"].values() if "id" not in seat)
    if {**absent} != {name: scene[name] for name in ("missing", "evicted") if scene[name]}:
        blame("wrong count of the absent", scene["id"])
    whole = "members" if absent else "complete"
    if (scene["closed_by"] == whole) != (absent["missing"] == 0):
        blame("closed for another reason", scene["id"])
    return set(ids.values())


def tails(waits: list[int]) -> dict[str, int]:
    """Median, 99th percentile and maximum."""
    ordered = sorted(waits)
    if not ordered:
        return {}
    at = {"p50": 0.5, "p99": 0.99, "max": 1.0}
    return {name: ordered[min(len(ordered) - 1, int(len(ordered) * p))] for name, p in at.items()}
