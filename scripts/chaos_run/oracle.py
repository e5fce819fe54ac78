"""What scenes should hold, computed from the topics in the most obvious way, for a grid.

Rule: it knows the rules of the grid and no code of ours: a prediction belongs to the nearest
multiple of the period, and is in that scene, or on the late topic with a reason that is so.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import orjson

EXAMPLES = 5


class Said(NamedTuple):
    """A record, and when Kafka got it."""

    value: bytes
    recorded_ms: int


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
) -> Verdict:
    """`members`: those of each site, in any order."""
    belongs, errors, came = _belonging(predictions, period_ms)
    wrong: Counter[str] = Counter()
    examples: list[str] = []

    def blame(what: str, example: str) -> None:
        wrong[what] += 1
        if len(examples) < EXAMPLES:
            examples.append(f"{what}: {example}")

    late_ids = _late(late, blame)
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
        waits[scene["closed_by"]].append(recorded_ms - max(came[each] for each in ids))
    for (site, time), expected in belongs.items():
        for id in expected.values():
            if id not in placed and id not in late_ids:
                blame("lost", f"{id} of {site}/{time}")
    complete = waits["complete"]
    return Verdict(len(seen), len(complete), len(late_ids), _tails(complete), wrong, examples)


def _belonging(
    predictions: Iterable[Said], period_ms: int
) -> tuple[dict[tuple[str, int], dict[str, str]], set[str], dict[str, int]]:
    """Ids by site and time by member; which of them are errors; when each came."""
    belongs: dict[tuple[str, int], dict[str, str]] = defaultdict(dict)
    errors, came = set(), {}
    for value, recorded_ms in predictions:
        record = orjson.loads(value)
        if record["id"] in came:
            continue
        came[record["id"]] = recorded_ms
        site, _, member = record["stream"].partition("/")
        time = int((record["event_time"] + period_ms / 2) // period_ms * period_ms)
        belongs[site, time].setdefault(member, record["id"])
        if record.get("error"):
            errors.add(record["id"])
    return belongs, errors, came


def _late(late: Iterable[Said], blame: Any) -> set[str]:
    ids = set()
    for value, _ in late:
        record = orjson.loads(value)
        ids.add(record["id"])
        if record["reason"] != "late":
            blame("refused without a reason that is so", f"{record['id']}: {record['reason']}")
    return ids


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
        blame("not who belongs there", f"{scene['id']}: {sorted(ids)}, not {sorted(in_time)}")
    if scene["members"].keys() != set(members):
        blame("not all members named", scene["id"])
    for name, id in ids.items():
        status = "rejected" if id in errors else "present"
        if scene["members"][name]["status"] != status:
            blame("wrong status", f"{scene['id']} {name}")
    absent = Counter(seat["status"] for seat in scene["members"].values() if "id" not in seat)
    if absent["missing"] != scene["missing"] or absent.keys() - {"missing", "evicted"}:
        blame("wrong count of the missing", scene["id"])
    if (scene["closed_by"] == "complete") != (absent["missing"] == 0):
        blame("closed by another reason", scene["id"])
    return set(ids.values())


def _tails(waits: list[int]) -> dict[str, int]:
    ordered = sorted(waits)
    if not ordered:
        return {}
    at = {"p50": 0.5, "p99": 0.99, "max": 1.0}
    return {name: ordered[min(len(ordered) - 1, int(len(ordered) * p))] for name, p in at.items()}
