"""Where the time of delivered objects went, and the way of each of the last objects.

Rule: rows are counted with each release; an object's times once, with its last one.
"""

from collections import OrderedDict
from collections.abc import Mapping, Sequence
from struct import Struct
from typing import Final, NamedTuple

from penstock.core.progress.order import Release
from penstock.core.window.pace import Pace
from penstock.ports import Clock
from penstock.telemetry.worker import Telemetry, TimeSpent
from penstock.tracing import Tracer

# So many ways are kept. They take 5 MB, and reach back 80 seconds at 200 objects a second, or four
# hours at one object a second.
MOST_WAYS: Final = 16_384
_PACKED: Final = Struct("<9f3I")


class Way(NamedTuple):
    """`rows`, `objects`: how many rows and objects were in the request that answered the object's
    last rows. `request`: the position of that request among the requests of its batch, from 1.
    These three fields are 0 if no model answered the last rows.
    """

    spent: TimeSpent
    latency_s: float
    rows: int = 0
    objects: int = 0
    request: int = 0


class Ways:
    """The ways of the last objects. A way is found by `of` (topic/partition/offset/object) and
    `model` (None: the default model). If there are more than `most` ways, the oldest one is
    forgotten.
    """

    def __init__(self, most: int = MOST_WAYS) -> None:
        self._most = most
        self._packed: OrderedDict[tuple[str, str | None], bytes] = OrderedDict()

    def add(self, of: str, model: str | None, way: Way) -> None:
        kept = self._packed
        # If an object is delivered again, its way becomes the newest one.
        kept.pop((of, model), None)
        kept[of, model] = _PACKED.pack(*way.spent, *way[1:])
        if len(kept) > self._most:
            kept.popitem(last=False)

    def look(self, of: str, model: str | None) -> Way | None:
        """The way of one object. None: this worker has not delivered the object, or has delivered
        it too long ago.
        """
        packed = self._packed.get((of, model))
        if packed is None:
            return None
        *spent, latency_s, rows, objects, request = _PACKED.unpack(packed)
        return Way(TimeSpent(*spent), latency_s, rows, objects, request)


class DeliveryTimes:
    """The times go to the metrics, to the status page, to the object's trace, and to the pace of
    its model. `paces`: for each model whose window is learned, its pace.
    """

    def __init__(
        self,
        paces: Mapping[str | None, Pace],
        clock: Clock,
        telemetry: Telemetry,
        tracer: Tracer | None,
    ) -> None:
        self.ways = Ways()
        self._paces = paces
        self._clock = clock
        self._telemetry = telemetry
        self._tracer = tracer

    def delivered(self, releases: Sequence[Release], released_s: float) -> None:
        """Count these releases, which left their lane at `released_s` and are delivered now."""
        streams, rows = self._telemetry.streams, 0
        now_s, now_ms = self._clock.now(), self._clock.wall_ms()
        latencies_s: list[float] = []
        spent: list[TimeSpent] = []
        finished: list[Release] = []
        for release in releases:
            ticket, latency_s = release.ticket, None
            # The latency of an object is known only when its last release is delivered.
            if release.finished:
                finished.append(release)
                latency_s = max(0, now_ms - ticket.record.timestamp_ms) / 1000
                latencies_s.append(latency_s)
                spent.append(_time_spent(release, latency_s, released_s, now_s))
                way = _way(release, spent[-1], latency_s)
                self.ways.add(ticket.name, ticket.model, way)
            its_rows = release.rows
            rows += its_rows
            streams.delivered(ticket.stream, ticket.owner.where, its_rows, latency_s, now_s)
        self._telemetry.rows_delivered(rows)
        # No object ended with these releases.
        if not spent:
            return
        self._telemetry.objects_delivered(latencies_s, spent)
        if self._tracer is not None:
            for latency_s, trace_id in self._tracer.delivered(
                finished, latencies_s, released_s, now_s
            ):
                self._telemetry.latency_example(latency_s, trace_id)
        # A model with fixed limits has no pace.
        if self._paces:
            for release, latency_s, times in zip(finished, latencies_s, spent, strict=True):
                if release.ticket.gives_way:
                    continue  # it waited for live objects, whose target the pace is to reach
                if (pace := self._paces.get(release.ticket.model)) is not None:
                    pace.elsewhere(latency_s - times.wait - times.call)


def _way(release: Release, spent: TimeSpent, latency_s: float) -> Way:
    asked = release.blocks[-1].asked if release.blocks else None
    return Way(spent, latency_s) if asked is None else Way(spent, latency_s, *asked)


def _time_spent(release: Release, latency_s: float, released_s: float, now_s: float) -> TimeSpent:
    """The time that each step took for the last rows of the object."""
    ticket = release.ticket
    # The record's timestamp comes from the clock of another machine. Only `kafka_in`, the time
    # until we received the record, depends on it; all other steps are measured by our own clock.
    here_s = now_s - ticket.received_s
    if not release.blocks or release.blocks[-1].answers is None:
        return TimeSpent(kafka_in=latency_s - here_s, publish=now_s - released_s)
    last = release.blocks[-1]
    return TimeSpent(
        kafka_in=latency_s - here_s,
        queue=ticket.fetching_s - ticket.received_s,
        fetch=ticket.fetched_s - ticket.fetching_s,
        decode=max(0.0, last.arrived_s - ticket.fetched_s),
        wait=last.called_s - last.arrived_s,
        call=last.answered_s - last.called_s,
        hold_back=released_s - last.answered_s,
        publish=now_s - released_s,
    )
