"""What is told of the calls to one model.

Rule: the caller does not know whether its model is the only one. Owner: the caller of a model
tells; `worker` counts for all models together, `models` for each of several.
"""

from typing import Protocol

MODEL_OUTCOMES = ("answered", "refused", "overloaded", "worker_died", "unreachable", "ill")


class CallsTelemetry(Protocol):
    """Metrics of the calls to one model, updated by its callers."""

    def call_answered(self, took_s: float, rows: int) -> None: ...

    def model_request(self, outcome: str) -> None: ...

    def model_health(self, *, is_open: bool, calls: int) -> None: ...

    def retried(self, stage: str, *, is_away: bool = True) -> None: ...
