"""Rejections of the output topic against letters of the dead-letter topic.

Rule: what was answered by an error has a letter that asks for it again, and every letter stands for
such an answer. Owner: the judge; memory grows with the rejections only.
"""

from collections.abc import Callable
from typing import NamedTuple

from consumers.core.ranges import END, Ranges
from consumers.verify.asked import Want
from consumers.verify.findings import Findings
from consumers.verify.repeats import ObjectAt
from schemas.dead_letter import DeadLetter

# (bucket, key) of an object; None for inline rows and for what is no reference.
Name = tuple[str, str] | None


class About(NamedTuple):
    """An object of a message, as a dead letter names it."""

    partition: int
    offset: int
    name: Name

    def __str__(self) -> str:
        return "the message" if self.name is None else "/".join(self.name)


class Letters:
    """`rejected` and `failed` say what needs a letter, `take` what has one, `settle` compares."""

    def __init__(self, input_topic: str, topic: str, findings: Findings) -> None:
        self._input_topic = input_topic
        self._topic = topic
        self._findings = findings
        self._owed: dict[About, Ranges] = {}
        self._sent: dict[About, Ranges] = {}
        self._places: dict[About, tuple[int, int]] = {}
        self._messages: set[tuple[int, int]] = set()

    def rejected(self, about: About, row: int) -> None:
        self._owed.setdefault(about, Ranges()).add(row, row + 1)

    def failed(self, about: About, want: Want, row: int) -> None:
        """The object could not be read from `row` on."""
        owed = self._owed.setdefault(about, Ranges())
        for start, stop in want.rest_from(row):
            owed.add(start, stop)

    def take(self, partition: int, offset: int, letter: DeadLetter) -> None:
        name = (letter.object.bucket, letter.object.key) if letter.object else None
        about = About(letter.source.partition, letter.source.offset, name)
        again = letter.reference
        # Only a letter that its topic would not have taken leaves the reference out.
        is_whole = again is not None or isinstance(letter.value_b64, str)
        if is_whole and (again is None) != (name is None):
            self._bad(partition, offset, "a letter about an object, and only that, has a reference")
        elif again is not None and ((again.bucket, again.key), again.rows) != (name, letter.rows):
            self._bad(partition, offset, "its reference does not ask for the rows that failed")
        sent = self._sent.setdefault(about, Ranges())
        for start, stop in Ranges.of(letter.rows):
            sent.add(start, stop)
        self._places.setdefault(about, (partition, offset))
        self._messages.add(about[:2])

    def _bad(self, partition: int, offset: int, text: str) -> None:
        self._findings.tell("bad_dead_letter", self._topic, partition, offset, text)

    def any_about(self, at: ObjectAt) -> bool:
        """Is there a letter about any object of this message?"""
        return (at.partition, at.offset) in self._messages

    def ends_at(self, about: About, want: Want, row: int) -> bool:
        """Does a letter ask for all that is wanted from `row` on?"""
        sent = self._sent.get(about)
        return sent is not None and not want.rest_from(row).minus(sent)

    def settle(
        self, is_judged: Callable[[About], bool], may_be_silent: Callable[[About], bool]
    ) -> None:
        """Tell what does not match, of the messages that are judged. A letter alone is right where
        the failure itself is not said: `may_be_silent`.
        """
        nothing = Ranges()
        for about, owed in self._owed.items():
            missing = owed.minus(self._sent.get(about, nothing))
            if missing and is_judged(about):
                self._findings.tell(
                    "missing_dead_letter",
                    self._input_topic,
                    about.partition,
                    about.offset,
                    f"{about}: {_rows(missing)} answered by an error, and no letter in "
                    f"{self._topic} asks for it again",
                )
        for about, sent in self._sent.items():
            stray = sent.minus(self._owed.get(about, nothing))
            if stray and is_judged(about) and not may_be_silent(about):
                self._findings.tell(
                    "stray_dead_letter",
                    self._topic,
                    *self._places[about],
                    f"{about} of {self._input_topic}/{about.partition}/{about.offset}: "
                    f"{_rows(stray)} has a letter, but no error in the output",
                )


def _rows(rows: Ranges) -> str:
    return "all of it" if list(rows) == [(0, END)] else f"row {rows}"
