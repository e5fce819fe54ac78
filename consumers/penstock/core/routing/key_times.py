"""When was an object captured, by its key? Cameras write the time into the names of their files.

Rule: where `kafka.time_from` finds a time, it is the reference's `event_time`, whatever the message
says: a notification tells when the object was uploaded, and a listing when it was changed. The
intake, `penstock produce` and the judge use the same rule. Owner: the intake.
"""

import re

from msgspec import structs

from penstock.messages.reference import Reference
from penstock.messages.times import NoTime, same_time, time_in_name


class KeyTimes:
    """`pattern` is `kafka.time_from`."""

    def __init__(self, pattern: str | None) -> None:
        self._pattern = re.compile(pattern) if pattern else None

    def timed(self, reference: Reference) -> Reference:
        """The reference with the time in its key; unchanged if its key has none."""
        found = self._pattern.search(reference.key) if self._pattern else None
        if not found or not (text := found.group("time")):
            return reference
        try:
            return structs.replace(reference, event_time=same_time(time_in_name(text)))
        except NoTime:
            return reference
