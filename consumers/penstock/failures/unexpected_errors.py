"""Guards: an unexpected exception ends only the work on its object, row or batch, not the worker.

Rule: if an exception of a library, a plug-in or a fault of our own leaves a guarded block, it
becomes `Unforeseen`, with the error code of the place. The stage tries the work once more, alone,
and rejects it if that fails. Work that belongs to no object (ledger, order, commits) is not
guarded, and `MemoryError` is never caught.
"""

import logging
from collections.abc import Callable
from contextvars import ContextVar
from dataclasses import dataclass
from types import TracebackType
from typing import Final, Literal, Protocol

from penstock.core.rows.log_keys import Keys
from penstock.errors import ErrorCode, PenstockError, Poison, Unforeseen
from penstock.ports import Clock

log = logging.getLogger(__name__)

GuardedPlace = Literal["message", "store", "decode", "model", "record", "letter", "result"]
_CODES: Final[dict[GuardedPlace, ErrorCode]] = {"decode": "bad_format", "model": "model_mismatch"}
# The keys of the message or object that the running task works on, for the log.
_at_work: Final[ContextVar[Callable[[], Keys]]] = ContextVar("at_work", default=dict)
# Each kind of exception is logged with its traceback once in this time. The counter tells how often
# it happens.
QUIET_S: Final = 3600.0


def works_on(keys: Callable[[], Keys]) -> None:
    """Note on which message or object the running task works from now on. `keys`: a function that
    returns the log keys of this message or object; it is called only if there is something to log.
    """
    _at_work.set(keys)


class Counts(Protocol):
    def unforeseen(self, place: GuardedPlace, /) -> None: ...


class Guards:
    """`at` makes the guard of a place. `raises`: True in tests; then the unexpected exception
    itself is raised, so that it ends the run.
    """

    def __init__(self, telemetry: Counts, clock: Clock, *, raises: bool = False) -> None:
        self._telemetry = telemetry
        self._clock = clock
        self._raises = raises
        self._quiet_until_s: dict[tuple[GuardedPlace, str], float] = {}

    def at(self, place: GuardedPlace, stage: str | None = None) -> "Guard":
        """`stage`: the name with which every `Poison` that leaves the guard is marked; None: none
        is marked.
        """
        return Guard(self, place, stage)

    def told(self, place: GuardedPlace, error: BaseException) -> BaseException:
        """Returns the error that is to leave the guarded block instead of `error`. If `error` is
        unexpected, it is counted and logged, and an `Unforeseen` is returned. All other errors are
        returned unchanged.
        """
        failure = error if isinstance(error, Unforeseen) else self._found(place, error)
        if not isinstance(failure, Unforeseen) or failure.place is not None:
            return failure
        cause = failure.__cause__ or failure.__context__ or failure
        if self._raises:
            return cause
        failure.place = place
        self._telemetry.unforeseen(place)
        name, now_s = type(cause).__name__, self._clock.now()
        if now_s >= self._quiet_until_s.get((place, name), 0.0):
            self._quiet_until_s[place, name] = now_s + QUIET_S
            log.error(
                "nobody foresaw this %s (%s)", name, place, exc_info=cause, extra=_at_work.get()()
            )
        return failure

    def _found(self, place: GuardedPlace, error: BaseException) -> BaseException:
        if isinstance(error, PenstockError) or not _belongs(error):
            return error
        return Unforeseen.of(_CODES.get(place, "unavailable"), error)


@dataclass(slots=True, frozen=True)
class Guard:
    """The context manager of a guarded block. Any number of tasks may be in the block. The guard is
    a class, because `contextmanager` would make two objects for each use.
    """

    guards: Guards
    place: GuardedPlace
    stage: str | None

    def __enter__(self) -> None:
        return

    def __exit__(
        self, _: type[BaseException] | None, error: BaseException | None, __: TracebackType | None
    ) -> None:
        if error is None:
            return
        failure = self.guards.told(self.place, error)
        if isinstance(failure, Poison) and self.stage is not None:
            failure.stage = self.stage
        if failure is not error:
            raise failure from error


def _belongs(error: BaseException) -> bool:
    # Panics of libraries written in Rust are not subclasses of `Exception`.
    is_panic = type(error).__module__ == "pyo3_runtime"
    return is_panic or (isinstance(error, Exception) and not isinstance(error, MemoryError))
