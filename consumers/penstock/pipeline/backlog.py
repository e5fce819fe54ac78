"""What a worker has read from Kafka and not answered yet, and how old that is.

Rule: only pages use it, because it walks over all owed objects. A partition owes at most
`limits.in_flight_objects` of them, or somewhat more where order is kept by stream. Ages are counted
from the records' own timestamps. Owner: the pipeline.
"""

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from penstock.lane.lane import Lane
from penstock.telemetry.streams import NOTHING_OWED, Owed


class Backlog(NamedTuple):
    """`nbytes`: the sum over the objects whose references say a size; None if no reference does.
    `age_s`: the age of the oldest owed record; 0 if nothing is owed. `moving_age_s`: the age of the
    oldest owed record that is not of a stopped line.
    """

    streams: Mapping[str, Owed]
    objects: int
    nbytes: int | None
    age_s: float
    moving_age_s: float


def backlog_of(lanes: Iterable[Lane], now_ms: int) -> Backlog:
    streams: dict[str, Owed] = {}
    objects, sizes = 0, list[int]()
    oldest_ms = oldest_stopped_ms = now_ms
    for lane in lanes:
        # From each stream to the number of its owed objects and the timestamp of the oldest.
        found: dict[str, tuple[int, int]] = {}
        for ticket in lane.unanswered():
            count, oldest = found.get(ticket.stream, (0, now_ms))
            found[ticket.stream] = count + 1, min(oldest, ticket.record.timestamp_ms)
            if ticket.reference is not None and ticket.reference.size is not None:
                sizes.append(ticket.reference.size)
        objects += sum(count for count, _ in found.values())
        oldest_ms = min([oldest_ms, *(oldest for _, oldest in found.values())])
        if lane.undecoded_ms is not None:
            oldest_ms = min(oldest_ms, lane.undecoded_ms)
        # The age of a stopped stream counts from the record that it stopped at.
        for stop in lane.stops:
            count, oldest = found.get(stop.stream, (0, now_ms))
            found[stop.stream] = count, min(oldest, stop.record_ms)
            oldest_stopped_ms = min(oldest_stopped_ms, stop.record_ms)
        # A stream may be in several partitions.
        for stream, (count, oldest) in found.items():
            other = streams.get(stream, NOTHING_OWED)
            age_s = max(other.age_s, (now_ms - oldest) / 1000)
            streams[stream] = Owed(count + other.objects, age_s, lane.partition)
    return Backlog(
        streams,
        objects,
        sum(sizes) if sizes else None,
        (now_ms - min(oldest_ms, oldest_stopped_ms)) / 1000,
        (now_ms - oldest_ms) / 1000,
    )
