"""Makes the records by which predictions are passed on. An accepted prediction gets a record for
the repartition topic, which is keyed by the prediction's site. A refused prediction gets a letter
for the late topic.

Rule: a record goes to the late topic if it is no prediction, has no site, or is too large for the
repartition topic. No record is lost unless `scenes.late` is "drop". No I/O. Owner: the engine.
"""

from base64 import b64encode

import msgspec

from penstock.messages.reference import SchemaError
from penstock.messages.scene import TOO_LARGE
from penstock.scenes.core.arrival import Arrival, read_arrival
from penstock.scenes.core.rules import Place, Streams
from penstock.scenes.late_topic import Late
from penstock.scenes.ledger_ports import Fits, Out


class Rekey:
    """`topic`: the repartition topic, where predictions are keyed by their site."""

    def __init__(self, streams: Streams, topic: str, late: Late, fits: Fits) -> None:
        self._streams = streams
        self._topic = topic
        self._late = late
        self._fits = fits

    def placed(self, value: bytes, recorded_ms: int) -> tuple[Arrival, Place] | None:
        """The prediction, and its site and member. None: the record is no prediction, or its stream
        has no site.
        """
        try:
            arrival = read_arrival(value, recorded_ms)
        except SchemaError:
            return None
        place = self._streams.place(arrival.stream)
        return None if place is None else (arrival, place)

    def out(self, value: bytes | None, where: str, at_ms: int) -> list[Out]:
        """The record for the repartition topic, or the letter for the late topic; nothing if a
        refused prediction is dropped. `where` (topic/partition/offset) names a record that has no
        id.
        """
        value = value or b""
        try:
            arrival = read_arrival(value, at_ms)
        except SchemaError:
            raw = msgspec.json.encode({"value_b64": b64encode(value).decode()})
            return self._late.out(where, where, "unreadable", raw)
        place = self._streams.place(arrival.stream)
        if place is None:
            stream, model = arrival.stream, arrival.model or None
            return self._late.out(stream, arrival.id, "no_site", value, model=model)
        site, member = place
        if not self._fits(self._topic, site.encode(), len(value)):
            return self._late.out(
                site,
                arrival.id,
                TOO_LARGE,
                value,
                site=site,
                member=member,
                model=arrival.model or None,
            )
        return [Out(self._topic, site.encode(), value, at_ms=at_ms)]
