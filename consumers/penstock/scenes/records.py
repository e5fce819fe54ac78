"""Makes the records of scenes, so that their topics accept them: predictions keyed by their site
(`Rekey`), decided scenes, states of sites, and letters about refused predictions (`LateTopic`).

Rule: the same decision always gives the same bytes. Of a record too large answers are left out, of
a state first those of the scene with the most bytes, and the record says so; members, ids and
decisions never. Re-keying refuses a record if it is not a prediction, if its stream has no site, or
if the repartition topic does not take it. No record is lost unless `scenes.late` is "drop". No I/O.
"""

import logging
from base64 import b64encode
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Final

import msgspec
from msgspec import Raw

from penstock.messages.prediction import Failure
from penstock.messages.reference import SchemaError
from penstock.messages.scene import NOT_TAKEN, TOO_LARGE, encode_late, encode_scene, seat_json
from penstock.scenes.changelog import CLAIM_BYTES, Fits, Out
from penstock.scenes.core.arrival import Arrival, ShownAnswer, read_answer, read_arrival
from penstock.scenes.core.rules import Place, SiteStreams
from penstock.scenes.core.site import Decisions, Site
from penstock.scenes.core.state import Decided, Refused, dump, without_answers
from penstock.scenes.settings import Names
from penstock.scenes.site_figures import KeyedFigures

log = logging.getLogger(__name__)


class LateTopic:
    """Makes the letters of the late topic. A letter holds the prediction's record if the topic
    accepts so large a letter. If not, the letter's id says where the record is. If `scenes.late` is
    "drop", no letter is made.
    """

    def __init__(self, topic: str, fits: Fits, *, is_dropped: bool) -> None:
        self._topic = topic
        self._fits = fits
        self._is_dropped = is_dropped

    def refused(self, site: str, refused: Refused, *, is_bare: bool = False) -> list[Out]:
        arrival, scene = refused.arrival, refused.scene
        return self.out(
            site,
            arrival.id,
            refused.reason,
            b"" if is_bare else arrival.value,
            site=site,
            member=refused.member,
            scene=None if scene is None else f"{site}/{scene}",
            model=arrival.model or None,
        )

    def bare(self, site: str, decided: Decided) -> list[Out]:
        """The letter about a scene that was too large to hold its predictions."""
        scene = f"{site}/{decided.time}"
        return self.out(site, scene, TOO_LARGE, b"", site=site, scene=scene)

    def out(
        self,
        key: str,
        id: str,
        reason: str,
        record: bytes,
        *,
        site: str | None = None,
        member: str | None = None,
        scene: str | None = None,
        model: str | None = None,
    ) -> list[Out]:
        """The letter to write; none if `scenes.late` is "drop". The letter's field `record` is null
        if the argument `record` is empty or too large.
        """
        if self._is_dropped:
            return []
        encode = partial(
            encode_late, id=id, reason=reason, site=site, member=member, scene=scene, model=model
        )
        value = encode(record=record or b"null")
        if not self._fits(self._topic, key.encode(), len(value)):
            value = encode(record=b"null")
        return [Out(self._topic, key.encode(), value)]


class Rekey:
    """Finds the site and the member of a prediction, and makes the record or the letter by which
    the prediction is passed on. `topic`: the repartition topic, where predictions are keyed by
    their site.
    """

    def __init__(
        self,
        streams: SiteStreams,
        topic: str,
        late: LateTopic,
        fits: Fits,
        figures: KeyedFigures,
    ) -> None:
        self.figures = figures
        self._streams = streams
        self._topic = topic
        self._late = late
        self._fits = fits

    def placed(self, value: bytes, recorded_ms: int) -> tuple[Arrival, Place] | None:
        """The prediction, and its site and member. None: the record is not a prediction, or its
        stream has no site.
        """
        try:
            arrival = read_arrival(value, recorded_ms)
        except SchemaError:
            return None
        place = self._streams.place(arrival.stream)
        return None if place is None else (arrival, place)

    def out(self, value: bytes | None, where: str, at_ms: int) -> list[Out]:
        """The record for the repartition topic, or the letter for the late topic; nothing if a
        refused prediction is dropped. `where`: topic/partition/offset of the record, which a letter
        uses as the name of a record without an id.
        """
        value = value or b""
        try:
            arrival = read_arrival(value, at_ms)
        except SchemaError:
            raw = msgspec.json.encode({"value_b64": b64encode(value).decode()})
            self.figures.refused("unreadable", where)
            return self._late.out(where, where, "unreadable", raw)
        place = self._streams.place(arrival.stream)
        if place is None:
            stream, model = arrival.stream, arrival.model or None
            self.figures.refused("no_site", stream)
            return self._late.out(stream, arrival.id, "no_site", value, model=model)
        site, member = place
        self.figures.placed()

        def letter(reason: str) -> list[Out]:
            model = arrival.model or None
            named = {"site": site, "member": member, "model": model}
            return self._late.out(site, arrival.id, reason, value, **named)

        def not_taken(reason: str) -> list[Out]:
            log.error("%s refused %s of %s: %s", self._topic, arrival.id, where, reason)
            return letter(NOT_TAKEN)

        if not self._fits(self._topic, site.encode(), len(value)):
            return letter(TOO_LARGE)
        return [Out(self._topic, site.encode(), value, None, at_ms, not_taken)]


