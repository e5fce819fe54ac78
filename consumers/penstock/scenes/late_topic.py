"""The records of the late topic: predictions that got into no scene, and letters about scenes that
were published without their predictions.

Rule: a letter holds the prediction's record if the topic accepts so large a letter. If not, the
letter's id says where the record is. With `scenes.late = "drop"` nothing is written. Owner: the
re-keying and the ledger, because these refuse predictions.
"""

from functools import partial

from penstock.messages.scene import TOO_LARGE, encode_late
from penstock.scenes.core.state import Decided, Refused
from penstock.scenes.ledger_ports import Fits, Out


class Late:
    """Makes the records of the late topic."""

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
        """The letter to write; none with `scenes.late = "drop"`. The letter's `record` is null if
        `record` is empty or too large.
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
