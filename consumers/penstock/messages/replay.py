"""What `penstock replay --json` prints: how far a replay is, and what it answered.

Rule: fields are only added. Owner: the command.
"""

from typing import Annotated, Any

from msgspec import Meta, Struct

from penstock.messages.reference import Count


class ReplayedPartition(Struct, frozen=True):
    """Of an input partition the range, half open, and the next message of it to be answered."""

    topic: str
    partition: Count
    begin: Count
    end: Count
    next_offset: Count


class ReplayedStream(Struct, frozen=True):
    """How many rows of a stream were compared, and how many of them agreed."""

    stream: str
    rows: Count
    agreed: Count


class Example(Struct, frozen=True):
    """A row that was answered otherwise then than now: its predictions, or the errors in their
    place.
    """

    id: str
    stream: str
    then: Any
    now: Any


class Difference(Struct, frozen=True):
    """The answers of then and of now, row by row. `agreement` is the share of the compared rows
    that agree, within `low` and `high` in 95 of 100 cases; `equal` rows have the same bytes.
    `only_then` and `only_now` have no counterpart. `unseen` could not be compared, as their
    counterparts were too far away on the other topic.
    """

    rows: Count
    agreed: Count
    equal: Count
    agreement: float
    low: float
    high: float
    only_then: Count
    only_now: Count
    repeated: Count
    unseen: Count
    worst: list[ReplayedStream]
    examples: list[Example]


class Replayed(Struct, kw_only=True):
    """`complete`: all of the range is answered; else the same command goes on. `messages` are the
    offsets of the range, `done` those that are answered, by all starts together. Rows, `rejected`
    (by code), the objects that were `skipped` for their stream, `idle_s` (waited for the live
    group) and `took_s` are of this start. `model` and `until_ms` are null where they were not
    given.
    """

    v: Annotated[int, Meta(ge=1)] = 1
    name: str
    group: str
    to: str
    model: str | None
    since_ms: int
    until_ms: int | None
    complete: bool
    messages: Count
    done: Count
    rows: Count
    rejected: dict[str, Count]
    skipped: Count
    idle_s: float
    took_s: float
    partitions: list[ReplayedPartition]
    difference: Difference | None = None
