"""How much of what is allowed was in use over a time, not only at the moment of a look.

Rule: `change` is called when the share changes, a few times per batch. Owner: the stage that uses.
"""


class Used:
    """`share_s`: the share in use, from 0 to 1, summed over time."""

    def __init__(self, now_s: float) -> None:
        self._share = 0.0
        self._sum_s = 0.0
        self._since_s = now_s

    def change(self, now_s: float, share: float) -> None:
        self._sum_s = self.share_s(now_s)
        self._share, self._since_s = min(1.0, share), now_s

    def share_s(self, now_s: float) -> float:
        return self._sum_s + self._share * (now_s - self._since_s)
