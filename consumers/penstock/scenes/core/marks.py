"""How far each feed of a site has come: a position that is not beyond it is a repeat.

Rule: delivery at least once means that a feed may go back and repeat records. A repeat never has a
later time than the feed's latest: a low position with a later time shows that the input topic was
made anew. Owner: the `Site`.
"""

from penstock.scenes.core.arrival import Arrival
from penstock.scenes.core.rules import MOST_NAMES_CHARS, Rules
from penstock.scenes.core.state import Mark, SiteState


class Marks:
    def __init__(self, rules: Rules, state: SiteState) -> None:
        self._rules = rules
        self._state = state

    def resume(self, passed_ms: int) -> None:
        """Another clock goes on, so much later."""
        for mark in self._state.marks.values():
            mark.heard += passed_ms

    def is_repeat(self, arrival: Arrival) -> bool:
        marks, time, now, feed = self._state.marks, arrival.time, self._state.now, arrival.feed
        mark = marks.get(feed)
        if mark is not None and mark.model not in ("", arrival.model):
            # A row is answered by several models: each says its positions anew.
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
        """A feed is a member's stream in a partition: of the many that a made-up name can give,
        those stay that were heard last.
        """
        marks, most = self._state.marks, 4 * self._rules.max_members
        while len(marks) >= most or sum(map(len, marks)) > MOST_NAMES_CHARS:
            del marks[min(marks, key=lambda feed: marks[feed].heard)]
