"""The bucket of a simulated world: its objects, and what happens to them while workers read.

Rule: the eras learn every version of an object, so that they know its right answers. A change of an
object is noted in `unsteady`, so that the checks allow the errors that it may cause. Owner: one
simulation.
"""

from random import Random
from typing import NamedTuple

from penstock.adapters.memory.objects import MemoryObjects
from penstock.simulation import load
from penstock.simulation.checks.eras import Eras, Troubles
from penstock.simulation.checks.history import History
from penstock.simulation.poison import PoisonMessages
from penstock.simulation.scenario import Scenario


class Draws(NamedTuple):
    """A source of random numbers for each concern."""

    storm: Random
    load: Random
    poison: Random
    spoil: Random


class Bucket:
    """`message` names objects, and puts most of them here. `cursed` are objects that are never read
    to their end, `cut` those whose transfer always breaks at one byte.
    """

    def __init__(
        self,
        objects: MemoryObjects,
        scenario: Scenario,
        troubles: Troubles,
        eras: Eras,
        history: History,
        unsteady: dict[str, set[str]],
        *,
        draws: Draws,
    ) -> None:
        self.objects = objects
        self.cursed: set[str] = set()
        self.cut: dict[str, int] = {}
        self._troubles = troubles
        self._eras = eras
        self._history = history
        self._unsteady = unsteady
        self._draws = draws
        zoo, make = load.Objects(draws.load), scenario.make_object
        make_object = zoo.make if make is None else lambda: make(draws.load)
        # Where lines stop at failures in a row, a world's few objects are of one stream.
        streams = 1 if troubles.lines else 5
        self._messages = load.Messages(draws.load, make_object, self.put, streams)
        self._poison = PoisonMessages(draws.poison, self.put, streams)
        self._spoilt = 0.6 if troubles.lines else 0.3 if troubles.poison else 0.0

    @property
    def slow(self) -> int:
        """Objects that take minutes, each, until they are given up."""
        return len(self.cursed) + self._poison.slow

    def message(self) -> bytes | None:
        """The next one, of objects that are there by now or never will be."""
        if self._draws.spoil.random() < self._spoilt:
            value: bytes | None = self._poison.make()
        else:
            value = self._messages.make()
        for name in self._messages.cursed:
            self.cursed.add(f"{load.BUCKET}/{name}")
        self.cut |= {f"{load.BUCKET}/{key}": at for key, at in self._poison.cut.items()}
        for name in (*self.cursed, *self.cut):
            self._unsteady[name].add("unavailable")
        for key in (*self._messages.missing, *self._poison.missing):
            self._unsteady[f"{load.BUCKET}/{key}"].add("not_found")
        return value

    def overwrite(self) -> None:
        """An object is replaced, even while a worker reads it."""
        if self._messages.present:
            self._overwrite(*self._draws.storm.choice(self._messages.present))

    def _overwrite(self, key: str, suffix: str) -> None:
        name = f"{load.BUCKET}/{key}"
        if name not in self.cursed:
            self._history.note("overwrite", key)
            self._unsteady[name].add("changed")
            self.put(key, self._messages.again(suffix))

    def broke(self, key: str) -> None:
        """A transfer broke off: the next try may find another object."""
        if self._troubles.objects and self._draws.spoil.random() < 0.5:
            for one in self._messages.present:
                if one[0] == key:
                    self._overwrite(*one)

    def put(self, key: str, data: bytes) -> str:
        etag = self.objects.put(load.BUCKET, key, data)
        for version in (f"v{etag[1:-1]}", etag):
            self._eras.put(f"{load.BUCKET}/{key}", version, data)
        return etag

    def delete(self) -> None:
        """An object is gone, even while a worker reads it."""
        if self._messages.present:
            key, _ = self._draws.storm.choice(self._messages.present)
            name = f"{load.BUCKET}/{key}"
            if name not in self.cursed:
                self._history.note("delete", key)
                self._unsteady[name] |= {"not_found", "changed"}
                self._messages.present = [one for one in self._messages.present if one[0] != key]
                self.objects.delete(load.BUCKET, key)

    def switch_versions(self) -> None:
        """The bucket names versions from now on, or no longer does."""
        self.objects.versioned = not self.objects.versioned
        self._history.note("versions", str(self.objects.versioned))