WITHOUT: Final = Failure(
    TOO_LARGE, "its members' predictions are more than a record may hold; they are on their topic"
)

_parts = msgspec.json.Decoder(dict[str, Raw] | list[Raw])
_numbers = msgspec.json.Decoder(float)


class SceneRecords:
    """Encodes the records of scenes. `inline`: a JSON pointer to a number in each prediction. If it
    is given, a scene's record has one row of these numbers, besides the predictions; if it is None,
    there is no such row. `fill`: stands in that row for a member without a number.
    """

    def __init__(self, inline: str | None = None, fill: float | None = None) -> None:
        self._steps = None if inline is None else _steps(inline)
        self._fill = fill

    def scene(self, site: str, decided: Decided, *, is_bare: bool = False) -> bytes:
        """The scene's record. `is_bare`: without its predictions."""
        answers: dict[str, ShownAnswer] = {}
        if not is_bare:
            answers = {name: read_answer(taken.value) for name, taken in decided.taken.items()}
        return encode_scene(
            site=site,
            time=decided.time,
            span_ms=decided.span_ms,
            revision=decided.revision,
            closed_by=decided.closed_by,
            seats={name: _seat(taken, answers.get(name)) for name, taken in decided.taken.items()},
            absent=decided.absent,
            error=WITHOUT if is_bare else None,
            inline=None if self._steps is None else self._vector(self._steps, decided, answers),
        )

    def _vector(
        self, steps: Sequence[str], decided: Decided, answers: Mapping[str, ShownAnswer]
    ) -> list[float | None]:
        """One number for each member, in the order of the members' names."""
        vector = []
        for name in sorted({*decided.taken, *decided.absent}):
            number = None
            if name in answers and answers[name].error is None:
                number = _number(answers[name].prediction, steps)
            vector.append(self._fill if number is None else number)
        return vector


def _seat(arrival: Arrival, answer: ShownAnswer | None) -> Raw:
    """A member's place in the record. If `answer` is None, the place has no answer, and the arrival
    tells its status.
    """
    id, time, model = arrival.id, arrival.time, arrival.model
    if answer is None:
        return seat_json("rejected" if arrival.is_error else "present", id, time, model)
    if answer.error is not None:
        return seat_json("rejected", id, time, model, error=answer.error)
    return seat_json("present", id, time, model, prediction=answer.prediction)


def _steps(pointer: str) -> list[str]:
    """The steps of a JSON pointer (RFC 6901)."""
    return [step.replace("~1", "/").replace("~0", "~") for step in pointer.split("/")[1:]]


def _index(step: str) -> int:
    if not step.isdecimal():
        raise LookupError
    return int(step)


def _number(answer: Raw, steps: Sequence[str]) -> float | None:
    """The number to which the steps lead. None if they do not lead to a number, or if the number is
    too large for a model.
    """
    try:
        for step in steps:
            parts = _parts.decode(answer)
            answer = parts[step] if isinstance(parts, dict) else parts[_index(step)]
        return _numbers.decode(answer)
    except (msgspec.MsgspecError, ValueError, LookupError, RecursionError):
        return None


class Packing:
    def __init__(
        self, scene_records: SceneRecords, late: LateTopic, names: Names, fits: Fits
    ) -> None:
        self._scene_records = scene_records
        self._late = late
        self._names = names
        self._fits = fits

    def pack(self, site: Site, decisions: Decisions) -> tuple[bytes, bool]:
        """Returns two values. The first is the packed state, with these decisions as its outbox. If
        it is too large for the changelog, the answers in its scenes are dropped; if that is not
        enough, the answers in the outbox are dropped, too. The second is True if the state fills
        more than half a record even without answers, so that one more batch might make it too
        large.
        """
        site.state.outbox = self._outbox(site.name, decisions) if any(decisions) else []
        packed = dump(site.state)
        if self._is_writable(site.name, 2 * len(packed)):
            return packed, False
        while not self._is_writable(site.name, len(packed)) and site.lighten():
            packed = dump(site.state)
        if not self._is_writable(site.name, len(packed)):
            site.state.outbox = self._outbox(site.name, decisions, is_bare=True)
            packed = dump(site.state)
        least = dump(without_answers(site.state))
        return packed, not self._is_writable(site.name, 2 * len(least))

    def _is_writable(self, site: str, nbytes: int) -> bool:
        return self._fits(self._names.changelog, site.encode(), CLAIM_BYTES + nbytes)

    def _outbox(
        self, site: str, decisions: Decisions, *, is_bare: bool = False
    ) -> list[tuple[str, bytes]]:
        outs = list[Out]()
        for scene in decisions.scenes:
            outs += self._scene(site, scene, is_bare=is_bare)
        for refused in decisions.refused:
            outs += self._late.refused(site, refused, is_bare=is_bare)
        return [(out.topic, out.value or b"") for out in outs]

    def _scene(self, site: str, scene: Decided, *, is_bare: bool) -> list[Out]:
        """The scene's record. If it is too large, the record is made without predictions, and a
        letter tells about it.
        """
        key, is_bare = site.encode(), is_bare or scene.is_bare
        value = self._scene_records.scene(site, scene, is_bare=is_bare)
        if not is_bare and not self._fits(self._names.scenes, key, len(value)):
            is_bare, value = True, self._scene_records.scene(site, scene, is_bare=True)
        letter = self._late.bare(site, scene) if is_bare else []
        return [Out(self._names.scenes, key, value), *letter]
