"""The last line of `penstock predict`: its counts of rows and errors, its time; and the exit code.

Rule: only the counted fields of a record are decoded. If no row was read at all, the causes decide
the exit code; it is then one of the codes of a failed start. Owner: the command.
"""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence

import msgspec
from msgspec import Struct

from penstock.errors import EXIT_CHECK_FAILED, EXIT_DONE, EXIT_UNREACHABLE, EXIT_USAGE
from penstock.messages.prediction import Failure, ObjectId, Result
from penstock.verify.findings import counted

# Exit codes if no row was read. Usage: the caller must correct a wrong URL or missing rights.
_CODES: Mapping[str, int] = {
    "bad_reference": EXIT_USAGE,
    "not_allowed": EXIT_USAGE,
    "not_found": EXIT_USAGE,
    "forbidden": EXIT_USAGE,
    "unavailable": EXIT_UNREACHABLE,
}


# All objects without rows are counted; the first of them, at most this many, are named.
SHOWN_EMPTY = 3


class _Record(Struct, gc=False):
    row: int | None
    object: ObjectId | None = None
    last: bool = False
    error: Failure | None = None
    result: Result | None = None


_decode = msgspec.json.Decoder(_Record).decode


class Tally:
    """Call `take` with records as they come, and then `sentence` and `exit_code`."""

    def __init__(self, now_s: Callable[[], float]) -> None:
        self.records = 0
        self._now_s = now_s
        self._began_s = now_s()
        self.rows = self.objects = 0
        self._rejected: Counter[str] = Counter()
        self._unread: Counter[str] = Counter()
        self._empty, self._has_error = 0, False
        self._skipped = 0
        self._said: list[str] = []

    def take(self, lines: Sequence[bytes]) -> list[str]:
        """Count these records. Returns lines to print at once: the first error of all, and the
        first objects without rows.
        """
        for line in lines:
            self._add(_decode(line))
        said, self._said = self._said, []
        return said

    def skip(self) -> None:
        """Count an object that is not read, because its result exists already."""
        self._skipped += 1

    def _add(self, record: _Record) -> None:
        self.records += 1
        self.rows += record.row is not None
        self.objects += record.last
        if record.result is not None:
            self.rows += record.result.rows
            if record.result.errors:
                self._rejected["named in the results"] += record.result.errors
        if record.error is None:
            if record.row is None and not (record.result and record.result.rows):
                self._no_rows(record)
            return
        if not self._has_error:
            self._has_error = True
            self._said.append(f"the first error: {_in_words(record, record.error)}")
        (self._unread if record.row is None else self._rejected)[record.error.code] += 1

    def _no_rows(self, record: _Record) -> None:
        self._empty += 1
        if self._empty <= SHOWN_EMPTY:
            self._said.append(f"no rows in {record.object.key if record.object else 'a message'}")

    def exit_code(self, *, allow_errors: bool) -> int:
        if self._unread and not self.rows:
            return max(_CODES.get(code, EXIT_CHECK_FAILED) for code in self._unread)
        errors = self._unread or self._rejected
        return EXIT_CHECK_FAILED if errors and not allow_errors else EXIT_DONE

    def sentence(self) -> str:
        took_s = self._now_s() - self._began_s
        rate = f", {self.rows / took_s:,.0f} rows/s" if took_s > 0 else ""
        found = f"{counted(self.rows, 'row')} of {counted(self.objects, 'object')}"
        said = f"{found} in {took_s:.1f} s{rate}"
        said += f": {self.rows - self._rejected.total():,} predicted"
        if self._rejected:
            said += f", {self._rejected.total():,} rejected ({_by_code(self._rejected)})"
        if self._empty:
            said += f", {counted(self._empty, 'object')} without rows"
        if self._unread:
            said += f", {counted(self._unread.total(), 'object')} not read to the end"
            said += f" ({_by_code(self._unread)})"
        if self._skipped:
            said += f", {counted(self._skipped, 'object')} skipped: their results are there"
        return said


def _in_words(record: _Record, error: Failure) -> str:
    key = record.object.key if record.object else "a message"
    name = "" if key in error.message else key  # the message may name the object already
    row = "" if record.row is None else f"row {record.row}"
    where = ", ".join(filter(None, (name, row)))
    return ": ".join(filter(None, (where, error.code, error.message)))


def _by_code(errors: Counter[str]) -> str:
    return ", ".join(f"{code} {number:,}" for code, number in errors.most_common())
