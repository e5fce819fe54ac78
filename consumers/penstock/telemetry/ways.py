"""The way of each of the last objects: its times by stage, and the request to the model that
answered its last rows.

Rule: a way takes some 300 bytes, and above `MOST` the oldest is forgotten, so memory does not grow.
Owner: the telemetry.
"""

from collections import OrderedDict
from struct import Struct
from typing import Final, NamedTuple

# This many ways take 5 MB. They reach back 80 seconds at 200 objects a second, and four hours at
# one object a second.
MOST: Final = 16_384
_PACKED: Final = Struct("<9f3I")


class TimeSpent(NamedTuple):
    """Where an object's time went, in seconds; `kafka_in` counts from the record's timestamp."""

    kafka_in: float = 0.0
    queue: float = 0.0
    fetch: float = 0.0
    decode: float = 0.0
    wait: float = 0.0
    call: float = 0.0
    hold_back: float = 0.0
    publish: float = 0.0


class Way(NamedTuple):
    """`rows`, `objects`: how many rows and objects were in the request that answered the object's
    last rows. `request`: the number of that request in its batch. All three are 0 if no model
    answered these rows.
    """

    spent: TimeSpent
    latency_s: float
    rows: int = 0
    objects: int = 0
    request: int = 0


class Ways:
    """The ways, which are found by `of` and `model`. `of`: topic/partition/offset/object; `model`:
    None for the default model.
    """

    def __init__(self, most: int = MOST) -> None:
        self._most = most
        self._packed: OrderedDict[tuple[str, str | None], bytes] = OrderedDict()

    def add(self, of: str, model: str | None, way: Way) -> None:
        kept = self._packed
        # An object that is delivered again is the newest.
        kept.pop((of, model), None)
        kept[of, model] = _PACKED.pack(*way.spent, *way[1:])
        if len(kept) > self._most:
            kept.popitem(last=False)

    def look(self, of: str, model: str | None) -> Way | None:
        """The way of one object. None: this worker has not delivered the object, or too
        long ago.
        """
        packed = self._packed.get((of, model))
        if packed is None:
            return None
        *spent, latency_s, rows, objects, request = _PACKED.unpack(packed)
        return Way(TimeSpent(*spent), latency_s, rows, objects, request)
