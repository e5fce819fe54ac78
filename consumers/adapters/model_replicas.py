"""A model that several servers serve: `model.url`, and for when that is away `model.replicas`.

Rule: who is asked is decided by `core.standby`: the first while it is well. What was not sent, or
not answered in `model.failover_ms`, is asked of the next; rows on which a connection broke or a
worker died are left to the caller, who finds out whether they are the cause. A server that was away
is looked at without rows, also while calls wait for the only one that was left. A replica that is
set wrongly counts as away: the first one's work goes on. Owner: the application, around the
protocol's adapters.
"""

import asyncio
import logging
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Final, NamedTuple, Protocol

from consumers.core.payload import Payload
from consumers.core.standby import Standby
from consumers.errors import (
    Fatal,
    NoAnswer,
    Overloaded,
    Poison,
    Transient,
    Unreachable,
    first_cause,
)
from consumers.ports import Answers, Model

log = logging.getLogger(__name__)

# How soon a server that is back is used again, and the longest that a look holds up one batch.
LOOK_AGAIN_S: Final = 3.0
LOOK_S: Final = 1.0
# How often a call that waits for the last one asks whether it is time to look.
PAUSE_S: Final = 0.25


class Watcher(Protocol):
    """Hears of servers that are passed over."""

    def model_failed_over(self, endpoint: str) -> None: ...


class Endpoint(NamedTuple):
    """A server, by its address as it may be shown."""

    address: str
    model: Model


class _Relieved(Unreachable):
    """The last one was silent for too long, and by now another one is well."""


class ReplicatedModel:
    """The port `Model`. `patience_s`: for an answer of those that have another one behind them."""

    def __init__(
        self, endpoints: Sequence[Endpoint], patience_s: float, watcher: Watcher | None = None
    ) -> None:
        self._endpoints = endpoints
        self._patience_s = patience_s
        self._watcher = watcher
        self._standby = Standby(len(endpoints), look_again_s=LOOK_AGAIN_S)

    @property
    def version(self) -> str | None:
        return self._endpoints[0].model.version

    @property
    def most_rows(self) -> int | None:
        """What all of them take: rows that were gathered for one may go to another."""
        limits = [one.model.most_rows for one in self._endpoints]
        return min((most for most in limits if most is not None), default=None)

    async def predict(self, payloads: Sequence[Payload]) -> Answers:
        due = self._standby.due(_now_s())
        if due is None:
            return await self._ask(payloads)
        # Both are waited for, so that no look outlives its call.
        answers, _ = await asyncio.gather(
            self._ask(payloads), self._look(due), return_exceptions=True
        )
        if isinstance(answers, BaseException):
            raise answers
        return answers

    async def ready(self) -> bool:
        for number in self._standby.well():
            if await self._endpoints[number].model.ready():
                return True
        return False

    async def aclose(self) -> None:
        for one in self._endpoints:
            await one.model.aclose()

    async def _ask(self, payloads: Sequence[Payload]) -> Answers:
        try:
            return await self._ask_in_turn(payloads, is_final=False)
        except _Relieved:
            # Not for ever: rows that no server answers are for the caller to find.
            return await self._ask_in_turn(payloads, is_final=True)

    async def _ask_in_turn(self, payloads: Sequence[Payload], *, is_final: bool) -> Answers:
        in_turn = self._standby.well()
        failure: Transient | None = None
        for number in in_turn:
            is_last = number == in_turn[-1]
            try:
                return await self._ask_one(number, payloads, is_last=is_last, is_final=is_final)
            except NoAnswer:
                raise
            except Unreachable as error:
                failure = error
        assert failure is not None, "somebody is asked"
        raise failure

    async def _ask_one(
        self, number: int, payloads: Sequence[Payload], *, is_last: bool, is_final: bool
    ) -> Answers:
        """Raises `Unreachable` where the next is to be asked the same."""
        endpoint = self._endpoints[number]
        try:
            async with self._patience(number, is_last=is_last, is_final=is_final):
                answers = await endpoint.model.predict(payloads)
        except TimeoutError:
            kind = _Relieved if is_last else Unreachable
            error = kind(
                f"{endpoint.address}: no answer within {self._patience_s:g} s (model.failover_ms)"
            )
            self._failed(number, error)
            raise error from None
        except Poison:
            self._standby.answered(number)
            raise
        except Fatal as error:
            if number == 0:
                raise
            away = Unreachable(f"the replica {endpoint.address} cannot be used: {error}")
            self._failed(number, away)
            raise away from error
        except Transient as error:
            # One that has too much to do is asked less by the caller.
            if not isinstance(error, Overloaded):
                self._failed(number, error)
            raise
        self._standby.answered(number)
        return answers

    @asynccontextmanager
    async def _patience(self, number: int, *, is_last: bool, is_final: bool) -> AsyncIterator[None]:
        """Ends what takes too long by `TimeoutError`. The last one has all the time it wants,
        unless another one is back: calls that hang there may be all that the caller makes at a
        time, and then no other call looks.
        """
        async with asyncio.timeout(None if is_last else self._patience_s) as limit:
            if not is_last or is_final:
                yield
                return
            try:
                async with asyncio.TaskGroup() as tasks:
                    watching = tasks.create_task(self._end_when_another_is_well(number, limit))
                    yield
                    watching.cancel()
            except BaseExceptionGroup as group:
                raise first_cause(group) from group

    async def _end_when_another_is_well(self, number: int, limit: asyncio.Timeout) -> None:
        await asyncio.sleep(self._patience_s)
        while not self._standby.is_another_well(number):
            due = self._standby.due(_now_s(), waits_at=number)
            if due is None:
                await asyncio.sleep(PAUSE_S)
            else:
                # What it raises is for a call with rows to find out.
                await asyncio.gather(self._look(due), return_exceptions=True)
        limit.reschedule(_now_s())

    async def _look(self, number: int) -> None:
        endpoint = self._endpoints[number]
        try:
            async with asyncio.timeout(LOOK_S):
                is_there = await endpoint.model.ready()
        except TimeoutError:
            is_there = False
        if is_there:
            self._standby.answered(number)
            log.warning("the model server %s is back", endpoint.address)

    def _failed(self, number: int, error: Transient) -> None:
        """A connection that broke under a request may be the request's own fault: it counts as
        illness. A server that is gone refuses the next one.
        """
        is_away = isinstance(error, Unreachable) and not isinstance(error, NoAnswer)
        if self._standby.failed(number, _now_s(), is_away=is_away):
            address = self._endpoints[number].address
            log.warning("the model server %s is passed over: %s", address, error)
            if self._watcher is not None:
                self._watcher.model_failed_over(address)


def _now_s() -> float:
    return asyncio.get_running_loop().time()
