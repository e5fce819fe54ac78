"""The bucket of a simulated world: its objects, and what happens to them while workers read.

Rule: the bucket tells every version of an object to the deployments, which compute the right
answers to that version. If an object changes, readers may get certain errors from the change. The
bucket notes these errors in `unsteady`, and the checks allow them. Owner: one simulation.
"""

from random import Random
from typing import NamedTuple

from penstock.adapters.memory.objects import MemoryObjects
from penstock.tools.simulation import announcements
from penstock.tools.simulation.checks.history import History
from penstock.tools.simulation.deployments import Deployments, Troubles
from penstock.tools.simulation.poison_messages import PoisonMessages
from penstock.tools.simulation.scenario import Scenario


class Draws(NamedTuple):
    """One source of random numbers for each concern, so that they do not disturb each other."""

    storm: Random
    load: Random
    poison: Random
    spoil: Random


class Bucket:
    """`message` draws a message and stores most of the objects that it names. `cursed`: objects
    that can never be opened. `cut`: for some objects, by name, the number of bytes after which the
    transfer always breaks.
    """

    def __init__(
        self,
        objects: MemoryObjects,
        scenario: Scenario,
        troubles: Troubles,
        deployments: Deployments,
        history: History,
        unsteady: dict[str, set[str]],
        *,
        draws: Draws,
    ) -> None:
        self.objects = objects
        self.cursed: set[str] = set()
        self.cut: dict[str, int] = {}
        self._troubles = troubles
        self._deployments = deployments
        self._history = history
        self._unsteady = unsteady
        self._draws = draws
        zoo, make = announcements.Objects(draws.load), scenario.make_object
        make_object = zoo.make if make is None else lambda: make(draws.load)
        # In a world in which failures in a row stop a line, all objects are of one stream. There
        # are so few objects that several streams would never have enough failures to stop a line.
        streams = 1 if troubles.lines else 5
        self._messages = announcements.Messages(draws.load, make_object, self.put, streams)
        self._poison = PoisonMessages(draws.poison, self.put, streams)
        self._spoilt = 0.6 if troubles.lines else 0.3 if troubles.poison else 0.0

    @property
    def slow(self) -> int:
        """How many objects need minutes until they are given up."""
        return len(self.cursed) + self._poison.slow

    def message(self) -> bytes | None:
        """The next message. The objects that it names are stored before the message is returned,
        except for a few that are never stored.
        """
        if self._draws.spoil.random() < self._spoilt:
            value: bytes | None = self._poison.make()
        else:
            value = self._messages.make()
        for name in self._messages.cursed:
            self.cursed.add(f"{announcements.BUCKET}/{name}")
        self.cut |= {f"{announcements.BUCKET}/{key}": at for key, at in self._poison.cut.items()}
        for name in (*self.cursed, *self.cut):
            self._unsteady[name].add("unavailable")
        for key in (*self._messages.missing, *self._poison.missing):
            self._unsteady[f"{announcements.BUCKET}/{key}"].add("not_found")
        return value

    def overwrite(self) -> None:
        """Replace an object, even while a worker reads it."""
        if self._messages.present:
            self._overwrite(*self._draws.storm.choice(self._messages.present))

    def _overwrite(self, key: str, suffix: str) -> None:
        name = f"{announcements.BUCKET}/{key}"
        if name not in self.cursed:
            self._history.note("overwrite", key)
            self._unsteady[name].add("changed")
            self.put(key, self._messages.again(suffix))

    def broke(self, key: str) -> None:
        """The transfer of an object has broken. The object may be replaced before the next try."""
        if self._troubles.objects and self._draws.spoil.random() < 0.5:
            for one in self._messages.present:
                if one[0] == key:
                    self._overwrite(*one)

    def put(self, key: str, data: bytes) -> str:
        etag = self.objects.put(announcements.BUCKET, key, data)
        for version in (f"v{etag[1:-1]}", etag):
            self._deployments.put(f"{announcements.BUCKET}/{key}", version, data)
        return etag

    def delete(self) -> None:
        """Delete an object, even while a worker reads it."""
        if self._messages.present:
            key, _ = self._draws.storm.choice(self._messages.present)
            name = f"{announcements.BUCKET}/{key}"
            if name not in self.cursed:
                self._history.note("delete", key)
                self._unsteady[name] |= {"not_found", "changed"}
                self._messages.present = [one for one in self._messages.present if one[0] != key]
                self.objects.delete(announcements.BUCKET, key)

    def switch_versions(self) -> None:
        """The bucket starts or stops giving a version id to each object."""
        self.objects.versioned = not self.objects.versioned
        self._history.note("versions", str(self.objects.versioned))
