"""`penstock verify --scenes`: judges scenes from the topics alone.

Rule: no worker is asked. Repeats with the same bytes are allowed, and counted. The time until a
scene was published is measured but not judged, because a worker may have been down.
"""

from collections import Counter

import msgspec
from msgspec import Struct

from penstock import config
from penstock.adapters.kafka.reader import open_reader
from penstock.messages.reference import SchemaError
from penstock.messages.scene import TOO_LARGE, Scene, decode_late, decode_scene
from penstock.scenes.core.arrival import read_arrival
from penstock.scenes.core.rules import SiteStreams
from penstock.scenes.settings import names, rules_of

EXAMPLES = 5


class ScenesReport(Struct):
    """`models`: for each model's name, the number of its predictions. `closed_by`: for each reason,
    the number of scenes that closed for it. `without_predictions`: the number of scenes that were
    too large to hold their predictions. `wait_ms`: the median, the 99th percentile and the maximum
    of the time from the record of a scene's last member to the scene's record.
    """

    predictions: int
    repeats: int
    models: dict[str, int]
    scenes: int
    repeated_scenes: int
    amended: int
    without_predictions: int
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


class ScenesJudge:
    """Feed it all predictions, then all scenes, then all late predictions, each kind in the order
    of offsets. Then call `report`. `drops`: True if late predictions are dropped, so that they are
    on no topic. `model`: the name of the model whose predictions make scenes; None: the predictions
    of any model do.
    """

    def __init__(self, streams: SiteStreams, *, drops: bool, model: str | None = None) -> None:
        self._streams = streams
        self._drops = drops
        self._model = model
        self._recorded: dict[str, int] = {}
        self._first_model: dict[str, str] = {}
        self._repeats = 0
        self._scenes: dict[tuple[str, int], int] = {}
        self._revisions: dict[str, int] = {}
        self._last: dict[str, int] = {}
        self._places: dict[str, str] = {}
        self._late: dict[str, int] = {}
        # The ids of two things: scenes that hold no predictions, and letters about such scenes.
        self._bare: set[str] = set()
        self._letters: set[str] = set()
        self._by_ours: set[str] = set()
        self._counts: Counter[str] = Counter()
        self._models: Counter[str] = Counter()
        self._closed: Counter[str] = Counter()
        self._waits: list[int] = []
        self._violations: Counter[str] = Counter()
        self._examples: list[str] = []

    def prediction(self, where: str, value: bytes | None, recorded_ms: int) -> None:
        id, model = where, ""
        try:
            arrival = read_arrival(value or b"", recorded_ms)
        except SchemaError:
            pass
        else:
            id, model = arrival.id, arrival.model
            if arrival.is_empty and self._streams.place(arrival.stream) is not None:
                return
        self._first_model.setdefault(id, model)
        key = self._key(id, model)
        if key in self._recorded:
            self._repeats += 1
        else:
            self._recorded[key] = recorded_ms
            self._models[model] += 1

    def scene(self, value: bytes | None, recorded_ms: int) -> None:
        try:
            scene = decode_scene(value or b"")
        except SchemaError as error:
            return self._broken("no scene", str(error))
        key, content = (scene.id, scene.revision), hash(value)
        if key in self._scenes:
            self._counts["repeated"] += 1
            if self._scenes[key] != content:
                self._broken("scene twice with other content", f"{scene.id} {scene.revision}")
            return None
        self._scenes[key] = content
        self._in_order(scene.id, scene.site, scene.time, scene.revision)
        self._in_itself(scene)
        self._by_model(scene)
        keys = self._place(scene)
        if scene.revision == 1:
            self._closed[scene.closed_by] += 1
            came = [self._recorded[each] for each in keys if each in self._recorded]
            self._waits += [recorded_ms - max(came)] if came else []
        return None

    def late(self, value: bytes | None) -> None:
        try:
            late = decode_late(value or b"")
        except SchemaError as error:
            return self._broken("no late prediction", str(error))
        if late.reason == TOO_LARGE and late.member is None:
            self._letters.add(late.id)
            return None
        content, key = hash(value), self._key(late.id, late.model)
        if self._late.setdefault(key, content) != content:
            self._broken("late twice with other content", key)
        if key in self._places:
            self._broken("in two places", f"{key}: {self._places[key]} and late")
        if key not in self._recorded:
            self._broken("late, but never predicted", key)
        return None

    def report(self) -> ScenesReport:
        lost = [key for key in self._recorded if key not in self._places and key not in self._late]
        if not self._drops:
            for key in lost:
                self._broken("in no place", key)
            for scene in self._bare ^ self._letters:
                self._broken("without predictions and without a letter, or the reverse", scene)
        return ScenesReport(
            predictions=len(self._recorded),
            repeats=self._repeats,
            models=dict(self._models),
            scenes=len(self._revisions),
            repeated_scenes=self._counts["repeated"],
            amended=self._counts["amended"],
            without_predictions=len(self._bare),
            in_scenes=len(self._places),
            late=len(self._late),
            dropped=len(lost) if self._drops else 0,
            closed_by=dict(self._closed),
            wait_ms=_tails(self._waits),
            violations=dict(self._violations),
            examples=self._examples,
        )

    def _key(self, id: str, model: str | None) -> str:
        """The name by which the judge knows a prediction. Several models may answer a row under one
        id, so the id is the name only for the first model's prediction. For another model, its name
        follows the id.
        """
        is_first = model in (None, self._first_model.get(id, model))
        return id if is_first else f"{id} by {model}"

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

    def _in_itself(self, scene: Scene) -> None:
        """Compare the scene's counts, and its reason for closing, with the members that it
        lists.
        """
        count = Counter(seat.status for seat in scene.members.values())
        if (scene.missing, scene.evicted) != (count["missing"], count["evicted"]):
            self._broken("wrong count of the absent", scene.id)
        if scene.closed_by == "complete" and count["missing"] + count["evicted"]:
            self._broken("complete without all members", scene.id)
        if scene.error is not None:
            self._bare.add(scene.id)

    def _place(self, scene: Scene) -> list[str]:
        """Note for each prediction in which scene it is. A later revision of a scene may list its
        predictions again.
        """
        keys = []
        for seat in scene.members.values():
            if seat.id is None:
                continue
            keys.append(key := self._key(seat.id, seat.model))
            if self._places.setdefault(key, scene.id) != scene.id:
                self._broken("in two places", f"{key}: {self._places[key]} and {scene.id}")
            if key not in self._recorded:
                self._broken("in a scene, but never predicted", key)
        return keys

    def _by_model(self, scene: Scene) -> None:
        """Check which model made the scene's predictions. Other models than `scenes.model` are
        allowed in a site's scenes before its first scene by this model, because the setting may be
        newer than the topic.
        """
        models = {seat.model for seat in scene.members.values() if seat.id is not None}
        if scene.site in self._by_ours and models != {self._model}:
            self._broken("by another model than scenes.model", scene.id)
        if self._model is not None and self._model in models:
            self._by_ours.add(scene.site)

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


async def verify_scenes(cfg: config.Config) -> ScenesReport:
    """Read predictions, scenes and late predictions, and have them judged."""
    rules_of(cfg.scenes)
    ours = names(cfg.scenes)
    scenes = cfg.scenes
    judge = ScenesJudge(SiteStreams(scenes.site), drops=scenes.late == "drop", model=scenes.model)
    async with open_reader(cfg.kafka, cfg.delivery.isolation) as reader:
        # The ends of the output topics are looked up before the end of the input, so that every
        # prediction that is in one of the scenes is among the predictions that are read.
        late, published = await reader.spans(ours.late), await reader.spans(ours.scenes)
        asked = await reader.spans(ours.input)
        async for record in reader.records(ours.input, asked):
            where = f"{ours.input}/{record.partition}/{record.offset}"
            judge.prediction(where, record.value, record.timestamp)
        async for record in reader.records(ours.scenes, published):
            judge.scene(record.value, record.timestamp)
        async for record in reader.records(ours.late, late):
            judge.late(record.value)
    return judge.report()
