"""The bucket of a simulated world: its objects, and what happens to them while workers read.

Rule: it tells every version to the deployments, which compute the right answers. Errors that
readers may get from a change are noted in `unsteady`, and allowed.
"""

from collections.abc import Callable
from random import Random
from typing import Any, NamedTuple

import orjson

from penstock.adapters.memory import MemoryObjects
from penstock.tools.simulation import announcements
from penstock.tools.simulation.announcements import BUCKET
from penstock.tools.simulation.checks.history import History
from penstock.tools.simulation.deployments import Deployments, Troubles
from penstock.tools.simulation.scenario import Scenario
from penstock.tools.simulation.unreliable_services import (
    FINE,
    HANGS,
    HUNG_UP_ON,
    KILLS,
    LARGE,
    REFUSED_ALONE,
    REFUSED_WITH_ALL,
)

UNPARSABLE = (
    b"nonsense",
    b"\xff\xfe\x00",
    b'{"bucket":"b","key":"\xed\xa0\x80"}',
    b'{"bucket":"b","key":"f/1.csv","rows":[]}',
    b'{"bucket":"b","key":"f/1.csv","rows":[[5,2]]}',
    b'{"bucket":"b","key":"f/1.csv","event_time":1e400}',
    b'{"objects":' + b"[" * 2_000,
    b'{"bucket":"b","key":"f/1.csv","attributes":%b}' % (b'{"a":' * 40 + b"1" + b"}" * 40),
    b'{"inline":7}',
    b"nonsense" * 2_000,
)
# Rows that are refused, each for a reason of its own.
UNLIKE = (
    b'[1,"x"]', b'"text"', b"[[1]]", b'{"a":1}', b"null", b"[1,2,3]", b"[true,0]", b"[]",
    b"[1e400,0]",
)  # fmt: skip


class PoisonMessages:
    """`put`: a function that stores an object. `cut`: for some objects, by key, the number of bytes
    after which the transfer always breaks. `slow`: how many objects need minutes until they are
    given up.
    """

    def __init__(self, random: Random, put: Callable[[str, bytes], str], streams: int) -> None:
        self._streams = streams
        self.cut: dict[str, int] = {}
        self.missing: list[str] = []
        self.slow = 0
        self._random = random
        self._put = put
        self._keys = 0
        self._number = 2_000_000

    def make(self) -> bytes:
        kinds: tuple[Callable[[], bytes], ...] = (
            self._many_ranges, self._many_reasons, self._unparsable, self._attributes, self._cut,
            self._all_refused, self._deadly, self._large, self._bad_rows,
        )  # fmt: skip
        (kind,) = self._random.choices(kinds, weights=(3, 3, 3, 3, 2, 3, 2, 2, 2))
        return kind()

    def _key(self, suffix: str = ".csv") -> str:
        self._keys += 1
        return f"p/{self._keys}{suffix}"

    def _named(self, data: bytes, **more: Any) -> bytes:
        key = self._key()
        self._put(key, data)
        return self._reference(key, **more)

    def _reference(self, key: str, **more: Any) -> bytes:
        stream = f"s{self._random.randrange(self._streams)}"
        return orjson.dumps({"bucket": BUCKET, "key": key, "stream": stream} | more)

    def _lines(self, *flags: int) -> bytes:
        self._number += len(flags)
        numbered = enumerate(flags, self._number - len(flags))
        return b"".join(b"%d,%d\n" % (number, flag) for number, flag in numbered)

    def _many_ranges(self) -> bytes:
        """A message with many row ranges. Its dead letter repeats all ranges twice."""
        ranges = [(2 * number, 2 * number + 1) for number in range(self._random.choice((20, 300)))]
        kind = self._random.randrange(3)
        if kind == 0:
            self.missing.append(self._key())
            return self._reference(self.missing[-1], rows=ranges)
        flag = FINE if kind == 1 else REFUSED_ALONE
        return self._named(self._lines(*[flag] * 10) + b"1,2,3\n", rows=ranges)

    def _many_reasons(self) -> bytes:
        rows = [UNLIKE[number % len(UNLIKE)] for number in range(self._random.randint(2, 40))]
        return b'{"stream":"inline","inline":[%b]}' % b",".join(rows)

    def _unparsable(self) -> bytes:
        return self._random.choice(UNPARSABLE)

    def _attributes(self) -> bytes:
        size = self._random.choice((1_000, 2_000, 2_000, 70_000))
        flags = [FINE] * self._random.randint(1, 60)
        return self._named(self._lines(*flags), attributes={"pad": "x" * size})

    def _cut(self) -> bytes:
        data = self._lines(*[FINE] * self._random.randint(1, 100))
        key = self._key()
        self._put(key, data)
        self.slow += 1
        self.cut[key] = self._random.randrange(len(data))
        return self._reference(key)

    def _all_refused(self) -> bytes:
        flag = self._random.choice((REFUSED_ALONE, REFUSED_WITH_ALL))
        return self._named(self._lines(*[flag] * self._random.randint(1, 60)))

    def _deadly(self) -> bytes:
        flags = [FINE] * self._random.randint(0, 20)
        deadly = self._random.choice((KILLS, KILLS, HANGS, HUNG_UP_ON, HUNG_UP_ON))
        flags.insert(self._random.randint(0, len(flags)), deadly)
        self.slow += 1
        return self._named(self._lines(*flags))

    def _large(self) -> bytes:
        flags = [self._random.choice((FINE, LARGE)) for _ in range(self._random.randint(1, 9))]
        return self._named(self._lines(*flags))

    def _bad_rows(self) -> bytes:
        return self._named(self._lines(FINE, FINE) + b"x\n" * self._random.choice((10, 1_000)))


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
        zoo, make = announcements.ObjectMaker(draws.load), scenario.make_object
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
            for message in self._messages.present:
                if message[0] == key:
                    self._overwrite(*message)

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
                self._messages.present = [
                    message for message in self._messages.present if message[0] != key
                ]
                self.objects.delete(announcements.BUCKET, key)

    def switch_versions(self) -> None:
        """The bucket starts or stops giving a version id to each object."""
        self.objects.versioned = not self.objects.versioned
        self._history.note("versions", str(self.objects.versioned))
