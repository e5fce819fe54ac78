"""What a caller of one model counts.

Rule: the stage that calls a model uses these methods and need not know whether there are other
models. Owner: that stage. `worker` counts the calls to all models together, `models` also those to
each of several.
"""

from typing import Protocol

MODEL_OUTCOMES = ("answered", "refused", "overloaded", "worker_died", "unreachable", "ill")


class CallsTelemetry(Protocol):
    """Metrics of the calls to one model, updated by its callers."""

    def call_answered(self, took_s: float, rows: int) -> None: ...

    def model_request(self, outcome: str) -> None: ...

    def model_health(self, *, is_open: bool, calls: int) -> None: ...

    def retried(self, stage: str, *, is_away: bool = True) -> None: ...
