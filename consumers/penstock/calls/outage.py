"""Logs a service that does not answer: once when that begins, and once when it ends.

Rule: every task that asks the service reports the result here; many tasks share one object. With
`patience_s`, an outage that lasts longer ends the process. Owner: the stage that asks.
"""

import logging
from typing import Final

from penstock.errors import EXIT_UNREACHABLE, Fatal, Transient
from penstock.ports import Clock

log = logging.getLogger(__name__)

# The status page finds Kafka's outage by this name.
KAFKA: Final = "Kafka broker"


class Outage:
    """`patience_s`: None waits for ever, as a worker does, which keeps its partitions meanwhile."""

    def __init__(self, service: str, clock: Clock, patience_s: float | None) -> None:
        self.service = service
        self._clock = clock
        self._patience_s = patience_s
        self._since_s: float | None = None

    @property
    def away_s(self) -> float | None:
        """How long the service has not answered; None while it answers."""
        return None if self._since_s is None else self._clock.now() - self._since_s

    def unreachable(self, error: Transient) -> None:
        """The service did not answer. Raises `Fatal` when this has lasted too long."""
        now_s = self._clock.now()
        if self._since_s is None:
            self._since_s = now_s
            how_long = "" if self._patience_s is None else f" up to {self._patience_s:g} s"
            log.warning("the %s does not answer, waiting%s: %s", self.service, how_long, error)
        elif self._patience_s is not None and now_s - self._since_s >= self._patience_s:
            raise Fatal(
                f"the {self.service} did not answer for {self._patience_s:g} s: {error}",
                exit_code=EXIT_UNREACHABLE,
            )

    def answered(self) -> None:
        """The service answered, whatever the answer was."""
        if self._since_s is not None:
            away_s = self._clock.now() - self._since_s
            self._since_s = None
            log.warning("the %s answers again after %.1f s", self.service, away_s)
