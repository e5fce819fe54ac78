"""How long to wait before the next try, and when to stop trying. Pure: time and the random
number are arguments.
"""

from dataclasses import dataclass

# A longer pause is not believed: a server that asks for it is misconfigured.
MOST_ASKED_S = 300.0


@dataclass(frozen=True, slots=True)
class Backoff:
    """Exponential, with jitter between half of the step and all of it, so that workers do not try
    at the same moments.
    """

    first_s: float
    most_s: float
    give_up_s: float | None = None

    def delay_s(
        self, attempt: int, waited_s: float, jitter: float, asked_s: float | None = None
    ) -> float | None:
        """Seconds before try `attempt + 1` (`attempt` >= 1 have failed), or None: give up.

        `jitter` is a random number in [0, 1); `asked_s` is the pause that the other side asked for,
        honoured up to `MOST_ASKED_S`.
        """
        if self.give_up_s is not None and waited_s >= self.give_up_s:
            return None
        step_s = min(self.most_s, self.first_s * 2.0 ** min(attempt - 1, 30))
        return max(step_s * (0.5 + jitter / 2), min(asked_s or 0.0, MOST_ASKED_S))
