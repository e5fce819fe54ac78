"""How long to wait after a failed transaction, and when to give up.

Rule: patience is counted from the first failure after the last transaction that went through. A
member that was fenced waits until it knows whether it still owns its partitions; to be fenced does
not count as a failure. Owner: the rekeyer, and with exactly once the takeover of a partition.
"""

from collections.abc import Callable

from penstock.core.health.retry import Backoff
from penstock.errors import EXIT_UNREACHABLE, Fatal, Fenced, Transient
from penstock.ports import Clock

# A member learns with its next heartbeat (`kafka.heartbeat_ms`, 500 by default) that it has lost
# its partitions. A member that still has them after this time is their owner.
FENCED_WAIT_S = 5.0


class TransactionRetry:
    """If transactions fail for `patience_s`, the process ends."""

    def __init__(self, patience_s: float, clock: Clock, jitter: Callable[[], float]) -> None:
        self._patience_s = patience_s
        self._clock = clock
        self._jitter = jitter
        self._backoff = Backoff(first_s=0.2, most_s=5.0, give_up_s=patience_s)
        self._failures = 0
        self._since_s = 0.0

    def went_through(self) -> None:
        self._failures = 0

    def pause_s(self, error: Transient) -> float:
        """Seconds until the next transaction after this failure. Raises `Fatal`."""
        if isinstance(error, Fenced):
            return FENCED_WAIT_S
        now_s = self._clock.now()
        if not self._failures:
            self._since_s = now_s
        self._failures += 1
        pause_s = self._backoff.delay_s(self._failures, now_s - self._since_s, self._jitter())
        if pause_s is None:
            raise Fatal(
                f"no transaction for {self._patience_s:g} s: {error}",
                exit_code=EXIT_UNREACHABLE,
            ) from error
        return pause_s
