"""Finding the rows of one batch that cannot be answered: log2 extra requests each, not one per row.

Rule: of rows among which one must be bad, half is asked; if that is answered the bad one is in the
other half, which need not be asked to know it. A row is bad only when it was refused alone. What
was not asked yet is asked together again, as bad rows are rare; once they are not, in groups of
about one bad row. Pure. Owner: predict, one search per batch, most of which end with one answer.
"""

from consumers.core.blocks import Block

# Up to so many bad rows say nothing about the next ones: all that is left is asked at once.
RARE = 4
# A worker process may die of anything once, and of its neighbours' deeds.
SPLIT_DEATHS = 2
# Alone, a row must be the only likely cause. Something else that kills every five seconds hits a
# trial of t seconds, begun at a random moment, with a chance of t / 5 s; all of them, in a row and
# by chance, one time in a million.
LONE_DEATHS = 3
KILL_PERIOD_S = 5.0
MOST_DOUBT = 1e-6
# Slow trials prove little, but nothing is tried for ever: twenty of them are enough.
LEAST_PROOF = 0.5


class Search:
    """`ask` for the next rows; then say `answered`, `refused`, `died`, `again` or `smaller`."""

    __slots__ = (
        "_asked",
        "_doubt",
        "_found",
        "_group_rows",
        "_is_halving",
        "_refusals",
        "_settled_rows",
        "_suspects",
        "_untested",
        "deaths",
        "failures",
        "is_deadly",
        "rows",
    )

    def __init__(self, blocks: list[Block]) -> None:
        self._untested = blocks
        self._suspects: list[Block] = []
        self._asked: list[Block] = []
        self._is_halving = False
        self._group_rows: int | None = None
        self._settled_rows = self._found = self._refusals = 0
        # Of the rows that were asked last: their number, and how often in a row the server was ill.
        self.rows = self.failures = 0
        # How often its worker died of them, and whether it once did so twice: then they are tried
        # one part of them at a time.
        self.deaths = 0
        self._doubt = 1.0
        self.is_deadly = False

    @property
    def is_settled(self) -> bool:
        return not self._suspects and not self._untested

    def ask(self, most_rows: int | None = None) -> list[Block]:
        """Rows to send next, at most so many; none when every row is settled."""
        self._suspects = _alive(self._suspects)
        self._untested = _alive(self._untested)
        self._is_halving = bool(self._suspects)
        if self._is_halving:
            half = max(1, _rows(self._suspects) // 2)
            self._asked, self._suspects = leading(self._suspects, _least(half, most_rows))
        else:
            limit = _least(self._group_rows, most_rows)
            self._asked, self._untested = leading(self._untested, limit)
        self.rows = _rows(self._asked)
        return self._asked

    def answered(self) -> None:
        """The rows that were asked are settled."""
        self._settle()
        if self._group_rows is not None and not self._is_halving:
            self._group_rows *= 2

    def refused(self) -> int:
        """One of the rows that were asked is bad. If it was alone it is settled, and this tells how
        often it was refused; else 0.
        """
        self._refusals += 1
        self._forgive()
        self._untested = self._suspects + self._untested
        self._suspects = self._asked if self.rows > 1 else []
        if self._suspects:
            return 0
        attempts, self._refusals = self._refusals, 0
        self._settle()
        self._found += 1
        if self._found > RARE:
            self._group_rows = max(1, self._settled_rows // self._found)
        return attempts

    def died(self, after_s: float) -> bool:
        """The server's worker died so long after the rows were sent, of them or of something else;
        True if that must be taken for a refusal.
        """
        self.deaths += 1
        self._doubt *= min(LEAST_PROOF, after_s / KILL_PERIOD_S)
        self.is_deadly = self.is_deadly or self.deaths >= SPLIT_DEATHS
        if self.rows > 1:
            return self.is_deadly
        return self.deaths >= LONE_DEATHS and self._doubt <= MOST_DOUBT

    def again(self) -> None:
        """Nothing was said about the rows that were asked."""
        if self._is_halving:
            self._suspects = self._asked + self._suspects
        else:
            self._untested = self._asked + self._untested

    def smaller(self) -> None:
        """They were too many at once, though each may be well."""
        self._untested = self._asked + self._suspects + self._untested
        self._suspects = []
        self._group_rows = max(1, self.rows // 2)

    def _settle(self) -> None:
        self._settled_rows += self.rows
        self.failures = 0
        self._forgive()

    def _forgive(self) -> None:
        self.deaths = 0
        self._doubt = 1.0


def _least(first: int | None, second: int | None) -> int | None:
    limits = [limit for limit in (first, second) if limit is not None]
    return min(limits) if limits else None


def leading(blocks: list[Block], rows: int | None) -> tuple[list[Block], list[Block]]:
    """The first so many rows (None: all) and the others; a block in the middle is cut."""
    if rows is None:
        return blocks, []
    for index, block in enumerate(blocks):
        if block.rows > rows:
            if not rows:
                return blocks[:index], blocks[index:]
            rest = block.split(rows)
            return blocks[: index + 1], [rest, *blocks[index + 1 :]]
        rows -= block.rows
    return blocks, []


def _rows(blocks: list[Block]) -> int:
    return sum(block.rows for block in blocks)


def _alive(blocks: list[Block]) -> list[Block]:
    """Without those of an assignment that is over."""
    return [block for block in blocks if block.ticket.owner.alive]
