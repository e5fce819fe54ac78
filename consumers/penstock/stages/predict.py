"""Takes batches from the window and has them answered, a bounded number at a time.

Rule: there are as many callers as the model's server may get calls. What is learned from the
answers, such as the best limits, the costs of streams and the shadow's comparison, is learned here;
how the model is asked is `asking`'s alone. Owner: the pipeline, which runs `run`; when `run` ends,
all searches for bad rows end.
"""

import asyncio
from collections.abc import Sequence
from dataclasses import replace

from penstock.asking.asker import Asker
from penstock.asking.model_calls import ModelCalls
from penstock.core.rows.blocks import Block
from penstock.core.rows.payload import Payload
from penstock.core.window.pace import BatchPlan, Pace
from penstock.core.window.stream_costs import StreamCosts
from penstock.errors import Poison
from penstock.ports import Answers, Clock
from penstock.stages.microbatch import Microbatch
from penstock.stages.samples import Sampling
from penstock.stages.shadow import ShadowModel


class Predict:
    """`fixed`: the configured limits. `pace`: learns the best limits within the configured ones."""

    def __init__(
        self,
        asker: Asker,
        calls: ModelCalls,
        microbatch: Microbatch,
        fixed: BatchPlan,
        pace: Pace | None,
        clock: Clock,
        costs: StreamCosts,
        *,
        shadow: ShadowModel | None = None,
        sampling: Sampling | None = None,
    ) -> None:
        self._asker = asker
        self._calls = calls
        self._microbatch = microbatch
        self._fixed = fixed
        self._pace = pace
        self._clock = clock
        self._costs = costs
        self._prices = costs.prices
        self._shadow = shadow
        self._sampling = sampling
        # The rows for the shadow, from `answering` to `answered`.
        self._copied: Sequence[Payload] | None = None
        self._applied: tuple[int, int | None] = (0, None)
        self._callers = 0

    async def run(self) -> None:
        """Runs until it is cancelled."""
        async with asyncio.TaskGroup() as self._tasks:
            self._asker.begin(self._tasks, self)
            self.limits_changed()

    async def _call_forever(self) -> None:
        while True:
            batch = await self._microbatch.take()
            try:
                await self._asker.answer(batch.blocks)
            finally:
                # This is done after a failure as well, because otherwise this call slot would count
                # as taken for ever.
                self._microbatch.done(batch, self._costs.likely_s)

    def answering(self, blocks: Sequence[Block], answers: Answers, took_s: float) -> None:
        self._copied = None if self._shadow is None else self._shadow.wants(blocks)
        if self._sampling is not None:
            self._sampling.take(blocks, answers)
        now_s, prices = self._clock.now(), self._microbatch.prices
        if self._calls.health.silent_at_s >= now_s - took_s:
            return
        # The pace is that of the calls that all other streams share.
        if self._pace is not None and blocks[0].ticket.stream not in prices.apart:
            self._pace.answered(prices.usual_rows(blocks), took_s, now_s)
        self._costs.answered(blocks, took_s, now_s)
        if self._costs.may_differ:
            self._costs.fit(now_s)
        self._reprice()

    def refused(self, blocks: Sequence[Block], error: Poison) -> None:
        streams = {block.ticket.stream for block in blocks}
        if error.code == "result_too_large" and len(streams) == 1:
            self._costs.exceeded(streams.pop(), self._clock.now())
            self._reprice()

    def _reprice(self) -> None:
        if self._costs.prices is not self._prices:
            self._prices = self._costs.prices
            self._microbatch.reprice(self._prices)

    def answered(self, blocks: Sequence[Block], answers: Answers) -> None:
        # The shadow's copy is made last, because it must not delay the live answers.
        if self._shadow is not None and self._copied is not None:
            self._shadow.offer(self._copied, blocks, answers)
            self._copied = None

    def limits_changed(self) -> None:
        """Apply the limits learned so far, and begin as many callers as there may be calls. The
        limit of rows in a batch is the pace's or the server's own, whichever is smaller.
        """
        allowed, most_rows = self._calls.health.allowed, self._calls.most_rows
        if self._pace is None and (allowed, most_rows) == self._applied:
            return
        self._applied = (allowed, most_rows)
        while self._callers < allowed:
            self._callers += 1
            self._tasks.create_task(self._call_forever())
        plan = self._pace.plan() if self._pace is not None else self._fixed
        if most_rows is not None and most_rows < plan.max_rows:
            plan = replace(plan, max_rows=most_rows)
        self._microbatch.apply(plan, allowed)
