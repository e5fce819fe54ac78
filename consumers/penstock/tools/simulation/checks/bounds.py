"""Checks, between any two turns of the loop, that a worker holds no more than its own settings
allow.
"""

import asyncio
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from penstock.pipeline.life import Pipeline
from penstock.ports import Where
from penstock.tools.simulation import announcements
from penstock.tools.simulation.checks.history import History
from penstock.tools.simulation.checks.truth import PartitionLog
from penstock.tools.simulation.deployments import Deployment
from penstock.tools.simulation.worker import SimulatedWorker

# Far more turns of the loop than any world needs at one instant. If time stands still for so many
# turns, tasks wake each other without end.
MOST_TURNS = 300_000
# Refused rows may take this many times the memory of decoded rows. A decoded row counts at least
# 136 bytes. A row that is refused alone becomes a block of its own with an error, which counts
# about 900 bytes.
GROWTH = 8


class _Limits(NamedTuple):
    """The limits of a worker, which never change. `calls`: for each model, how many calls may be in
    flight at one time.
    """

    objects: int
    is_by_stream: bool
    calls: Sequence[int]
    transfers: int


class Bounds:
    """In each turn of the loop, call `turn` once, and `check` for each living worker."""

    def __init__(self, logs: Mapping[Where, PartitionLog], history: History) -> None:
        self._logs = logs
        self._history = history
        self._turns = 0
        self._now_s = 0.0
        self._limits: dict[SimulatedWorker, _Limits] = {}

    def turn(self) -> None:
        now_s = asyncio.get_running_loop().time()
        # The count begins anew whenever time has passed, because slow worlds take many turns in
        # all.
        self._turns = self._turns + 1 if now_s == self._now_s else 1
        self._now_s = now_s
        if self._turns > MOST_TURNS:
            self._history.broken("time stands still: tasks wake each other without end")

    def check(self, worker: SimulatedWorker, deployment: Deployment) -> None:
        wiring = worker.pipeline.wiring
        limits = self._limits.get(worker)
        if limits is None:  # computed once: this method takes a sixth of a simulation's time
            limits = self._limits[worker] = _limits(worker, deployment)
        of_objects = wiring.budget.spent_bytes - wiring.budget.messages_bytes
        # To add up all that may be held takes longer than all other checks. So this is only done if
        # a much simpler limit is exceeded, which is rare.
        if of_objects > GROWTH * deployment.settings.buffer_bytes:
            self._hold(worker, "bytes", of_objects, self._most_bytes(worker.pipeline, deployment))
        for lane in wiring.lanes.values():
            if limits.is_by_stream:
                for queue in lane.fetch_queues.values():
                    self._hold(worker, "objects", queue.in_work, limits.objects)
            else:
                self._hold(worker, "objects", lane.ledger.owed, limits.objects)
        for model, most in zip(worker.models, limits.calls, strict=True):
            self._hold(worker, "calls", model.in_flight, most)
        shadow = wiring.shadow
        if shadow is not None:
            self._hold(worker, "rows of the shadow", shadow.waiting_rows, shadow.terms.rows)
        self._hold(worker, "transfers", worker.objects.reading, limits.transfers)

    def _most_bytes(self, pipeline: Pipeline, deployment: Deployment) -> int:
        """The most bytes that may be held: the budget, and the decoding steps that may exceed it.
        Both count `GROWTH` times, because refused rows take more memory than decoded ones. Two
        kinds of steps may exceed the budget. One step in all may have begun while a byte of the
        budget was left. And each object at the head of a queue may have two steps: its next one,
        and one that is kept until it is known whether the object goes on after that step. With
        order by stream each head may have four steps, because heads do not wait for each other's
        deliveries.
        """
        heads = (
            sum(4 * len(self._logs[where].streams) for where in pipeline.wiring.lanes)
            if deployment.settings.lane.order_by_stream
            else 2 * len(pipeline.wiring.lanes)
        )
        return GROWTH * (
            deployment.settings.buffer_bytes + (heads + 1) * deployment.terms.truths.step_bytes
        )

    def _hold(self, worker: SimulatedWorker, what: str, amount: int, most: int) -> None:
        if amount > most:
            self._history.broken(
                f"{worker.name} has {amount} {what} in flight, the limit is {most}"
            )


def _limits(worker: SimulatedWorker, deployment: Deployment) -> _Limits:
    settings = deployment.settings
    return _Limits(
        # A record is admitted with all its objects as soon as there is room for one of them.
        settings.lane.max_objects - 1 + announcements.MOST_OBJECTS * _answers(deployment),
        settings.lane.order_by_stream,
        [terms.callers for terms in settings.terms.values()],
        # Each model has its own fetchers. In addition, objects that need a decoder may be read by
        # as many readers as one model has fetchers. Any of these reads may be sent a second time.
        settings.objects.fetchers
        * (len(worker.models) + 1)
        * (2 if settings.objects.hedged else 1),
    )


def _answers(deployment: Deployment) -> int:
    """How many answers one object may get at most."""
    routes = deployment.settings.routes
    return max((len(route.models) for route in routes.routes), default=1) if routes else 1
