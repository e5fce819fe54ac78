"""What a caller is told of the results of one call: how many there are, how many are errors, and
which is the first.

Rule: a call tells its errors once, at its end, by a line of the log. If the first objects all lack
a column that `keep` names, the name is wrong, and the call ends. Owner: the call.
"""

import logging
from collections.abc import Collection

from penstock.errors import usage
from penstock.messages.prediction import Prediction

log = logging.getLogger(__name__)

# If so many objects lack a kept column, the others will, too.
ENOUGH = 3


class Summary:
    def __init__(self, keep: Collection[str]) -> None:
        self._absent = tuple(f'no column "{name}" in ' for name in keep)
        self._results = self._errors = self._lacking = 0
        self._first: Prediction | None = None

    def add(self, result: Prediction) -> None:
        """Raises `Fatal` if the objects so far all lack a kept column, and they are enough."""
        self._results += 1
        if result.error is None:
            return
        self._errors += 1
        self._first = self._first or result
        if result.last and result.error.message.startswith(self._absent):
            self._lacking += 1
            if self._lacking == ENOUGH:
                self._check_keep()

    def end(self) -> None:
        """Tell the errors. Raises `Fatal` if all objects lack a kept column."""
        self._check_keep()
        if self._errors:
            log.warning("%s", self)

    def _check_keep(self) -> None:
        if self._first is not None and 0 < self._lacking == self._results:
            assert self._first.error is not None
            raise usage(f"keep: {self._first.error.message}")

    def __str__(self) -> str:
        text = f"{self._results:,} results, {self._errors:,} of them errors"
        first = self._first
        if first is None or first.error is None:
            return text
        place = first.object.key if first.object else first.stream
        row = "" if first.row is None else f" row {first.row}"
        return f"{text} (the first: {place}{row}: {first.error.code}: {first.error.message})"
