"""How far each feed of a site has come. A record at or before that position is a repeat.

Rule: with delivery at least once a feed may go back and repeat records. A repeat is never later in
event time than the latest record of its feed. So a record with a lower position and a later time is
no repeat: the input topic was created again. Owner: the `Site`.
"""

from penstock.scenes.core.arrival import Arrival
from penstock.scenes.core.rules import MOST_NAMES_CHARS, Rules
from penstock.scenes.core.state import Mark, SiteState


class FeedProgress:
    def __init__(self, rules: Rules, state: SiteState) -> None:
        self._rules = rules
        self._state = state

    def resume(self, passed_ms: int) -> None:
        """Move the times forward by the time during which no worker ran."""
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
        """Forget the feeds that were silent longest. Their number must be bounded, because a sender
        may invent any number of stream names.
        """
        marks, most = self._state.marks, 4 * self._rules.max_members
        while len(marks) >= most or sum(map(len, marks)) > MOST_NAMES_CHARS:
            del marks[min(marks, key=lambda feed: marks[feed].heard)]
