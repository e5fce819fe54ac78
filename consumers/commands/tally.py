"""What `penstock predict` has to say at its end: rows, errors, time, and the exit code.

Rule: a record is looked at as far as it is counted. Where nothing was read at all, the exit
code is that of the reason, as it would be at the start.
"""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence

import msgspec
from msgspec import Struct

from consumers.errors import EXIT_CHECK_FAILED, EXIT_DONE, EXIT_UNREACHABLE, EXIT_USAGE
from consumers.verify.findings import counted
from schemas.prediction import Failure, ObjectId, Result

# Where no row was read: a wrong URL or missing rights are the caller's to correct.
_CODES: Mapping[str, int] = {
    "bad_reference": EXIT_USAGE,
    "not_allowed": EXIT_USAGE,
    "not_found": EXIT_USAGE,
    "forbidden": EXIT_USAGE,
    "unavailable": EXIT_UNREACHABLE,
}


class _Record(Struct, gc=False):
    row: int | None
    object: ObjectId | None = None
    last: bool = False
    error: Failure | None = None
    result: Result | None = None


_decode = msgspec.json.Decoder(_Record).decode


class Tally:
    """`take` records as they come; then `sentence` and `exit_code`."""

    def __init__(self, now_s: Callable[[], float]) -> None:
        self.records = 0
        self._now_s = now_s
        self._began_s = now_s()
        self.rows = self.objects = 0
        self._rejected: Counter[str] = Counter()
        self._unread: Counter[str] = Counter()
        self._first: str | None = None

    def take(self, lines: Sequence[bytes]) -> str | None:
        """The first error of all, in words, when it is among these."""
        known = self._first
        for line in lines:
            self._add(_decode(line))
        return self._first if known is None else None

    def _add(self, record: _Record) -> None:
        self.records += 1
        self.rows += record.row is not None
        self.objects += record.last
        if record.result is not None:
            self.rows += record.result.rows
            if record.result.errors:
                self._rejected["named in the results"] += record.result.errors
        if record.error is None:
            return
        (self._unread if record.row is None else self._rejected)[record.error.code] += 1
        if self._first is None:
            where = record.object.key if record.object else "a message"
            row = "" if record.row is None else f", row {record.row}"
            self._first = f"{where}{row}: {record.error.code}: {record.error.message}"

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
        if self._unread:
            said += f", {counted(self._unread.total(), 'object')} not read to the end"
            said += f" ({_by_code(self._unread)})"
        return said


def _by_code(errors: Counter[str]) -> str:
    return ", ".join(f"{code} {number:,}" for code, number in errors.most_common())
