"""The three families of errors. Each tells the code that catches an error what to do.

    PenstockError
    ├── Transient     the other side fails or is away: the same request may work later
    │   ├── Unreachable   no answer at all (refused, reset, timed out)
    │   │   ├── NoAnswer      the request was sent; the same rows may again get no answer
    │   │   │   └── HungUp        the connection broke during the request, before the time was up
    │   │   └── LockedOut     our clock is wrong, or our credentials have expired
    │   ├── Overloaded    the other side answered that it has too much to do: send less at a time
    │   ├── WorkerDied    the process that did the work died; the same rows again may kill it again
    │   ├── Fenced        another owner has taken over; what we had begun is void
    │   └── Undecided     an open transaction of another member may still move the position
    ├── Poison        this record, object or row can never work: marker, dead letter, go on
    │   ├── Rejected      the model answered that it cannot take these rows
    │   └── Unforeseen    handling it raised any other exception: try once more, alone
    └── Fatal         going on would do harm or is pointless: stop the process

Adapters and decoders translate every library error into one of these; any other exception is a
fault, and `calls/unexpected_errors.py` says what a fault costs.
"""

import re
from typing import Final, Literal, Self

ErrorCode = Literal[
    "bad_reference",
    "not_allowed",
    "not_found",
    "forbidden",
    "changed",
    "too_large",
    "bad_archive",
    "bad_format",
    "bad_row",
    "model_rejected",
    "model_mismatch",
    "result_too_large",
    "unavailable",
]

EXIT_DONE = 0
EXIT_CHECK_FAILED = 1
EXIT_USAGE = 2
EXIT_UNREACHABLE = 3
EXIT_FATAL = 4
# A job was asked to end before it was done. Shells show the same code for a process that SIGTERM
# ends.
EXIT_STOPPED = 143

# Of the text of a library's own exception at most this many characters are shown.
_SHOWN_CHARS = 200
# A library's message may hold Python's default text of an object, with its place in memory.
_MEMORY_ADDRESS: Final = re.compile(" at 0x[0-9a-f]+")


class PenstockError(Exception):
    """The base of everything that is raised on purpose; `str()` is a message for a person. `sent`:
    the request to which this error was the answer, as a text for people. The request is not part of
    the message, so that two rows with the same error have the same message.
    """

    sent: str | None = None

    def _render_traceback_(self) -> list[str]:
        """Returns what a notebook shows (IPython calls a method of this name): the message alone,
        because the place in the library at which the error was raised does not help to mend its
        cause.
        """
        return [f"{type(self).__name__}: {self}"]


class Transient(PenstockError):
    """Worth another try. `retry_after_s`: the pause that the other side asked for, if it did."""

    def __init__(self, message: str, *, retry_after_s: float | None = None) -> None:
        super().__init__(message)
        self.retry_after_s = retry_after_s


class Unreachable(Transient):
    """No answer came: the connection was refused, reset or timed out. The error says nothing about
    the request.
    """


class NoAnswer(Unreachable):
    """The request was sent, but the connection broke or the time ran out before its answer came. If
    the same rows get no answer again, while other rows are answered, the rows without an answer are
    suspects. `is_oversize`: the request was larger than servers usually take.
    """

    def __init__(self, message: str, *, is_oversize: bool = False) -> None:
        super().__init__(message)
        self.is_oversize = is_oversize


class HungUp(NoAnswer):
    """The connection broke during the request: either the server is gone, or the rows of the
    request make it hang up. A hang-up is noticed at once, so it costs no more time than a refusal.
    """


class LockedOut(Unreachable):
    """The server answered that our clock is wrong or our credentials have expired. That answer says
    nothing about the request, so no object is to blame.
    """


class Overloaded(Transient):
    """The other side has too much work. Fewer requests at a time help."""


class WorkerDied(Transient):
    """The model's worker process died, perhaps because of the rows that it had. If a worker process
    dies again when it has these rows, the rows are suspects.
    """


class Fenced(Transient):
    """The partition has a later owner, so the former owner can publish nothing any more."""


class Undecided(Transient):
    """Another member's transaction is open; it will be committed or taken back."""


class Poison(PenstockError):
    """Never worth another try. `code`: the error code of markers and dead letters. `stage`: the
    stage that found the error, if another stage catches it.
    """

    def __init__(self, code: ErrorCode, message: str) -> None:
        super().__init__(message)
        self.code = code
        self.stage: str | None = None


class Rejected(Poison):
    """The model refused these rows because of their content. Smaller calls may tell which."""


class Unforeseen(Poison):
    """This record, object or row met a bug: of ours, of a library or of a plug-in. `place`: where
    the exception was reported (`calls/unexpected_errors.py`).
    """

    def __init__(self, code: ErrorCode, message: str) -> None:
        super().__init__(code, message)
        self.place: str | None = None

    @classmethod
    def of(cls, code: ErrorCode, error: BaseException) -> Self:
        text = without_addresses(f"{type(error).__name__}: {error}")
        said = text.rstrip(": ").partition("\n")[0][:_SHOWN_CHARS]
        found = cls(
            code,
            f"{said}: nobody foresaw this; the worker's log has the trace, which is a fault to "
            "report",
        )
        found.__cause__ = error
        return found


def without_addresses(text: str) -> str:
    """The text of a library's exception without addresses in memory, so that each reading of the
    same object is answered by the same text.
    """
    return _MEMORY_ADDRESS.sub("", text)


class Fatal(PenstockError):
    """Stop the process with `exit_code`."""

    def __init__(self, message: str, *, exit_code: int = EXIT_FATAL) -> None:
        super().__init__(message)
        self.exit_code = exit_code


def usage(message: str) -> Fatal:
    """Returns the error for a mistake of the caller, such as a wrong argument, setting or file."""
    return Fatal(message, exit_code=EXIT_USAGE)


def first_cause(group: BaseExceptionGroup[BaseException]) -> BaseException:
    """The first failure inside nested groups. A `PenstockError` is preferred to all other
    exceptions, because it was raised on purpose, while any other exception is a bug.
    """
    flat = [
        first_cause(error) if isinstance(error, BaseExceptionGroup) else error
        for error in group.exceptions
    ]
    return min(flat, key=lambda error: not isinstance(error, PenstockError))
