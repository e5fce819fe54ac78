"""Calls the model with batches, a bounded number at a time.

Rule: every row of a batch ends answered, whatever happens: a sick server is waited for and no row
is blamed; what the model refuses is searched for the bad row and only that one is rejected, once it
was refused alone by a server that is healthy. Owner: the pipeline runs `call_forever` as often as
`model.max_in_flight` says.
"""

import asyncio
from collections.abc import Sequence
from dataclasses import replace

from consumers.core.bisect import KILL_PERIOD_S, Search
from consumers.core.blocks import Block, Rejection
from consumers.core.pace import Pace, Setting
from consumers.errors import Poison, Transient, WorkerDied
from consumers.ports import Answers, Clock
from consumers.services.model_calls import PROBE_ROWS, ModelCalls
from consumers.stages.microbatch import Microbatch


class Predict:
    """Takes batches from the window, gives every block its answers. `fixed` is what the
    configuration says, `pace` what is learned within it.
    """

    def __init__(
        self,
        calls: ModelCalls,
        microbatch: Microbatch,
        fixed: Setting,
        pace: Pace | None,
        clock: Clock,
    ) -> None:
        self._calls = calls
        self._microbatch = microbatch
        self._fixed = fixed
        self._pace = pace
        self._clock = clock
        self._allowed = fixed.calls
        # One search at a time for rows that kill: their neighbours must not die of each other's.
        self._dissection = asyncio.Lock()

    async def call_forever(self) -> None:
        while True:
            batch = await self._microbatch.take()
            try:
                await self._answer(Search(batch.blocks))
            finally:
                self._microbatch.done(batch)

    async def _answer(self, search: Search) -> None:
        while not search.is_settled and not search.is_deadly:
            await self._ask(search)
        if search.is_settled:
            return
        async with self._dissection:
            while not search.is_settled:
                await self._ask(search)

    async def _ask(self, search: Search) -> None:
        """One request, for the next rows of the search; a probe may be the canary instead."""
        call = await self._calls.enter()
        if call.is_probe and self._calls.has_canary:
            await self._calls.probe(call)
            self._follow()
            return
        part = search.ask(PROBE_ROWS if call.is_probe else None)
        if not part:
            self._calls.leave(call)
            return
        began_s = self._clock.now()
        try:
            answers = await self._calls.send(call, part)
        except Transient as error:
            self._follow()
            if isinstance(error, WorkerDied):
                await self._died(search, part, error, self._clock.now() - began_s)
            else:
                search.failures += 1
                search.again()
                await self._calls.pause(search.failures)
        except Poison as error:
            self._follow()
            await self._refused(search, part, error)
        else:
            search.answered()
            _distribute(part, answers)
            if self._pace is not None:
                now_s = self._clock.now()
                self._pace.answered(search.rows, now_s - began_s, now_s)
            self._follow()
        _wake_lanes(part)

    async def _died(
        self, search: Search, part: Sequence[Block], error: WorkerDied, after_s: float
    ) -> None:
        search.failures += 1
        deaths = search.deaths + 1
        if not search.died(after_s):
            search.again()
        elif attempts := search.refused():
            message = (
                f"the model's worker process died each of the {deaths} times that this row was "
                f"sent alone, and was well just before: {error}"
            )
            part[0].reject(Rejection("model_rejected", message, "predict", attempts))
            return
        if search.rows == 1:
            # Not in step with whatever else may kill it.
            await asyncio.sleep(self._calls.luck() * KILL_PERIOD_S)
        if search.rows == 1 or search.is_deadly:
            # A death counts against a row only if the worker was well just before.
            await self._calls.until_healthy()
            self._follow()
        else:
            await self._calls.pause(search.failures)

    async def _refused(self, search: Search, part: Sequence[Block], error: Poison) -> None:
        if search.rows > 1 and error.code == "too_large":
            search.smaller()
            return
        if search.rows == 1 and self._calls.has_canary and not await self._calls.is_healthy():
            # It refuses what it is known to take: that is the server's illness.
            self._follow()
            search.failures += 1
            search.again()
            await self._calls.pause(search.failures)
            return
        if attempts := search.refused():
            part[0].reject(Rejection(error.code, str(error), "predict", attempts))

    def _follow(self) -> None:
        """The window goes by what was learned, in calls the less of latency and of illness."""
        allowed = self._calls.allowed
        if self._pace is None and allowed == self._allowed:
            return
        self._allowed = allowed
        setting = self._pace.setting() if self._pace is not None else self._fixed
        if allowed < setting.calls:
            setting = replace(setting, calls=allowed)
        self._microbatch.pace(setting)


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
