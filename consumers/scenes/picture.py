"""A decision as the bytes that are published.

Rule: the same decision gives the same bytes. Owner: the ledger, which writes them down first.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from consumers.scenes.arrival import Answer, read_answer
from consumers.scenes.state import Decided, Refused
from schemas.scene import encode_late, encode_scene, seat_json


class Pictures:
    """`inline` is a JSON pointer into each prediction, or None; `fill` is for what is absent."""

    def __init__(self, inline: str | None = None, fill: float | None = None) -> None:
        self._steps = None if inline is None else _steps(inline)
        self._fill = fill

    def scene(self, site: str, decided: Decided) -> bytes:
        answers = {name: read_answer(taken.value) for name, taken in decided.taken.items()}
        return encode_scene(
            site=site,
            time=decided.time,
            span_ms=decided.span_ms,
            revision=decided.revision,
            closed_by=decided.closed_by,
            seats={
                name: seat_json(
                    "present" if answer.error is None else "rejected",
                    decided.taken[name].id,
                    *answer,
                )
                for name, answer in answers.items()
            },
            absent=decided.absent,
            inline=None if self._steps is None else self._vector(self._steps, decided, answers),
        )

    def _vector(
        self, steps: Sequence[str], decided: Decided, answers: Mapping[str, Answer]
    ) -> list[float | None]:
        """A number a member, in the order of their names."""
        vector = []
        for name in sorted({*answers, *decided.absent}):
            found = None
            if name in answers and answers[name].error is None:
                found = _number(msgspec.json.decode(answers[name].prediction), steps)
            vector.append(self._fill if found is None else found)
        return vector


def late(site: str, refused: Refused) -> bytes:
    arrival, scene = refused.arrival, refused.scene
    return encode_late(
        id=arrival.id,
        reason=refused.reason,
        site=site,
        member=refused.member,
        scene=None if scene is None else f"{site}/{scene}",
        record=arrival.value,
    )


def _steps(pointer: str) -> list[str]:
    """Of a JSON pointer (RFC 6901)."""
    return [step.replace("~1", "/").replace("~0", "~") for step in pointer.split("/")[1:]]


def _number(answer: Any, steps: Sequence[str]) -> float | None:
    """The number that the steps lead to, if they lead to one."""
    for step in steps:
        if isinstance(answer, dict):
            answer = answer.get(step)
        elif isinstance(answer, list) and step.isdecimal() and int(step) < len(answer):
            answer = answer[int(step)]
        else:
            return None
    is_number = isinstance(answer, int | float) and not isinstance(answer, bool)
    return answer if is_number else None
