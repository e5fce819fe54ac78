"""The rhythm of a site whose cameras have no common clock: when its instants are, and to which
instant a prediction belongs.

Each member speaks once a period, at its own place in it, its *phase*. A prediction belongs to the
instant nearest to its time less the phase, so it may vary by half a period.

Rule: phases, and the period if it is not set, are learned from the times that predictions state,
but not from evicted members. Both follow clocks that drift, and are part of the state.
"""

from collections.abc import Sequence
from math import remainder
from statistics import median, median_low

from penstock.scenes.core.rules import Rules
from penstock.scenes.core.state import SiteMember, SiteState

# Until a member has spoken a few times, instants are as far apart as those of a grid by default.
UNKNOWN_MS = 50
# A first estimate of a member's period is the mean of so many intervals. Four are the fewest whose
# median tells a gap from a period.
INTERVALS = 4
# The weight of a new estimate in the member's period. By some eight estimates the period is right
# to 1 %, even if times vary by a quarter of it.
ESTIMATE_WEIGHT = 1 / 8
# If the members' period differs from the site's by more than this share, the site begins anew with
# theirs. What is less is corrected by `_pull`.
IS_OTHER = 0.1
# The least weight of a prediction's error in its member's phase, and in the site's period. The
# second is a quarter of the square of the first: then the errors settle without swinging. A phase
# is 2 ms behind a clock that drifts by 100 ms in 1,000 periods.
PHASE_WEIGHT = 1 / 16
PERIOD_WEIGHT = PHASE_WEIGHT**2 / 4
# A phase beyond this share of the period is counted from the next instant. It is more than half, so
# that a phase of about half a period does not go to and fro between two instants.
WRAP = 0.6


class Rhythm:
    def __init__(self, rules: Rules, state: SiteState) -> None:
        self._rules = rules
        self._state = state
        if rules.anchor == "rhythm" and rules.period_ms:
            # Instants are multiples of the period, at all sites alike.
            state.beat.at, state.beat.period = 0, rules.period_ms

    @property
    def period_ms(self) -> float:
        """The time between two instants."""
        return self._state.beat.period or UNKNOWN_MS

    def instant(self, member: SiteMember, time: int) -> int | None:
        """The time of the instant to which a prediction of this time belongs. None: the time is
        farther from the member's rhythm than `tolerance_ms`.
        """
        is_learned, beat = not self._rules.period_ms, self._state.beat
        if is_learned:
            self._estimate(member, time)
            beat.at = beat.at or time
        since = time - member.phase - beat.at
        passed = round(since / self.period_ms)
        at, error = beat.at + passed * self.period_ms, since - passed * self.period_ms
        is_first = not member.phased
        self._follow(member, error)
        if is_learned:
            beat.at = max(beat.at, at)
            if beat.period and not is_first:
                self._pull(error)
        most = self._rules.tolerance_ms
        return round(at) if most is None or is_first or abs(error) <= most else None

    def last_due(self, at: int) -> int:
        """When the last expected member is to speak of the instant `at`. Times vary by about twice
        their mean distance from the rhythm.
        """
        members = self._state.members.values()
        phases = [each.phase + 2 * each.jitter for each in members if not each.is_evicted]
        return at + round(max(phases, default=0))

    def _estimate(self, member: SiteMember, time: int) -> None:
        """Take the interval since the member's last prediction into its period."""
        stated, member.stated = member.stated, time
        if stated is None or time <= stated:
            return
        member.intervals.append(time - stated)
        if len(member.intervals) < INTERVALS:
            return
        member.estimates += 1
        weight = max(ESTIMATE_WEIGHT, 1 / member.estimates)
        member.period += weight * (_period(member.intervals) - member.period)
        member.intervals = []
        members, beat = self._state.members.values(), self._state.beat
        period = median_low(each.period for each in members if each.period and not each.is_evicted)
        if abs(period - beat.period) > IS_OTHER * beat.period:
            beat.period, beat.pulls = period, 0
            for each in members:
                each.phase = each.jitter = each.phased = 0

    def _follow(self, member: SiteMember, error: float) -> None:
        """Correct the member's phase. The first weights are those of a straight line through all
        errors so far (the filter with a growing memory), because the period may be wrong, too.
        """
        member.phased += 1
        n = member.phased
        weight = max(PHASE_WEIGHT, 2 * (2 * n - 1) / (n * (n + 1)))
        member.phase += weight * error
        if n > 1:
            member.jitter += max(PHASE_WEIGHT, 1 / n) * (abs(error) - member.jitter)
        if abs(member.phase) > WRAP * self.period_ms:
            member.phase = remainder(member.phase, self.period_ms)

    def _pull(self, error: float) -> None:
        """Correct the site's period; the weights are those of the same line (`_follow`)."""
        beat = self._state.beat
        members = sum(not each.is_evicted for each in self._state.members.values())
        beat.pulls += 1
        n = 1 + beat.pulls / members
        beat.period += max(PERIOD_WEIGHT, 6 / (n * (n + 1))) * error / members


def _period(intervals: Sequence[int]) -> float:
    """The mean interval. A long interval counts as several, because predictions are missing."""
    usual = median(intervals)
    return sum(intervals) / sum(max(1, round(each / usual)) for each in intervals)
