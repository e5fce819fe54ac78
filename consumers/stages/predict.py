"""Calls the model with batches, a bounded number at a time.

Rule: every row of a batch ends answered, whatever happens: a sick server is waited for and no row
is blamed; what the model refuses is cut in halves until the bad row is alone and only that one is
rejected. Owner: the pipeline runs `call_forever` as often as `model.max_in_flight` says.
"""

import asyncio
from collections.abc import Callable, Sequence

from consumers.core.bisect import halves
from consumers.core.blocks import Block, Rejection
from consumers.core.pace import Pace
from consumers.core.retry import Backoff
from consumers.errors import Poison, Transient, Unreachable
from consumers.outage import Outage
from consumers.ports import Answers, Clock, Model
from consumers.stages.microbatch import Microbatch
from consumers.telemetry import Telemetry

# TorchServe needs about 2 s to replace a dead worker process; 5 s between tries spare a server that
# is down for long.
RETRY = Backoff(first_s=0.05, most_s=5.0)


class Predict:
    """Takes batches from the window, gives every block its answers."""

    def __init__(
        self,
        model: Model,
        microbatch: Microbatch,
        pace: Pace | None,
        clock: Clock,
        telemetry: Telemetry,
        outage: Outage,
        luck: Callable[[], float],
    ) -> None:
        self._model = model
        self._outage = outage
        self._luck = luck
        self._pace = pace
        self._microbatch = microbatch
        self._clock = clock
        self._telemetry = telemetry

    async def call_forever(self) -> None:
        while True:
            batch = await self._microbatch.take()
            try:
                await self._answer(batch.blocks)
            finally:
                self._microbatch.done(batch)

    async def _answer(self, blocks: list[Block]) -> None:
        todo = [blocks]
        while todo:
            part = [block for block in todo.pop() if block.ticket.owner.alive]
            if not part:
                continue
            try:
                answers = await self._call(part)
            except Poison as error:
                if sum(block.rows for block in part) > 1:
                    left, right = halves(part)
                    todo += [right, left]
                else:
                    part[0].reject(Rejection(error.code, str(error), "predict"))
            else:
                _distribute(part, answers)
            _wake_lanes(part)

    async def _call(self, blocks: Sequence[Block]) -> Answers:
        """Call until the server says something about these rows; waits out every illness of the
        server.
        """
        began_s = self._clock.now()
        payloads = [block.payload for block in blocks if block.payload is not None]
        attempt = 0
        while True:
            attempt += 1
            started_s = self._clock.now()
            try:
                answers = await self._model.predict(payloads)
            except Transient as error:
                self._telemetry.retried("predict")
                if isinstance(error, Unreachable):
                    self._outage.unreachable(error)
                delay_s = RETRY.delay_s(
                    attempt, started_s - began_s, self._luck(), error.retry_after_s
                )
                assert delay_s is not None, "predict never gives up"
                await asyncio.sleep(delay_s)
            else:
                self._outage.answered()
                self._answered(blocks, self._clock.now(), started_s)
                return answers

    def _answered(self, blocks: Sequence[Block], now_s: float, started_s: float) -> None:
        took_s = now_s - started_s
        self._telemetry.call_answered(took_s)
        for block in blocks:
            block.called_s, block.answered_s = started_s, now_s
        if self._pace is not None:
            self._pace.answered(sum(block.rows for block in blocks), took_s, now_s)
            self._microbatch.pace(self._pace.setting())


def _distribute(blocks: Sequence[Block], answers: Answers) -> None:
    start = 0
    for block in blocks:
        stop = start + block.rows
        errors = {
            row - start: Rejection("model_rejected", message, "predict")
            for row, message in answers.errors.items()
            if start <= row < stop
        }
        block.answer(answers.values[start:stop], errors)
        start = stop


def _wake_lanes(blocks: Sequence[Block]) -> None:
    # In the order of the rows, so that a run can be repeated exactly; a set has none.
    for lane in dict.fromkeys(block.ticket.owner for block in blocks):
        lane.wake()
