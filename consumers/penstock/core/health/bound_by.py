"""What limits a worker? In other words: which resource must be increased so that answers come
sooner?

Rule: if Kafka is away, Kafka is named. Otherwise nothing limits a worker that is on time. If a
worker is late, another service that is away is named first. Next, a full part is named. If several
parts are full, the one furthest down the flow is named, because everything before that part waits
for it. A full worker counts as skewed if one partition has the backlog, because the records of one
partition cannot go to another worker. If no part is full but most streams are late, the slowest
part of the way is named, provided that it takes half of the time. Pure. Owner: the worker's
figures.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Final, Literal, NamedTuple

Bound = Literal["worker", "model", "store", "kafka", "skew"]

# From this share on, queues grow faster than the load: at a server that is busy for 0.8 of the
# time, a request waits four times as long as its own call takes.
FULL: Final = 0.8
# A worker is late when a record waits for longer than `LATE_S`, or when more than `LATE_SHARE` of
# its objects took longer than `window.target_p99_ms`.
LATE_S: Final = 1.0
LATE_SHARE: Final = 0.01
# A worker counts as skewed if it has several partitions and one of them has at least this share of
# the backlog.
HOT_SHARE: Final = 0.8
# In addition, that partition must commit at least this many times as many records as the other
# partitions do on average.
HOT_TIMES: Final = 2
# The slowest part of the way is named if it takes at least this share of the time. The time in
# Kafka is not counted.
LONGEST_SHARE: Final = 0.5

# For each part of the way: what it waits for. The parts that are missing here (queue, wait,
# hold_back) wait for one of these parts.
PARTS: Final[Mapping[str, Bound]] = {
    "fetch": "store",
    "decode": "worker",
    "call": "model",
    "publish": "kafka",
}


class Busy(NamedTuple):
    """How busy each part was in the last seconds, from 0 to 1. `publishing`: the share of the
    partitions that have records on their way to the broker.
    """

    loop: float = 0.0
    calls: float = 0.0
    buffer: float = 0.0
    fetchers: float = 0.0
    decoders: float = 0.0
    publishing: float = 0.0


class Away(NamedTuple):
    """Which services do not answer."""

    model: bool = False
    store: bool = False
    kafka: bool = False


def is_late(age_s: float, lag_s: float, over_bound: float | None) -> bool:
    """Is the worker late? `age_s`: the age of the oldest record without an answer; `lag_s`: how
    long it will take to answer the records that are still in Kafka; `over_bound`: the share of
    objects that took longer than the target.
    """
    return age_s > LATE_S or lag_s > LATE_S or (over_bound or 0.0) > LATE_SHARE


class Backlogs(NamedTuple):
    """`lags`: for each partition, how many records are not committed; `done`: for each partition,
    how many records were committed recently.
    """

    lags: Mapping[int, int]
    done: Mapping[int, int]

    @property
    def are_skewed(self) -> bool:
        """Does one of several partitions have nearly all of the backlog, although it commits many
        more records than the others? A partition that waits for slow objects has a backlog as well,
        but does not commit more records than the others.
        """
        lags, done = self.lags, self.done
        hot = max(lags, key=lambda number: lags[number], default=None)
        if hot is None or len(lags) < 2 or lags[hot] <= HOT_SHARE * sum(lags.values()):
            return False
        of_hot = done.get(hot, 0)
        of_another = (sum(done.values()) - of_hot) / (len(lags) - 1)
        return of_hot >= HOT_TIMES * of_another


def bound_by(
    busy: Busy,
    away: Away,
    way_s: Mapping[str, float],
    backlogs: Backlogs,
    *,
    late: bool,
    widely: bool,
) -> Bound | None:
    """`way_s`: for each part of the way, the time that delivered objects took there. `widely`: most
    streams are late.
    """
    if away.kafka:
        return "kafka"
    if not late:
        return None
    if away.model:
        return "model"
    if away.store:
        return "store"
    worker: Bound = "skew" if backlogs.are_skewed else "worker"
    if found := _full(busy, worker) or (_slowest(way_s) if widely else None):
        return found
    return "skew" if worker == "skew" else None


def _full(busy: Busy, worker: Bound) -> Bound | None:
    parts: tuple[tuple[float, Bound], ...] = (
        (busy.loop, worker),  # before all others: without a free loop all services look slow
        (busy.publishing, "kafka"),
        (busy.calls, "model"),
        (busy.decoders, worker),
        (busy.fetchers, "store"),
        (busy.buffer, worker),
    )
    return next((bound for share, bound in parts if share >= FULL), None)


def _slowest(way_s: Mapping[str, float]) -> Bound | None:
    parts = {part: spent_s for part, spent_s in way_s.items() if part != "kafka_in"}
    part = max(PARTS, key=lambda part: parts.get(part, 0.0))
    longest_s = parts.get(part, 0.0)
    return PARTS[part] if longest_s and longest_s >= LONGEST_SHARE * sum(parts.values()) else None


def are_most_late(
    streams: Sequence[Mapping[str, Any]],
    others: Mapping[str, Any] | None,
    part_ms: float,
    least_ms: float = 0.0,
) -> bool:
    """Do most streams suffer from a slow part of the way? Such a part makes all streams late. A
    slow camera, in contrast, makes only its own stream late, and the streams that wait behind it.
    `streams`: the streams in most trouble; `others`: all other streams together, None if there are
    none. `part_ms`: how long the part takes on average; below `least_ms` it makes no stream late.
    Streams that were stopped do not count.
    """
    if part_ms < least_ms:
        return False
    moving = [one for one in streams if not one.get("stopped")]
    late = sum(_takes_as_long(one, part_ms) for one in moving)
    if others is not None:
        return late == len(moving) and _takes_as_long(others, part_ms)
    return late > len(moving) / 2


def _takes_as_long(stream: Mapping[str, Any], part_ms: float) -> bool:
    return max((stream["age_s"] or 0.0) * 1000, stream["p99_ms"] or 0.0) >= part_ms
