"""What nobody foresaw costs the object, the row or the batch that it belongs to, not the worker.

Rule: an exception of none of our families that leaves a guarded block (a library's, a plug-in's, a
fault of ours) becomes `Unforeseen`, with the code of its place. The stage there tries once more,
alone, and then answers by it. What belongs to nobody (the ledger, the order, a commit, running out
of memory) is not guarded: it ends the process. Owner: the wiring, which gives each stage the guards
of its places.
"""

import logging
from types import TracebackType
from typing import Final, Literal

from consumers.errors import ErrorCode, PenstockError, Poison, Unforeseen
from consumers.ports import Clock
from consumers.telemetry.worker import Telemetry

log = logging.getLogger(__name__)

Place = Literal["message", "store", "decode", "model", "record", "letter", "result"]
_CODES: Final[dict[Place, ErrorCode]] = {"decode": "bad_format", "model": "model_mismatch"}
# One trace per kind of exception is enough to mend it; the counter tells how often it happens.
QUIET_S: Final = 3600.0


class Guards:
    """`at` each place, a guard. With `raises`, as tests want it, nothing is answered: what nobody
    foresaw ends the run that met it.
    """

    def __init__(self, telemetry: Telemetry, clock: Clock, *, raises: bool = False) -> None:
        self._telemetry = telemetry
        self._clock = clock
        self._raises = raises
        self._quiet_until_s: dict[tuple[Place, str], float] = {}

    def at(self, place: Place, stage: str | None = None) -> "Guard":
        """Every `Poison` that leaves it has this stage, if one is given."""
        return Guard(self, place, stage)

    def told(self, place: Place, error: BaseException) -> BaseException:
        """What leaves the block instead of this error: what it is answered with, if it is to be
        answered.
        """
        found = error if isinstance(error, Unforeseen) else self._found(place, error)
        if not isinstance(found, Unforeseen) or found.place is not None:
            return found
        cause = found.__cause__ or found.__context__ or found
        if self._raises:
            return cause
        found.place = place
        self._telemetry.unforeseen(place)
        name, now_s = type(cause).__name__, self._clock.now()
        if now_s >= self._quiet_until_s.get((place, name), 0.0):
            self._quiet_until_s[place, name] = now_s + QUIET_S
            log.error("nobody foresaw this %s (%s)", name, place, exc_info=cause)
        return found

    def _found(self, place: Place, error: BaseException) -> BaseException:
        if isinstance(error, PenstockError) or not _belongs(error):
            return error
        return Unforeseen.of(_CODES.get(place, "unavailable"), error)


class Guard:
    """A block that may fail alone. Any number of tasks at a time: `contextmanager` would make two
    objects each time.
    """

    __slots__ = ("_guards", "_place", "_stage")

    def __init__(self, guards: Guards, place: Place, stage: str | None) -> None:
        self._guards = guards
        self._place: Place = place
        self._stage = stage

    def __enter__(self) -> None:
        return

    def __exit__(
        self, _: type[BaseException] | None, error: BaseException | None, __: TracebackType | None
    ) -> None:
        if error is None:
            return
        found = self._guards.told(self._place, error)
        if isinstance(found, Poison) and self._stage is not None:
            found.stage = self._stage
        if found is not error:
            raise found from error


def _belongs(error: BaseException) -> bool:
    # Libraries written in Rust raise their panics beside all families.
    is_panic = type(error).__module__ == "pyo3_runtime"
    return is_panic or (isinstance(error, Exception) and not isinstance(error, MemoryError))
