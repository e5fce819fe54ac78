"""Makes the records by which predictions are passed on. An accepted prediction gets a record for
the repartition topic, which is keyed by the prediction's site (`Rekey`). A refused prediction, or a
scene that is published without its predictions, gets a letter for the late topic (`LateTopic`).

Rule: re-keying refuses a record if it is not a prediction, if its stream has no site, or if the
repartition topic does not take it. No record is lost unless `scenes.late` is "drop". No I/O.
"""

import logging
from base64 import b64encode
from functools import partial

import msgspec

from penstock.messages.reference import SchemaError
from penstock.messages.scene import NOT_TAKEN, TOO_LARGE, encode_late
from penstock.scenes.core.arrival import Arrival, read_arrival
from penstock.scenes.core.rules import Place, SiteStreams
from penstock.scenes.core.state import Decided, Refused
from penstock.scenes.ledger_ports import Fits, Out

log = logging.getLogger(__name__)


class LateTopic:
    """Makes the letters of the late topic. A letter holds the prediction's record if the topic
    accepts so large a letter. If not, the letter's id says where the record is. If `scenes.late` is
    "drop", no letter is made.
    """

    def __init__(self, topic: str, fits: Fits, *, is_dropped: bool) -> None:
        self._topic = topic
        self._fits = fits
        self._is_dropped = is_dropped

    def refused(self, site: str, refused: Refused, *, is_bare: bool = False) -> list[Out]:
        arrival, scene = refused.arrival, refused.scene
        return self.out(
            site,
            arrival.id,
            refused.reason,
            b"" if is_bare else arrival.value,
            site=site,
            member=refused.member,
            scene=None if scene is None else f"{site}/{scene}",
            model=arrival.model or None,
        )

    def bare(self, site: str, decided: Decided) -> list[Out]:
        """The letter about a scene that was too large to hold its predictions."""
        scene = f"{site}/{decided.time}"
        return self.out(site, scene, TOO_LARGE, b"", site=site, scene=scene)

    def out(
        self,
        key: str,
        id: str,
        reason: str,
        record: bytes,
        *,
        site: str | None = None,
        member: str | None = None,
        scene: str | None = None,
        model: str | None = None,
    ) -> list[Out]:
        """The letter to write; none if `scenes.late` is "drop". The letter's field `record` is null
        if the argument `record` is empty or too large.
        """
        if self._is_dropped:
            return []
        encode = partial(
            encode_late, id=id, reason=reason, site=site, member=member, scene=scene, model=model
        )
        value = encode(record=record or b"null")
        if not self._fits(self._topic, key.encode(), len(value)):
            value = encode(record=b"null")
        return [Out(self._topic, key.encode(), value)]


class Rekey:
    """Finds the site and the member of a prediction, and makes the record or the letter by which
    the prediction is passed on. `topic`: the repartition topic, where predictions are keyed by
    their site.
    """

    def __init__(self, streams: SiteStreams, topic: str, late: LateTopic, fits: Fits) -> None:
        self._streams = streams
        self._topic = topic
        self._late = late
        self._fits = fits

    def placed(self, value: bytes, recorded_ms: int) -> tuple[Arrival, Place] | None:
        """The prediction, and its site and member. None: the record is not a prediction, or its
        stream has no site.
        """
        try:
            arrival = read_arrival(value, recorded_ms)
        except SchemaError:
            return None
        place = self._streams.place(arrival.stream)
        return None if place is None else (arrival, place)

    def out(self, value: bytes | None, where: str, at_ms: int) -> list[Out]:
        """The record for the repartition topic, or the letter for the late topic; nothing if a
        refused prediction is dropped. `where`: topic/partition/offset of the record, which a letter
        uses as the name of a record without an id.
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

        def letter(reason: str) -> list[Out]:
            model = arrival.model or None
            named = {"site": site, "member": member, "model": model}
            return self._late.out(site, arrival.id, reason, value, **named)

        def not_taken(reason: str) -> list[Out]:
            log.error("%s refused %s of %s: %s", self._topic, arrival.id, where, reason)
            return letter(NOT_TAKEN)

        if not self._fits(self._topic, site.encode(), len(value)):
            return letter(TOO_LARGE)
        return [Out(self._topic, site.encode(), value, None, at_ms, not_taken)]
