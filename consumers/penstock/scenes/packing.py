"""Encodes a site's state and its decided scenes as records that their topics accept.

Rule: the same decision always gives the same bytes. Of a record too large answers are left out, of
a state first those of the scene with the most bytes, and the record says so; members, ids and
decisions never.
"""

from collections.abc import Mapping, Sequence
from typing import Final

import msgspec
from msgspec import Raw

from penstock.messages.prediction import Failure
from penstock.messages.scene import TOO_LARGE, encode_scene, seat_json
from penstock.scenes.changelog import CLAIM_BYTES
from penstock.scenes.core.arrival import Arrival, ShownAnswer, read_answer
from penstock.scenes.core.site import Decisions, Site
from penstock.scenes.core.state import Decided, dump, without_answers
from penstock.scenes.ledger_ports import Fits, Out
from penstock.scenes.rekey_or_refuse import LateTopic
from penstock.scenes.settings import Names

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
