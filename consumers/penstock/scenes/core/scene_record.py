"""Encodes a decided scene as the record that is published.

Rule: the same decision always gives the same bytes. Owner: the ledger, which writes the bytes down
before it publishes them.
"""

from collections.abc import Mapping, Sequence
from typing import Final

import msgspec
from msgspec import Raw

from penstock.messages.prediction import Failure
from penstock.messages.scene import TOO_LARGE, encode_scene, seat_json
from penstock.scenes.core.arrival import Answer, Arrival, read_answer
from penstock.scenes.core.state import Decided

WITHOUT: Final = Failure(
    TOO_LARGE, "its members' predictions are more than a record may hold; they are on their topic"
)

_parts = msgspec.json.Decoder(dict[str, Raw] | list[Raw])
_numbers = msgspec.json.Decoder(float)


class SceneRecords:
    """`inline`: a JSON pointer to a number in each prediction; a scene's record then has one row of
    these numbers, besides the predictions. None: the record has no such row. `fill`: the number
    that the row has for a member whose number is missing.
    """

    def __init__(self, inline: str | None = None, fill: float | None = None) -> None:
        self._steps = None if inline is None else _steps(inline)
        self._fill = fill

    def scene(self, site: str, decided: Decided, *, is_bare: bool = False) -> bytes:
        """The scene's record. `is_bare`: without its predictions."""
        answers: dict[str, Answer] = {}
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
        self, steps: Sequence[str], decided: Decided, answers: Mapping[str, Answer]
    ) -> list[float | None]:
        """One number for each member, in the order of the members' names."""
        vector = []
        for name in sorted({*decided.taken, *decided.absent}):
            found = None
            if name in answers and answers[name].error is None:
                found = _number(answers[name].prediction, steps)
            vector.append(self._fill if found is None else found)
        return vector


def _seat(arrival: Arrival, answer: Answer | None) -> Raw:
    """A member's place in the record. If `answer` is None, the place has no answer, and its status
    comes from the arrival.
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
    """The number that the steps lead to. None if they lead to no number, or to one that is too
    large for a model.
    """
    try:
        for step in steps:
            parts = _parts.decode(answer)
            answer = parts[step] if isinstance(parts, dict) else parts[_index(step)]
        return _numbers.decode(answer)
    except (msgspec.MsgspecError, ValueError, LookupError, RecursionError):
        return None
