"""Decides what a failed call says about its rows: that they were refused, that they were lost, or
nothing.

Rule: a failure counts against a row only if the server was healthy. So a row that was lost is tried
again only when the server is healthy. Owner: the predict stage, which asks only after a call has
failed.
"""

import asyncio
from collections.abc import Callable

from penstock.asking.gate import Rank
from penstock.asking.model_calls import ModelCalls
from penstock.core.bad_rows.search import Search
from penstock.core.bad_rows.verdicts import KILL_PERIOD_S
from penstock.core.rows.rejections import Rejection
from penstock.errors import Doubtful, HungUp, NoAnswer, Poison, Unforeseen, WorkerDied

# The pauses between two trials of rows that are refused without a reason grow up to this trial, to
# 0.4 s.
PATIENT_TRIES = 4


class FailedCalls:
    """`apply_limits`: a function that is called before a row is tried again, because the limits of
    calls may have changed since the failure.
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
        True if the server was already giving no answers when the rows were sent.
        """
        calls = self._calls
        # If a request is too large for a server, the server may cut the connection without an
        # answer. So if a single row above the usual size gets no answer from a healthy server, the
        # size is taken for the cause. If the server is gone, the row is judged like any other row.
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
        if isinstance(error, HungUp) and search.rows == 1 and search.others_first():
            return
        if isinstance(error, WorkerDied):
            rejected = search.died(error, after_s)
        else:
            # The wait for the answer counts only up to the time of the slowest answer so far,
            # however long the timeout is: a healthy server would have answered by then.
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
        rows in two cases: the server still answers other requests, or it was gone after the
        hang-up.
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
        """After a hang-up, send a row that is known to be good. If the good row is not answered
        either, the hang-ups do not count against the suspected row. After the first hang-up the
        good row is sent twice, later once: otherwise a server that breaks every second or third
        connection could break just those of the suspected row. If the server is gone right after
        the hang-up, the suspected row counts as the cause, and the next trial waits until the
        server is back.
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
        was healthy just before. The trial begins at a random moment. Otherwise trials could always
        come just when something else kills the server, or just when the server returns.
        """
        while True:
            await self._calls.until_healthy(rank)
            await asyncio.sleep(self._calls.jitter() * KILL_PERIOD_S)
            if await self._calls.is_healthy(rank):
                break
        self._apply_limits()

    async def refused(self, search: Search, error: Poison, rank: Rank | None) -> None:
        if isinstance(error, Doubtful) and not await self._is_to_blame(search, rank):
            return
        if search.rows > 1:
            self._calls.parted()
            if error.code == "too_large":
                search.smaller()
                return
        elif self._calls.has_canary and not await self._calls.is_healthy(rank):
            # The server took the canary before, and refuses it now. So this row is not the cause.
            self._apply_limits()
            search.again()
            await self._calls.pause(search.failures)
            return
        elif isinstance(error, Unforeseen) and not search.was_refused:
            # An unforeseen exception may be chance: the row gets a second try.
            search.asked_again()
            return
        search.refused(Rejection(error.code, str(error), "predict"))

    async def _is_to_blame(self, search: Search, rank: Rank | None) -> bool:
        """The server refused rows without a reason. If chance explains it, the rows are asked
        again. Before each further trial of a single row, a row that is known to be good must be
        answered. The pause makes the next trial come at a random moment: a busy server may have
        room for one call at a time, and the call for the good row has just taken it.
        """
        calls, odds = self._calls, self._calls.health.odds_of_refusal
        tries, has_control = search.losses.doubtful + 1, calls.has_witness
        if search.doubted(odds, has_control=has_control):
            if search.rows == 1:
                calls.health.refusals_were_earned(tries)
            return True
        if search.rows == 1 and has_control:
            await calls.until_healthy(rank)
            self._apply_limits()
        if odds.broken or not has_control:
            await calls.pause(min(tries, PATIENT_TRIES))
        return False
