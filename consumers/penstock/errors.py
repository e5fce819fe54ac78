"""The three families of errors. Each tells the code that catches an error what to do.

    PenstockError
    ├── Transient     the other side fails or is unavailable; the same request may work later
    │   ├── Unreachable   no answer at all (refused, reset, timed out)
    │   │   ├── NoAnswer      the request was sent; with the same rows there may again be no answer
    │   │   │   └── HungUp        the connection broke before the time was up
    │   │   └── LockedOut     our clock is wrong, or our credentials have expired
    │   ├── Overloaded    the other side answered that it has too much to do: send less at a time
    │   ├── WorkerDied    the process that did the work died; the same rows again may kill it again
    │   ├── Fenced        a new owner has taken over; the work that we had begun is void
    │   └── Undecided     an open transaction of another member may still move the position
    ├── Poison        this record, object or row can never be answered: reject it and go on
    │   ├── Rejected      the model answered that it cannot take these rows
    │   │   └── Doubtful      the server failed at these rows, and may do so when it is busy
    │   └── Unforeseen    its handling raised any other exception: try it once more, alone
    └── Fatal         going on would do harm or is pointless: stop the process

Adapters and decoders translate every error of a library into one of these. Any other exception is
a fault; `failures/unexpected_errors.py` says what happens then.
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
    "result_refused",
    "unavailable",
]

EXIT_DONE = 0
EXIT_CHECK_FAILED = 1
EXIT_USAGE = 2
EXIT_UNREACHABLE = 3
EXIT_FATAL = 4
# The exit code of a job that was asked to end before it was done. Shells show the same code for a
# process that SIGTERM ends.
EXIT_STOPPED = 143

# At most this many characters of a library's own exception are shown.
_SHOWN_CHARS = 200
# A library's message may hold Python's default text of an object, with its place in memory.
_MEMORY_ADDRESS: Final = re.compile(" at 0x[0-9a-f]+")


class PenstockError(Exception):
    """The base of all exceptions that we raise on purpose. `str()` of such an error is a message
    for people. `sent`: the request to which this error was the answer, as a text for people. It is
    not part of the message, so that two rows with the same error have the same message.
    """

    sent: str | None = None

    def _render_traceback_(self) -> list[str]:
        """IPython calls a method of this name to show an error in a notebook. Only the message is
        shown, because the place in our code at which the error was raised does not help to mend its
        cause. The name is the one that programs catch.
        """
        return [f"{PenstockError.__name__}: {self}"]


class Transient(PenstockError):
    """Another try may succeed. `retry_after_s`: if the other side asked for a pause, its length."""

    def __init__(self, message: str, *, retry_after_s: float | None = None) -> None:
        super().__init__(message)
        self.retry_after_s = retry_after_s


class Unreachable(Transient):
    """No answer came, because the connection was refused, reset or timed out. This says nothing
    about the request itself. `mend`: what a person should check. `found`: the message without it,
    for a page that says by itself what to check.
    """

    def __init__(self, message: str, *, mend: str = "", retry_after_s: float | None = None) -> None:
        text = f"{message}; {mend}" if mend else message
        super().__init__(text, retry_after_s=retry_after_s)
        self.found = message


class NoAnswer(Unreachable):
    """The request was sent, but the connection broke or the time ran out before its answer came. If
    the same rows again get no answer, while other rows are answered, the rows without an answer are
    suspects. `is_oversize`: True if the request was larger than servers usually take.
    """

    def __init__(self, message: str, *, is_oversize: bool = False) -> None:
        super().__init__(message)
        self.is_oversize = is_oversize


class HungUp(NoAnswer):
    """The connection broke during the request. Either the server is gone, or the rows of the
    request make it hang up. A hang-up is noticed at once, so it costs no more time than a refusal.
    """


class LockedOut(Unreachable):
    """The server answered that our clock is wrong or our credentials have expired. That answer says
    nothing about the request, so no object is to blame.
    """


class Overloaded(Transient):
    """The other side has too much work. We should send fewer requests at a time."""


class WorkerDied(Transient):
    """The process that did the work died, perhaps because of the rows that it had. If such a
    process dies again with the same rows, the rows are suspects.
    """


class Fenced(Transient):
    """The partition has a new owner, so we, its former owner, can publish nothing any more."""


class Expired(Transient):
    """The broker no longer knows this producer, so nothing of its transaction is published. The
    worker's other producers may have become as old.
    """


class Undecided(Transient):
    """Another member's transaction is still open. It will be committed or aborted."""


class Poison(PenstockError):
    """No other try can succeed. `code`: the error code of markers and dead letters. `stage`: the
    stage that found the error, if another stage catches it.
    """

    def __init__(self, code: ErrorCode, message: str) -> None:
        super().__init__(message)
        self.code = code
        self.stage: str | None = None


class Rejected(Poison):
    """The model refused these rows because of their content. Smaller calls may tell which row is to
    blame.
    """


class Doubtful(Rejected):
    """The server answered that something went wrong, but not what. Most servers answer so if the
    model raised, some also if they are busy with the requests of others.
    """


class Unforeseen(Poison):
    """A bug came up while this record, object or row was handled: a bug of ours, of a library, or
    of a plug-in. `place`: where the exception was reported (`failures/unexpected_errors.py`).
    """

    def __init__(self, code: ErrorCode, message: str) -> None:
        super().__init__(code, message)
        self.place: str | None = None

    @classmethod
    def of(cls, code: ErrorCode, error: BaseException) -> Self:
        text = without_addresses(f"{type(error).__name__}: {error}")
        reason = text.rstrip(": ").partition("\n")[0][:_SHOWN_CHARS]
        poison = cls(
            code,
            f"{reason}: nobody foresaw this; the worker's log has the trace, which is a fault to "
            "report",
        )
        poison.__cause__ = error
        return poison


def words_of(error: BaseException) -> str:
    """What a library's error says. Most timeouts say nothing."""
    silent = "no answer came in time" if isinstance(error, TimeoutError) else type(error).__name__
    return str(error) or silent


def without_addresses(text: str) -> str:
    """The text of a library's exception without addresses in memory. So if the same object is read
    again, the answer has the same text.
    """
    return _MEMORY_ADDRESS.sub("", text)


class Fatal(PenstockError):
    """Stop the process with `exit_code`."""

    def __init__(self, message: str, *, exit_code: int = EXIT_FATAL) -> None:
        super().__init__(message)
        self.exit_code = exit_code


def usage(message: str) -> Fatal:
    """Make the error for a mistake of the user, such as a wrong argument, setting or file."""
    return Fatal(message, exit_code=EXIT_USAGE)


def first_cause(group: BaseExceptionGroup[BaseException]) -> BaseException:
    """The first failure inside nested groups. If one of the failures is a `PenstockError`, it is
    preferred to all others, because it was raised on purpose, and any other exception is a bug.
    """
    flat = [
        first_cause(error) if isinstance(error, BaseExceptionGroup) else error
        for error in group.exceptions
    ]
    return min(flat, key=lambda error: not isinstance(error, PenstockError))
