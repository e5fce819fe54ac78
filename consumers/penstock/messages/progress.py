"""What `penstock progress --json` prints: how far a group is with its input, or with a job.

Rule: fields are only added. Owner: the command.
"""

from typing import Annotated

from msgspec import Meta, Struct

from penstock.messages.reference import Count


class StoppedLine(Struct, frozen=True):
    """A line stands still at this offset, because of too many dead letters."""

    topic: str
    partition: Count
    offset: Count


class Progress(Struct, frozen=True, kw_only=True):
    """`begun_ms`: when the job began that ends by itself (`penstock run --until-end`); null: all
    that the topics hold. `references` are messages, by offsets. `rate` and `average` are a second,
    now and since the job began. `left_s` is null if nothing moves or nothing is known.
    `answered_by_errors` are references, and `errors` of each code; null: too many to be read.
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
