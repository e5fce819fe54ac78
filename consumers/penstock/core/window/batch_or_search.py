"""Who makes the next model call: a batch of waiting rows, or a search for bad rows?

Rule: searches have at most a quarter of the calls, and never all of them if there is more than one;
while rows wait, the two take turns. So a search always goes on, and rows without a suspicion wait
for one short call of a search at most. Pure; owner: the gate.
"""

from typing import Literal

# One of the default four calls at a time: a server with one worker process then answers at most one
# search between two batches.
SEARCH_SHARE = 4

Turn = Literal["rows", "search"]


class Turns:
    """`next` says who may begin; then `begin`, and `end` when a search's call is over."""

    def __init__(self) -> None:
        self.searching = 0
        self._last: Turn = "search"

    def next(self, calls: int, *, rows_wait: bool, searches_wait: bool) -> Turn | None:
        """Who may begin, with `calls` allowed at a time and one of them free. None: nobody."""
        may_search = searches_wait and self.searching < max(1, calls // SEARCH_SHARE)
        if may_search and not (rows_wait and self._last == "search"):
            return "search"
        return "rows" if rows_wait else None

    def begin(self, turn: Turn) -> None:
        self._last = turn
        self.searching += turn == "search"

    def end(self, turn: Turn) -> None:
        self.searching -= turn == "search"
