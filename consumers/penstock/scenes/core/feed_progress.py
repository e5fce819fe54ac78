"""How far each feed of a site has come. A record at or before the feed's last position is a repeat.

Rule: with at-least-once delivery a feed may go back and repeat records. The event time of a repeat
is never later than the latest event time of its feed. A record with a lower position but a later
event time is therefore no repeat: it shows that the input topic was created again. Owner: the
`Site`.
"""

from penstock.scenes.core.arrival import Arrival
from penstock.scenes.core.rules import MOST_NAMES_CHARS, Rules
from penstock.scenes.core.state import Mark, SiteState


class FeedProgress:
    def __init__(self, rules: Rules, state: SiteState) -> None:
        self._rules = rules
        self._state = state

    def resume(self, passed_ms: int) -> None:
        """Move the noted times forward by the time during which no worker ran."""
        for mark in self._state.marks.values():
            mark.heard += passed_ms

    def is_repeat(self, arrival: Arrival) -> bool:
        marks, time, now, feed = self._state.marks, arrival.time, self._state.now, arrival.feed
        mark = marks.get(feed)
        if mark is not None and mark.model not in ("", arrival.model):
            # Several models may answer a row, so each model has a position of its own in a feed.
            feed = f"{arrival.model}#{feed}"
            mark = marks.get(feed)
        if mark is None:
            self._make_room()
            marks[feed] = Mark(arrival.position, time, now, arrival.model)
            return False
        mark.model = arrival.model
        mark.heard = now
        is_newer = time is not None and mark.time is not None and time > mark.time
        if arrival.position <= mark.position and not is_newer:
            return True
        mark.position = arrival.position
        mark.time = time if mark.time is None or is_newer else mark.time
        return False

    def _make_room(self) -> None:
        """Forget the feeds that were silent longest. The number of feeds must be bounded, because a
        sender may invent any number of stream names.
        """
        marks, most = self._state.marks, 4 * self._rules.max_members
        while len(marks) >= most or sum(map(len, marks)) > MOST_NAMES_CHARS:
            del marks[min(marks, key=lambda feed: marks[feed].heard)]
