"""What `penstock progress --json` prints: how far a group is with its input, or with a job.

Rule: fields are only added. Owner: the command.
"""

from typing import Annotated

from msgspec import Meta, Struct

from penstock.messages.reference import Count


class StoppedLine(Struct, frozen=True):
    """A line that was stopped at this offset, because of too many dead letters."""

    topic: str
    partition: Count
    offset: Count


class Progress(Struct, frozen=True, kw_only=True):
    """`begun_ms`: when the job of `penstock run --until-end` began; null: there is no job, and the
    counts are of all that the topics hold. `references` counts messages by their offsets. `rate`
    (now) and `average` (since the job began) are references a second; `left_s` is the time that is
    left at the average rate (without a job, at the rate of now), null if nothing moves.
    `answered_by_errors` counts references, and `errors` counts them by code; both are null if there
    are too many letters to read.
    """

    v: Annotated[int, Meta(ge=1)] = 1
    group: str
    begun_ms: int | None
    references: Count
    answered: Count
    left: Count
    rate: float
    average: float | None
    left_s: float | None
    answered_by_errors: Count | None
    errors: dict[str, Count] | None
    stopped: list[StoppedLine]
