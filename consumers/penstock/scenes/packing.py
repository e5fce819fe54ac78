"""Packs a site's state and its decisions into records that their topics accept.

Rule: if a record would be too large, answers are left out of it, and the record says so. In a
state, the scene with the most bytes of answers is the first to lose its answers. Members, ids and
decisions are never left out. Owner: the ledger.
"""

from penstock.scenes.changelog import CLAIM_BYTES
from penstock.scenes.core.scene_record import SceneRecords
from penstock.scenes.core.site import Decisions, Site
from penstock.scenes.core.state import Decided, dump, without_answers
from penstock.scenes.late_topic import Late
from penstock.scenes.ledger_ports import Fits, Out
from penstock.scenes.settings import Names


class Packing:
    def __init__(self, scene_records: SceneRecords, late: Late, names: Names, fits: Fits) -> None:
        self._scene_records = scene_records
        self._late = late
        self._names = names
        self._fits = fits

    def pack(self, site: Site, decisions: Decisions) -> tuple[bytes, bool]:
        """Returns the packed state, with these decisions as its outbox. If the state is too large
        for the changelog, first the answers in its scenes are dropped, then the answers in the
        outbox. The second returned value is True if the state fills more than half a record even
        without answers, so that one more batch might make the state too large.
        """
        site.state.outbox = self._outbox(site.name, decisions) if any(decisions) else []
        packed = dump(site.state)
        if self._is_writable(site.name, 2 * len(packed)):
            return packed, False
        while not self._is_writable(site.name, len(packed)) and site.lighten():
            packed = dump(site.state)
        if not self._is_writable(site.name, len(packed)):
            site.state.outbox = self._outbox(site.name, decisions, is_bare=True)
            packed = dump(site.state)
        least = dump(without_answers(site.state))
        return packed, not self._is_writable(site.name, 2 * len(least))

    def _is_writable(self, site: str, nbytes: int) -> bool:
        return self._fits(self._names.changelog, site.encode(), CLAIM_BYTES + nbytes)

    def _outbox(
        self, site: str, decisions: Decisions, *, is_bare: bool = False
    ) -> list[tuple[str, bytes]]:
        outs = list[Out]()
        for scene in decisions.scenes:
            outs += self._scene(site, scene, is_bare=is_bare)
        for refused in decisions.refused:
            outs += self._late.refused(site, refused, is_bare=is_bare)
        return [(out.topic, out.value or b"") for out in outs]

    def _scene(self, site: str, scene: Decided, *, is_bare: bool) -> list[Out]:
        """The scene's record. If it is too large, the record is made without predictions, and a
        letter tells about it.
        """
        key, is_bare = site.encode(), is_bare or scene.is_bare
        value = self._scene_records.scene(site, scene, is_bare=is_bare)
        if not is_bare and not self._fits(self._names.scenes, key, len(value)):
            is_bare, value = True, self._scene_records.scene(site, scene, is_bare=True)
        letter = self._late.bare(site, scene) if is_bare else []
        return [Out(self._names.scenes, key, value), *letter]
