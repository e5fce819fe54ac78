"""What a failed call says about its rows: that they were refused, that they were lost, or nothing.

Rule: only what a healthy server did with a row counts against the row. So a row that was lost is
tried again only when the server is well. Owner: the predict stage; rows that are answered at once
do not come here.
"""

import asyncio
from collections.abc import Callable

from penstock.calls.gate import Rank
from penstock.calls.model_calls import ModelCalls
from penstock.core.bad_rows.bisect import Search
from penstock.core.bad_rows.lost_requests import KILL_PERIOD_S
from penstock.core.rows.rejections import Rejection
from penstock.errors import HungUp, NoAnswer, Poison, Unforeseen, WorkerDied


class FailedCalls:
    """`apply_limits`: called before a row is tried again, because the limits of calls may have
    changed since the failure.
    """

    def __init__(self, calls: ModelCalls, apply_limits: Callable[[], None]) -> None:
        self._calls = calls
        self._apply_limits = apply_limits

    async def lost(
        self,
        search: Search,
        error: WorkerDied | NoAnswer,
        after_s: float,
        rank: Rank | None,
        *,
        was_gone: bool,
    ) -> None:
        """The server's process died or no answer came, perhaps because of these rows. `was_gone`:
        the server gave no answers when the rows were sent.
        """
        calls = self._calls
        # Servers cut the connection of a request that is too large for them, without an answer. So
        # if a single row above the usual size gets no answer from a healthy server, its size is
        # taken for the cause. If the server is gone, the row is judged like any other row.
        is_oversize = isinstance(error, NoAnswer) and error.is_oversize and search.rows == 1
        if is_oversize and await calls.is_healthy(rank):
            if not search.broke(error):
                await calls.pause(search.failures)
            return
        if isinstance(error, HungUp) and (search.rows > 1 or calls.has_witness):
            if was_gone and search.rows == 1:
                search.again()
                await self._until_trial(rank)
            else:
                await self._broken(search, error, after_s, rank)
            return
        if isinstance(error, WorkerDied):
            rejected = search.died(error, after_s)
        else:
            # The time waited counts only up to the time of the slowest answer so far: a healthy
            # server would have answered by then, however long the timeout is.
            usual_s = min(after_s, calls.slowest_s or after_s)
            odds = calls.health.odds_of_hang_up if isinstance(error, HungUp) else None
            rejected = search.unanswered(error, calls.health.heard, usual_s, odds)
        if rejected:
            return
        if search.rows == 1:
            await self._until_trial(rank)
        elif search.losses.kills_workers or isinstance(error, NoAnswer):
            await calls.until_healthy(rank)
            self._apply_limits()
        else:
            await calls.pause(search.failures)

    async def _broken(
        self, search: Search, error: HungUp, after_s: float, rank: Rank | None
    ) -> None:
        """The server hung up, because of these rows or by chance. The hang-up counts against the
        rows if other requests are answered, or if the server was gone afterwards.
        """
        calls = self._calls
        is_gone = False
        if calls.health.is_silent and not await calls.is_healthy(rank):
            is_gone = await calls.until_healthy(rank)
            if not is_gone:
                search.again()
                return
            if calls.health.was_silenced:
                search.hang_ups = 0
        odds = calls.health.odds_of_hang_up
        if search.hung_up(error, odds, gone_after_s=after_s if is_gone else None):
            return
        if search.rows == 1 and is_gone:
            await self._until_trial(rank)
        elif search.rows == 1:
            await self._between_trials(search, after_s, rank)

    async def _between_trials(self, search: Search, after_s: float, rank: Rank | None) -> None:
        """After a hang-up send a row that is known to be good. If the good row is not answered
        either, the hang-ups do not count against the suspected row. The good row is sent twice
        after the first hang-up, later once, so that a server that breaks every second or third
        connection is not in step with us. If the server is gone right after the hang-up, the
        suspected row counts as the cause, and the next trial waits until the server is back.
        """
        for probe in range(2 if search.losses.count == 1 else 1):
            if await self._calls.is_healthy(rank):
                continue
            if not probe and await self._calls.until_healthy(rank):
                if self._calls.health.was_silenced:
                    search.hang_ups = 0
                search.losses.server_was_gone(after_s)
                await self._until_trial(rank)
            else:
                search.losses.forgive()
            return

    async def _until_trial(self, rank: Rank | None) -> None:
        """Wait until the row may be tried again. A loss counts against the row only if the server
        was well just before. The trial begins at a random moment: else trials could fall again and
        again on the moment at which something else kills the server, or on the server's return.
        """
        while True:
            await self._calls.until_healthy(rank)
            await asyncio.sleep(self._calls.jitter() * KILL_PERIOD_S)
            if await self._calls.is_healthy(rank):
                break
        self._apply_limits()

    async def refused(self, search: Search, error: Poison, rank: Rank | None) -> None:
        if search.rows > 1:
            self._calls.parted()
            if error.code == "too_large":
                search.smaller()
                return
        elif self._calls.has_canary and not await self._calls.is_healthy(rank):
            # The server now refuses even the canary, which it took before. So the fault is not this
            # row's.
            self._apply_limits()
            search.again()
            await self._calls.pause(search.failures)
            return
        elif isinstance(error, Unforeseen) and not search.was_refused:
            # An unforeseen exception may be chance: the row gets a second try.
            search.asked_again()
            return
        search.refused(Rejection(error.code, str(error), "predict"))
