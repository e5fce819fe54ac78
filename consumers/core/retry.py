"""How long to wait before the next try, and when to stop trying. Pure: the random number is an
argument.
"""

from dataclasses import dataclass

# A server that asks for more is a server that is misconfigured, or lies.
MOST_ASKED_S = 300.0


@dataclass(frozen=True, slots=True)
class Backoff:
    """Exponential with full jitter between half and all of the step, so that workers do not march
    in step.
    """

    first_s: float
    most_s: float
    give_up_s: float | None = None

    def delay_s(
        self, attempt: int, waited_s: float, luck: float, asked_s: float | None = None
    ) -> float | None:
        """Seconds before try `attempt + 1` (`attempt` >= 1 have failed), or None: give up.

        `luck` is a random number in [0, 1); `asked_s` is what the other side asked for, and is
        honoured up to `MOST_ASKED_S`.
        """
        if self.give_up_s is not None and waited_s >= self.give_up_s:
            return None
        step_s = min(self.most_s, self.first_s * 2.0 ** min(attempt - 1, 30))
        return max(step_s * (0.5 + luck / 2), min(asked_s or 0.0, MOST_ASKED_S))
