"""Compares the rejections on the output topic with the letters on the dead-letter topic.

Rule: for every answer with an error a letter asks for its rows again; for every letter there is
such an answer, with the same code and model. Memory grows only with rejections.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from penstock.core.rows.origin import END, Ranges
from penstock.messages.dead_letter import DeadLetter
from penstock.tools.verify.fields import named
from penstock.tools.verify.findings import Findings, Kind
from penstock.tools.verify.scope_and_input_topic import ObjectAt, Scope, Want

# The code of an error, and the model that answered.
_Why = tuple[str, str]


@dataclass(slots=True, eq=False)
class _Account:
    """The account of one object. `owed`: the rows that need a letter. `sent`: the rows that have a
    letter. `place`: partition and offset of the first letter.
    """

    about: str = ""
    owed: dict[_Why, Ranges] = field(default_factory=dict)
    sent: dict[_Why, Ranges] = field(default_factory=dict)
    place: tuple[int, int] = (0, 0)


class Letters:
    """Call `rejected` and `failed` to note rows that need a letter, and `take` to note a letter.
    `settle` then compares the letters with the rows that need one.
    """

    def __init__(self, scope: Scope, findings: Findings) -> None:
        self._input_topic = scope.input_topic
        self._topic = scope.dead_letter_topic
        self._findings = findings
        self._exactly_once = scope.exactly_once
        self._accounts: dict[ObjectAt, _Account] = {}
        self._messages: set[tuple[int, int]] = set()
        self._unknown: set[ObjectAt] = set()

    def rejected(self, at: ObjectAt, about: str, row: int, why: _Why) -> None:
        self._owed(at, about, why).add(row, row + 1)

    def failed(self, at: ObjectAt, about: str, want: Want, row: int, why: _Why) -> None:
        """Note that the object was unreadable from `row` on."""
        owed = self._owed(at, about, why)
        for start, stop in want.rest_from(row):
            owed.add(start, stop)

    def _owed(self, at: ObjectAt, about: str, why: _Why) -> Ranges:
        account = self._accounts.setdefault(at, _Account())
        account.about = about
        return account.owed.setdefault(why, Ranges())

    def take(self, partition: int, offset: int, at: ObjectAt, letter: DeadLetter) -> None:
        name, again = named(letter.object), letter.reference
        # If a letter would be too large for its topic, it has neither the reference nor the
        # message.
        is_whole = again is not None or isinstance(letter.value_b64, str)
        if is_whole and (again is None) != (name is None):
            text = "a letter about an object, and only that, has a reference"
            self._tell("bad_dead_letter", partition, offset, text)
        elif again is not None:
            asks_for = (again.bucket, again.key, again.store)
            if (asks_for, again.rows) != (name, letter.rows):
                text = "its reference does not ask for the rows that failed"
                self._tell("bad_dead_letter", partition, offset, text)
        account = self._accounts.setdefault(at, _Account(place=(partition, offset)))
        if not account.sent:
            account.place = partition, offset
        rows = Ranges.of(letter.rows)
        left = rows.minus(_all(account.sent.values()))
        if self._exactly_once and left != rows:
            self._tell("repeated", partition, offset, f"a letter about {at} came before")
        sent = account.sent.setdefault((letter.code, letter.model), Ranges())
        for start, stop in rows:
            sent.add(start, stop)
        self._messages.add(at[:2])

    def pass_over(self, at: ObjectAt) -> None:
        """Note that nobody can tell any more which rows of this object were rejected."""
        self._unknown.add(at)

    def _tell(self, kind: Kind, partition: int, offset: int, text: str) -> None:
        self._findings.tell(kind, self._topic, partition, offset, text)

    def any_about(self, at: ObjectAt) -> bool:
        """True if there is a letter about any object of this message."""
        return (at.partition, at.offset) in self._messages

    def ends_at(self, at: ObjectAt, want: Want, row: int) -> bool:
        """True if letters ask for all wanted rows from `row` on."""
        account = self._accounts.get(at)
        return account is not None and not want.rest_from(row).minus(_all(account.sent.values()))

    def settle(
        self, is_judged: Callable[[ObjectAt], bool], may_be_silent: Callable[[ObjectAt], bool]
    ) -> None:
        """Report where rejections and letters differ. `is_judged`: a function that says whether an
        object is judged at all. `may_be_silent`: a function that says whether an object may have a
        letter without an error on the output topic.
        """
        for at, account in self._accounts.items():
            if is_judged(at) and at not in self._unknown:
                self._settle(at, account, may_be_silent=may_be_silent(at))

    def _settle(self, at: ObjectAt, account: _Account, *, may_be_silent: bool) -> None:
        owed, sent = _all(account.owed.values()), _all(account.sent.values())
        if missing := owed.minus(sent):
            self._findings.tell(
                "missing_dead_letter",
                self._input_topic,
                at.partition,
                at.offset,
                f"{account.about}: {_rows(missing)} answered by an error, and no letter in "
                f"{self._topic} asks for it again",
            )
        stray = sent.minus(owed)
        if stray and not may_be_silent:
            text = f"object {at.object_index} of {self._input_topic}/{at.partition}/{at.offset}"
            text += f": {_rows(stray)} has a letter, but no error in the output"
            self._tell("stray_dead_letter", *account.place, text)
        for (code, model), rows in account.sent.items():
            same = account.owed.get((code, model), Ranges())
            if other := rows.minus(stray).minus(same):
                text = f"{_rows(other)} has a letter of {code} by {model}, and another error"
                self._tell("bad_dead_letter", *account.place, text)


def _all(parts: Iterable[Ranges]) -> Ranges:
    return Ranges(pair for part in parts for pair in part)


def _rows(rows: Ranges) -> str:
    return "all of it" if list(rows) == [(0, END)] else f"row {rows}"
