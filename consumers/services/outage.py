"""A service that does not answer: logged once when it begins and once when it ends.

Rule: the task that asks the service says how it went; many tasks share one of these. With
`patience_s` the wait has an end, and so has the process. Owner: the stage that asks.
"""

import logging
from typing import Final

from consumers.errors import EXIT_UNREACHABLE, Fatal, Transient
from consumers.ports import Clock

log = logging.getLogger(__name__)

# By this name it is looked for.
KAFKA: Final = "Kafka broker"


class Outage:
    """`patience_s` None waits for ever, as a worker does; its partitions are kept meanwhile."""

    def __init__(self, service: str, clock: Clock, patience_s: float | None) -> None:
        self.service = service
        self._clock = clock
        self._patience_s = patience_s
        self._since_s: float | None = None

    @property
    def away_s(self) -> float | None:
        """How long it has not answered; None: it does, as far as anybody knows."""
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
        """Somebody answered, whatever it was."""
        if self._since_s is not None:
            away_s = self._clock.now() - self._since_s
            self._since_s = None
            log.warning("the %s answers again after %.1f s", self.service, away_s)
