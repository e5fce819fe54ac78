"""From a record of the prediction topic to the topic it goes to next: its site's, or the late one.

Rule: nothing is left out: what is no prediction or has no site goes to the late topic. No I/O.
Owner: the Faust application.
"""

from base64 import b64encode
from typing import NamedTuple

import msgspec

from consumers.scenes.arrival import read_arrival
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


def _late(id: str, reason: str, record: bytes) -> bytes:
    return encode_late(id=id, reason=reason, site=None, member=None, scene=None, record=record)
