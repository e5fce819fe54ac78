"""The time.

Rule: no part of the pipeline asks the system for the time. Owner: the application, which gives the
clock to the pipeline; a test gives it another one.
"""

from typing import Protocol


class Clock(Protocol):
    """The clock of a whole pipeline."""

    def now(self) -> float:
        """Monotonic seconds: the time of the running event loop."""
        ...

    def wall_ms(self) -> int:
        """Epoch milliseconds."""
        ...
