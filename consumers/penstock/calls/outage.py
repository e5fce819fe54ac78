"""Logs the outage of a service that does not answer: once when the outage begins, and once when it
ends.

Rule: every task that asks the service reports the result here; all tasks that ask one service share
one `Outage`. If `patience_s` is given, an outage that lasts longer ends the process. If the service
answers but does not do its work, this is logged as well, at most once a minute. Owner: the stage
that asks.
"""

import logging
import math
from typing import Final

from penstock.errors import EXIT_UNREACHABLE, Fatal, Transient
from penstock.ports import Clock

log = logging.getLogger(__name__)

# The least time between two log lines about a service that answers but fails.
QUIET_S: Final = 60.0
# A failing service counts as healthy again when for this long no task has reported that it still
# fails.
FAILS_S: Final = 120.0
# The status page finds Kafka's outage by this name.
KAFKA: Final = "Kafka broker"
# The names of all stores and of all model servers begin with these.
STORE: Final = "object store"
MODEL: Final = "model server"


class Outage:
    """`patience_s`: how long an outage may last. None: without end. A worker has no such limit, and
    keeps its partitions during an outage.
    """

    def __init__(self, service: str, clock: Clock, patience_s: float | None) -> None:
        self.service = service
        self._clock = clock
        self._patience_s = patience_s
        self._since_s: float | None = None
        self._quiet_until_s = self._worse_quiet_until_s = -math.inf
        self._until_s = math.inf
        # What is wrong, while it lasts.
        self.why: str | None = None

    @property
    def away_s(self) -> float | None:
        """How long the service has not answered; None while it answers."""
        now_s = self._clock.now()
        if self._since_s is None or now_s > self._until_s:
            return None
        return now_s - self._since_s

    def unreachable(self, error: Transient) -> None:
        """The service did not answer. Raises `Fatal` when the outage has lasted too long."""
        if self.away_s is None:
            self._since_s = None  # an earlier failure has ended by itself
        now_s = self._clock.now()
        # A line is due as well if the service answered until now, but did not do its work. A
        # service may change between these two states often, so such lines are at least `QUIET_S`
        # apart.
        is_worse = self._until_s < math.inf and now_s >= self._worse_quiet_until_s
        is_news = self._since_s is None or is_worse
        if is_news:
            self._worse_quiet_until_s = now_s + QUIET_S
        self._until_s = math.inf
        self._lasts("does not answer", "did not answer", str(error), is_news=is_news)

    def fails(self, why: str) -> None:
        """The service answers, but does not do its work. Raises `Fatal` as `unreachable` does. This
        state ends by itself if it is not reported again, because the one row that the service
        failed at may have been rejected.
        """
        now_s = self._clock.now()
        if self.away_s is None:
            self._since_s = now_s
        self._until_s = now_s + FAILS_S
        is_news = now_s >= self._quiet_until_s
        if is_news:
            self._quiet_until_s = now_s + QUIET_S
        self._lasts("fails", "failed", why, is_news=is_news)

    def _lasts(self, verb: str, past: str, why: str, *, is_news: bool) -> None:
        now_s, self.why = self._clock.now(), why
        if is_news:
            how_long = "" if self._patience_s is None else f" up to {self._patience_s:g} s"
            log.warning("the %s %s, waiting%s: %s", self.service, verb, how_long, why)
        if self._since_s is None:
            self._since_s = now_s
        elif self._patience_s is not None and now_s - self._since_s >= self._patience_s:
            raise Fatal(
                f"the {self.service} {past} for {self._patience_s:g} s: {why}",
                exit_code=EXIT_UNREACHABLE,
            )

    def answered(self) -> None:
        """The service answered, whatever the answer was."""
        away_s = self.away_s
        self._since_s = self.why = None
        if away_s is not None:
            log.warning("the %s answers again after %.1f s", self.service, away_s)
