"""Is every reference answered to its end, and does every failure have its dead letter?

Rule: asked once, after everything was read. A loss is named at the record of the input topic
that was not answered. Owner: the judge.
"""

from collections.abc import Mapping

from consumers.ops.verify_expected import Expected, Letters, Message, Name
from consumers.ops.verify_order import MARKER_ROW, Seen
from consumers.ops.verify_report import Kind, Report, Violation
from consumers.ops.verify_rows import ENDLESS, Ranges, between, closed, minus, text, union


class Completeness:
    """Adds what is missing to the report."""

    def __init__(
        self,
        report: Report,
        seen: Mapping[tuple[int, int, int], Seen],
        letters: Letters,
        input_topic: str,
        markers: bool,
    ) -> None:
        self._report = report
        self._seen = seen
        self._letters = letters
        self._topic = input_topic
        self._markers = markers

    def check(
        self, expected: Mapping[int, Mapping[int, Message]], committed: Mapping[int, int]
    ) -> None:
        for partition, messages in expected.items():
            unanswered = [
                offset
                for offset, message in messages.items()
                if not self._message(partition, offset, message)
            ]
            position = committed.get(partition)
            if unanswered and position is not None and position > unanswered[0]:
                self._blame(
                    "commit_ahead",
                    partition,
                    unanswered[0],
                    f"a committed offset of at most {unanswered[0]}",
                    f"{position} is committed",
                )

    def _message(self, partition: int, offset: int, message: Message) -> bool:
        """Is every object of it answered? If so, dead letters are compared, by object name."""
        failed: dict[Name | None, Ranges] = {}
        named: dict[Name | None, Ranges] = {}
        complete = True
        for index, expected in enumerate(message):
            letters = self._letters.ranges(partition, offset, expected)
            seen = self._seen.get((partition, offset, index))
            if not self._object(partition, offset, expected, seen, letters):
                complete = False
            elif seen is not None:
                limit = ENDLESS if seen.end_row is not None else (seen.runs.last or 0) + 1
                failed.setdefault(expected.name, []).extend(_failed(expected, seen))
                named.setdefault(expected.name, []).extend(between(letters, 0, limit))
        if complete:
            for name, ranges in failed.items():
                self._compare(partition, offset, union(ranges), union(named[name]))
        return complete

    def _object(
        self, partition: int, offset: int, expected: Expected, seen: Seen | None, letters: Ranges
    ) -> bool:
        """Is it answered to its end?"""
        if seen is None:
            return self._unanswered(partition, offset, letters)
        present = seen.runs.ranges
        if seen.end_row is None:
            return self._endless(partition, offset, expected, seen, letters)
        wanted = between(closed(expected.rows), 0, seen.end_rows)
        missing, extra = minus(wanted, present), minus(present, wanted)
        if missing:
            found = f"{text(missing)} missing"
            self._blame("lost_rows", partition, offset, f"{text(wanted)} answered", found)
        if extra:
            found = f"{text(extra)} answered"
            self._blame("unexpected_rows", partition, offset, f"{text(wanted)} and no other", found)
        if present and not seen.end_error and seen.end_row != seen.runs.last:
            end = "a marker" if seen.end_row == MARKER_ROW else f"row {seen.end_row}"
            self._blame(
                "wrong_end", partition, offset, f'"last" on row {seen.runs.last}', f"it is on {end}"
            )
        return not missing

    def _unanswered(self, partition: int, offset: int, letters: Ranges) -> bool:
        if not self._markers:
            self._report.counts.unproven += not letters
            return True
        if letters:
            self._blame("missing_marker", partition, offset, "a marker", "a dead letter alone")
        else:
            self._blame("lost_reference", partition, offset, "answers or a marker", "nothing")
        return False

    def _endless(
        self, partition: int, offset: int, expected: Expected, seen: Seen, letters: Ranges
    ) -> bool:
        """Rows, and no end: lost, or told by a dead letter where there is no marker."""
        following = (seen.runs.last if seen.runs.last is not None else -1) + 1
        missing = minus(between(closed(expected.rows), 0, following), seen.runs.ranges)
        if missing:
            found = f"{text(missing)} missing"
            self._blame("lost_rows", partition, offset, "all rows answered", found)
        found = f"nothing after row {following - 1}"
        if not between(letters, following, ENDLESS):
            self._blame("lost_tail", partition, offset, 'a last record, with "last": true', found)
            return False
        if self._markers:
            self._blame("missing_marker", partition, offset, "a marker with the error", found)
            return False
        return not missing

    def _compare(self, partition: int, offset: int, failed: Ranges, named: Ranges) -> None:
        silent, stray = minus(failed, named), minus(named, failed)
        if silent:
            expected = f"a dead letter for {text(silent)}"
            self._blame("missing_dead_letter", partition, offset, expected, "none")
        if stray:
            found = f"a dead letter for {text(stray)}"
            self._blame("stray_dead_letter", partition, offset, f"{text(failed)} in letters", found)

    def _blame(self, kind: Kind, partition: int, offset: int, expected: str, found: str) -> None:
        self._report.blame(Violation(kind, self._topic, partition, offset, expected, found))


def _failed(expected: Expected, seen: Seen) -> Ranges:
    """The rows answered by an error, and those that a failed object's marker stands for."""
    failed = union(seen.rejected)
    if seen.end_error:
        tail = between(closed(expected.rows), seen.end_rows, ENDLESS)
        failed = union([*failed, *(tail or [(seen.end_rows, ENDLESS)])])
    return failed
