"""What limits a worker: what to add more of, so that answers come sooner.

Rule: nothing limits a worker that is on time. Of one that is late, a service that is away is named
first. Then the part that is full; of several the one furthest down the flow, as everything before
it waits for it. A worker that is full is told to be skewed if one partition has the backlog: its
records cannot go to another worker. If no part is full, the slowest part of the way is named, if
it takes half of the time. Pure. Owner: the worker's figures.
"""

from collections.abc import Mapping, Sequence
from typing import Final, Literal, NamedTuple

Bound = Literal["worker", "model", "store", "kafka", "skew"]

# From this share on queues grow faster than the load: at 0.8 of a server's time a request waits
# four times as long as it takes.
FULL: Final = 0.8
# A worker is late when a record waits for longer than this, or when more than this share of objects
# took longer than `window.target_p99_ms`.
LATE_S: Final = 1.0
LATE_SHARE: Final = 0.01
# So much of a worker's backlog must be of one partition of several to call it skewed.
HOT_SHARE: Final = 0.8
# This part of the way is the limit if it takes so much of the time, without the time in Kafka.
LONGEST_SHARE: Final = 0.5

# Whom each part of the way waits for. The others (queue, wait, hold_back) wait for one of these.
PARTS: Final[Mapping[str, Bound]] = {
    "fetch": "store",
    "decode": "worker",
    "call": "model",
    "publish": "kafka",
}


class Busy(NamedTuple):
    """Shares of the last seconds, from 0 to 1. `publishing`: of the partitions, how many have
    records with the broker.
    """

    loop: float = 0.0
    calls: float = 0.0
    buffer: float = 0.0
    fetchers: float = 0.0
    decoders: float = 0.0
    publishing: float = 0.0


class Away(NamedTuple):
    """The services that do not answer."""

    model: bool = False
    store: bool = False
    kafka: bool = False


def is_late(age_s: float, lag_s: float, over_bound: float | None) -> bool:
    """`age_s`: of the oldest record without an answer; `lag_s`: how long the records that are still
    in Kafka will take; `over_bound`: the share of objects beyond their bound.
    """
    return age_s > LATE_S or lag_s > LATE_S or (over_bound or 0.0) > LATE_SHARE


def bound_by(
    busy: Busy, away: Away, way_s: Mapping[str, float], lags: Sequence[int], *, late: bool
) -> Bound | None:
    """`way_s`: where the time of delivered objects went; `lags`: records not committed, by
    partition.
    """
    if away.kafka:
        return "kafka"
    if not late:
        return None
    if away.model:
        return "model"
    if away.store:
        return "store"
    return _full(busy, lags) or _slowest(way_s) or ("skew" if _is_skewed(lags) else None)


def _full(busy: Busy, lags: Sequence[int]) -> Bound | None:
    # Before all others: a loop without time makes every service look slow.
    if busy.loop >= FULL:
        return "skew" if _is_skewed(lags) else "worker"
    if busy.publishing >= FULL:
        return "kafka"
    if busy.calls >= FULL:
        return "model"
    if busy.decoders >= FULL:
        return "skew" if _is_skewed(lags) else "worker"
    if busy.fetchers >= FULL:
        return "store"
    if busy.buffer >= FULL:
        return "skew" if _is_skewed(lags) else "worker"
    return None


def _slowest(way_s: Mapping[str, float]) -> Bound | None:
    parts = {part: spent_s for part, spent_s in way_s.items() if part != "kafka_in"}
    part = max(PARTS, key=lambda part: parts.get(part, 0.0))
    longest_s = parts.get(part, 0.0)
    return PARTS[part] if longest_s and longest_s >= LONGEST_SHARE * sum(parts.values()) else None


def _is_skewed(lags: Sequence[int]) -> bool:
    return len(lags) > 1 and max(lags) > HOT_SHARE * sum(lags)
