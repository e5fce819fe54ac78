"""Judges scenes from the topics alone: every prediction in one place, scenes in order, none twice
with other content.

Rule: repeats with the same bytes are allowed and counted. Not judged: how long a scene took, since
a worker may have been down; it is measured. Owner: `penstock verify --scenes`.
"""

from collections import Counter
from typing import NamedTuple

import msgspec
from msgspec import Struct

from consumers.scenes.arrival import read_arrival
from consumers.scenes.rekey import forward
from consumers.scenes.rules import Streams
from schemas.errors import SchemaError
from schemas.scene import decode_late, decode_scene

EXAMPLES = 5


class Report(Struct):
    """`wait_ms` is from the last member's record to the scene's: half of them, 99 in 100, all."""

    predictions: int
    repeats: int
    scenes: int
    repeated_scenes: int
    amended: int
    in_scenes: int
    late: int
    dropped: int
    closed_by: dict[str, int]
    wait_ms: dict[str, int]
    violations: dict[str, int]
    examples: list[str]

    @property
    def ok(self) -> bool:
        return not self.violations

    def as_json(self) -> str:
        return msgspec.json.format(msgspec.json.encode(self)).decode()


class _Told(NamedTuple):
    content: int
    members: dict[str, str]


class Judge:
    """Give it all predictions first, then the scenes, then the late ones; each in offset order."""

    def __init__(self, streams: Streams, *, drops: bool) -> None:
        self._streams = streams
        self._drops = drops
        self._recorded: dict[str, int] = {}
        self._repeats = 0
        self._scenes: dict[tuple[str, int], _Told] = {}
        self._revisions: dict[str, int] = {}
        self._last: dict[str, int] = {}
        self._places: dict[str, str] = {}
        self._late: dict[str, int] = {}
        self._counts: Counter[str] = Counter()
        self._closed: Counter[str] = Counter()
        self._waits: list[int] = []
        self._violations: Counter[str] = Counter()
        self._examples: list[str] = []

    def prediction(self, where: str, value: bytes | None, recorded_ms: int) -> None:
        try:
            arrival = read_arrival(value or b"", recorded_ms)
        except SchemaError:
            id, is_empty = where, False
        else:
            id, is_empty = arrival.id, arrival.is_empty
            if self._streams.place(arrival.stream) is None:
                id, is_empty = decode_late(forward(self._streams, value, where).value).id, False
        if is_empty:
            return
        self._repeats += id in self._recorded
        self._recorded.setdefault(id, recorded_ms)

    def scene(self, value: bytes | None, recorded_ms: int) -> None:
        try:
            scene = decode_scene(value or b"")
        except SchemaError as error:
            return self._broken("no scene", str(error))
        members = {name: seat.id for name, seat in scene.members.items() if seat.id is not None}
        key, given = (scene.id, scene.revision), _Told(hash(value), members)
        before = self._scenes.get(key)
        if before is not None:
            self._counts["repeated"] += 1
            if before.content != given.content:
                self._broken("scene twice with other content", f"{scene.id} {scene.revision}")
            return None
        self._scenes[key] = given
        self._in_order(scene.id, scene.site, scene.time, scene.revision)
        self._place(scene.id, members)
        if scene.revision == 1:
            self._closed[scene.closed_by] += 1
            came = [self._recorded[id] for id in members.values() if id in self._recorded]
            self._waits += [recorded_ms - max(came)] if came else []
        return None

    def late(self, value: bytes | None) -> None:
        try:
            late = decode_late(value or b"")
        except SchemaError as error:
            return self._broken("no late prediction", str(error))
        content = hash(value)
        if self._late.setdefault(late.id, content) != content:
            self._broken("late twice with other content", late.id)
        if late.id in self._places:
            self._broken("in two places", f"{late.id}: {self._places[late.id]} and late")
        if late.id not in self._recorded:
            self._broken("late, but never predicted", late.id)
        return None

    def report(self) -> Report:
        lost = [id for id in self._recorded if id not in self._places and id not in self._late]
        if not self._drops:
            for id in lost:
                self._broken("in no place", id)
        return Report(
            predictions=len(self._recorded),
            repeats=self._repeats,
            scenes=len(self._revisions),
            repeated_scenes=self._counts["repeated"],
            amended=self._counts["amended"],
            in_scenes=len(self._places),
            late=len(self._late),
            dropped=len(lost) if self._drops else 0,
            closed_by=dict(self._closed),
            wait_ms=_tails(self._waits),
            violations=dict(self._violations),
            examples=self._examples,
        )

    def _in_order(self, id: str, site: str, time: int, revision: int) -> None:
        before = self._revisions.get(id, 0)
        self._revisions[id] = max(before, revision)
        if revision != before + 1:
            self._broken("revision out of order", f"{id} {revision} after {before}")
        if revision > 1:
            self._counts["amended"] += 1
            return
        if site in self._last and time <= self._last[site]:
            self._broken("scene out of order", f"{id} after {self._last[site]}")
        self._last[site] = time

    def _place(self, scene: str, members: dict[str, str]) -> None:
        """An amended scene has its members again."""
        for id in members.values():
            if self._places.setdefault(id, scene) != scene:
                self._broken("in two places", f"{id}: {self._places[id]} and {scene}")
            if id not in self._recorded:
                self._broken("in a scene, but never predicted", id)

    def _broken(self, rule: str, example: str) -> None:
        self._violations[rule] += 1
        if len(self._examples) < EXAMPLES:
            self._examples.append(f"{rule}: {example}")


def _tails(waits: list[int]) -> dict[str, int]:
    ordered = sorted(waits)
    if not ordered:
        return {}
    at = {"p50": 50, "p99": 99, "max": 100}
    return {name: ordered[min(len(ordered) - 1, len(ordered) * p // 100)] for name, p in at.items()}
