"""From a record of the prediction topic to the topic it goes to next: its site's, or the late one.

Rule: nothing is left out unless `scenes.late` is "drop": what is no prediction or has no site goes
to the late topic. No I/O. Owner: the engine.
"""

from base64 import b64encode
from typing import NamedTuple

import msgspec

from consumers.scenes.arrival import read_arrival
from consumers.scenes.boundary import Out
from consumers.scenes.names import Names
from consumers.scenes.rules import Streams
from schemas.errors import SchemaError
from schemas.scene import encode_late


class Forward(NamedTuple):
    """`key` is the site; None: `value` is for the late topic."""

    site: str | None
    key: bytes
    value: bytes


def forward(streams: Streams, value: bytes | None, where: str) -> Forward:
    """`where` names the record, as topic/partition/offset, for one that has no id."""
    try:
        arrival = read_arrival(value or b"", 0)
        arrival.stream.encode()
    except (SchemaError, UnicodeEncodeError):
        raw = msgspec.json.encode({"value_b64": b64encode(value or b"").decode()})
        return Forward(None, where.encode(), _late(where, "unreadable", raw))
    place = streams.place(arrival.stream)
    if place is None:
        return Forward(None, arrival.stream.encode(), _late(arrival.id, "no_site", arrival.value))
    return Forward(place.site, place.site.encode(), arrival.value)


class Rekey:
    """Of one engine."""

    def __init__(self, streams: Streams, names: Names, *, late_is_dropped: bool) -> None:
        self._streams = streams
        self._names = names
        self._late_is_dropped = late_is_dropped

    def out(self, value: bytes | None, partition: int, offset: int, at_ms: int) -> Out | None:
        """The record of the next topic; None: there is none."""
        where = f"{self._names.input}/{partition}/{offset}"
        site, key, passed_on = forward(self._streams, value, where)
        if site is not None:
            return Out(self._names.by_site, key, passed_on, at_ms=at_ms)
        return None if self._late_is_dropped else Out(self._names.late, key, passed_on)


def _late(id: str, reason: str, record: bytes) -> bytes:
    return encode_late(id=id, reason=reason, site=None, member=None, scene=None, record=record)
