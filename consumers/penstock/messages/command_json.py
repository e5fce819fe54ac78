"""The JSON that `penstock progress --json` (`Progress`) and `penstock replay --json` (`Replayed`)
print. Fields are only added.
"""

from typing import Annotated, Any

from msgspec import Meta, Struct

from penstock.messages.reference import Count


class StoppedLine(Struct, frozen=True):
    """A partition that has stopped at this offset, because of too many dead letters. If answers are
    ordered by stream, only a stream of this partition has stopped.
    """

    topic: str
    partition: Count
    offset: Count


class Progress(Struct, frozen=True, kw_only=True):
    """`begun_ms`: when the job of `penstock run --until-end` began; null: there is no job, and
    everything that the topics hold is counted. `references` counts messages by their offsets.
    `rate` (now) and `average` (since the job began) are references a second. `left_s` is the time
    until the end at the average rate; without a job, at the present rate. `left_s` is null if
    nothing moves, or no worker is in the group. `workers` is null if the broker does not tell it.
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
    workers: Count | None = None
    answered_by_errors: Count | None
    errors: dict[str, Count] | None
    stopped: list[StoppedLine]


class ReplayedPartition(Struct, frozen=True):
    """The part of an input partition that is replayed, as a half-open range. `next_offset`: the
    offset of the next message that is to be answered.
    """

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
    """A row that is answered differently now. `then` is its earlier answer and `now` its new one;
    each is a prediction or an error. `columns`: its kept columns; null if there are none.
    """

    id: str
    stream: str
    object: Any
    columns: Any
    then: Any
    now: Any


class Difference(Struct, frozen=True):
    """How the earlier answers and the new ones differ, row by row. `rows`: those with a prediction
    then and now. `agreement`: the share of them that agree; with 95 % confidence the true share is
    between `low` and `high`. `equal` rows have the same JSON values. Of the other rows,
    `same_error` and `other_error` failed both times, with the same code or another one;
    `failed_then` and `failed_now` only once. `only_then` and `only_now` rows have no counterpart.
    `repeated` rows came more than once, and each counts once. `unseen` rows could not be compared,
    because their counterparts were too far away on the other topic. `worst`: its `rows` have a
    prediction then or now.
    """

    rows: Count
    agreed: Count
    equal: Count
    agreement: float
    low: float
    high: float
    same_error: Count
    other_error: Count
    failed_then: Count
    failed_now: Count
    only_then: Count
    only_now: Count
    repeated: Count
    unseen: Count
    worst: list[ReplayedStream]
    examples: list[Example]


class Replayed(Struct, kw_only=True):
    """`complete`: True if the whole range is answered; if it is not, the same command continues the
    replay. `messages`: how many offsets the range has; `done`: how many of them are answered, by
    this run of the command or by earlier runs. The following fields are of this run only: `rows`;
    `rejected` (by code); `skipped` (the number of objects of other streams); `idle_s` (the time for
    which the replay waited for the live group); and `took_s`. `model` and `until_ms` are null if
    they were not given.
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
