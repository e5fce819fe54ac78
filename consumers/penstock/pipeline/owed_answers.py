"""What a worker has read from Kafka and not answered yet: how much, how old, and whether it still
moves.

Rule: `backlog_of` walks over all owed objects, so it is for status pages only. Ages are counted
from the records' own timestamps. The watchdog looks a few times within its time limit, and reads
only counters that exist anyway. If it ends the worker, no answer is lost.
"""

import asyncio
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from penstock.core.progress.stall import Stall
from penstock.errors import EXIT_UNREACHABLE, Fatal
from penstock.lane.lane import Lane
from penstock.ports import Clock, Where
from penstock.telemetry.streams import Owed
from penstock.telemetry.worker import Telemetry


class Backlog(NamedTuple):
    """`nbytes`: the sum over the objects whose references say a size; None if no reference does.
    `age_s`: the age of the oldest owed record; 0 if nothing is owed. `moving_age_s`: the same age,
    but without the partitions and streams that have stopped because of too many dead letters.
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
        # For each stream: the number of its owed objects, and the timestamps of the oldest and the
        # newest one. A message may name 35,000, so no step of the loop makes anything.
        owed: dict[str, list[int]] = {}
        for ticket in lane.unanswered():
            record_ms, of_stream = ticket.record.timestamp_ms, owed.get(ticket.stream)
            if of_stream is None:
                owed[ticket.stream] = [1, record_ms, record_ms]
            else:
                of_stream[0] += 1
                if record_ms < of_stream[1]:
                    of_stream[1] = record_ms
                elif record_ms > of_stream[2]:
                    of_stream[2] = record_ms
            if ticket.reference is not None and ticket.reference.size is not None:
                sizes.append(ticket.reference.size)
        objects += sum(count for count, *_ in owed.values())
        oldest_ms = min([oldest_ms, *(oldest for _, oldest, _ in owed.values())])
        if lane.undecoded_ms is not None:
            oldest_ms = min(oldest_ms, lane.undecoded_ms)
        # The age of a stopped stream counts from the record that it stopped at.
        for stop in lane.stops:
            count, oldest, newest = owed.get(stop.stream, (0, now_ms, stop.record_ms))
            owed[stop.stream] = [count, min(oldest, stop.record_ms), newest]
            oldest_stopped_ms = min(oldest_stopped_ms, stop.record_ms)
        # A stream may be in several partitions.
        for stream, (count, oldest, newest) in owed.items():
            age_s, newest_s = (now_ms - oldest) / 1000, (now_ms - newest) / 1000
            other = streams.get(stream, Owed(0, age_s, newest_s, None))
            streams[stream] = Owed(
                count + other.objects,
                max(other.age_s, age_s),
                min(other.newest_s, newest_s),
                lane.where,
            )
    return Backlog(
        streams,
        objects,
        sum(sizes) if sizes else None,
        (now_ms - min(oldest_ms, oldest_stopped_ms)) / 1000,
        (now_ms - oldest_ms) / 1000,
    )


# How many times the watchdog looks within the limit.
LOOKS = 10


class Watchdog:
    """`limit_s`: after this time without any progress the worker ends."""

    def __init__(
        self, lanes: Mapping[Where, Lane], clock: Clock, telemetry: Telemetry, *, limit_s: float
    ) -> None:
        self._lanes = lanes
        self._clock = clock
        self._telemetry = telemetry
        self._limit_s = limit_s

    async def run(self) -> None:
        look_s = self._limit_s / LOOKS
        stall = Stall(self._limit_s, look_s, self._clock.now())
        while True:
            await asyncio.sleep(look_s)
            snapshots = {where: lane.snapshot for where, lane in self._lanes.items()}
            stuck = stall.look(self._clock.now(), snapshots, self._telemetry.retries)
            if stuck is not None:
                lane = self._lanes[stuck.where]
                raise Fatal(
                    f"{lane.where} stands still since {stuck.still_s:.0f} s "
                    f"(limits.stall_ms): {stuck.snapshot.stage} holds offset "
                    f"{stuck.snapshot.offset}.\n"
                    f"{lane!r}.\n"
                    "Nothing is lost: start the worker again, it goes on at the last commit.",
                    exit_code=EXIT_UNREACHABLE,
                )
