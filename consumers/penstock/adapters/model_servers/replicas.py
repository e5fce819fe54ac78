"""A model on several servers: `model.replicas` are asked while `model.url` is unavailable.

Rule: `core.health.standby` decides which server is asked: the first while it is healthy. A request
that could not be sent, or got no answer within `model.failover_ms`, goes to the next. If a
connection broke or a worker died during a request, the error goes to the caller, which finds out
whether the rows are the cause. An unavailable server is probed by a question without rows. A
replica with a wrong setting counts as unavailable, so that the first server's work goes on.
"""

import asyncio
import logging
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Final, Literal, NamedTuple, Protocol

from penstock.core.health.retries import Hedging
from penstock.core.health.standby import Standby
from penstock.core.rows.payload import Payload
from penstock.errors import (
    Fatal,
    NoAnswer,
    Overloaded,
    Poison,
    Transient,
    Unreachable,
    first_cause,
)
from penstock.ports import Answers, Model
from penstock.process.hedged import Alarms, Ask, Hedged

log = logging.getLogger(__name__)

# `LOOK_AGAIN_S`: how often an unavailable server is probed. `LOOK_S`: how long a probe may delay a
# batch at most.
LOOK_AGAIN_S: Final = 3.0
LOOK_S: Final = 1.0
# How often a call that waits for the last healthy server asks whether a probe is due.
PAUSE_S: Final = 0.25


class Watcher(Protocol):
    """A watcher is told when a server is passed over, and what became of a call that was sent to a
    second server.
    """

    def model_failed_over(self, endpoint: str) -> None: ...

    def model_hedged(self, outcome: Literal["won", "lost"]) -> None: ...


class Endpoint(NamedTuple):
    """A server, with its address as it may be shown (without secrets)."""

    address: str
    model: Model


class _Relieved(Unreachable):
    """The last healthy server is silent for too long, and another server is healthy again."""


class ReplicatedModel:
    """Implements the port `Model`. `patience_s`: how long a server may take to answer while another
    healthy server is left to ask. `hedging`: given if late calls are sent to a second server.
    """

    def __init__(
        self,
        endpoints: Sequence[Endpoint],
        patience_s: float,
        watcher: Watcher | None = None,
        hedging: Hedging | None = None,
    ) -> None:
        self._hedging = hedging
        self._alarms = Alarms()
        self._endpoints = endpoints
        self._patience_s = patience_s
        self._watcher = watcher
        self._standby = Standby(len(endpoints), look_again_s=LOOK_AGAIN_S)

    @property
    def version(self) -> str | None:
        return self._endpoints[0].model.version

    @property
    def most_rows(self) -> int | None:
        """The smallest limit of all servers, because rows gathered for one may go to another."""
        limits = [endpoint.model.most_rows for endpoint in self._endpoints]
        return min((most for most in limits if most is not None), default=None)

    async def predict(self, payloads: Sequence[Payload]) -> Answers:
        due = self._standby.due(_now_s())
        if due is None:
            return await self._ask(payloads)
        # Await both the question and the probe, so that the probe does not outlive this call.
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
        for endpoint in self._endpoints:
            await endpoint.model.aclose()

    async def _ask(self, payloads: Sequence[Payload]) -> Answers:
        try:
            return await self._ask_in_turn(payloads, is_final=False)
        except _Relieved:
            # There is only one more round. If no server answers in it, the caller looks for the row
            # at fault.
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
        assert failure is not None, "at least one server is asked"
        raise failure

    async def _ask_one(
        self, number: int, payloads: Sequence[Payload], *, is_last: bool, is_final: bool
    ) -> Answers:
        """Raises `Unreachable` if the next server should be asked with the same rows."""
        endpoint = self._endpoints[number]
        try:
            async with self._patience(number, is_last=is_last, is_final=is_final):
                by, answers = await self._predict(number, payloads)
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
            # An overloaded server stays in use: the caller sends less.
            if not isinstance(error, Overloaded):
                self._failed(number, error)
            raise
        self._standby.answered(by)  # of two that were asked, the one that did
        return answers

    async def _predict(self, number: int, payloads: Sequence[Payload]) -> tuple[int, Answers]:
        """The answers, and the number of the server that gave them."""

        hedging, began_s = self._hedging, _now_s()
        if hedging is None:
            return number, await self._endpoints[number].model.predict(payloads)

        def at(server: int) -> Ask[tuple[int, Answers]]:
            async def ask() -> tuple[int, Answers]:
                try:
                    return server, await self._endpoints[server].model.predict(payloads)
                except Overloaded:
                    hedging.refused(_now_s())
                    raise

            return ask

        hedging.asked()
        nbytes = sum(payload.nbytes for payload in payloads)
        late_s = hedging.late_s(nbytes)
        try:
            if late_s is None or not self._standby.is_another_well(number):
                answered = await at(number)()
            else:
                other = next(other for other in self._standby.well() if other != number)
                may_again, alarms = hedging.may_ask_again, self._alarms
                call = Hedged(at(number), at(other), may_again, self._hedged, alarms)
                answered = await call.answer(late_s)
        except NoAnswer:
            hedging.unanswered()
            raise
        hedging.answered(nbytes, _now_s() - began_s)
        return answered

    def _hedged(self, outcome: Literal["won", "lost"]) -> None:
        if self._watcher is not None:
            self._watcher.model_hedged(outcome)

    @asynccontextmanager
    async def _patience(self, number: int, *, is_last: bool, is_final: bool) -> AsyncIterator[None]:
        """Raises `TimeoutError` if the block takes too long. The last healthy server has no limit
        until another server is healthy again. This call itself probes the other servers, because
        there may be no new call that could probe: all calls that the caller may have open can hang
        at the last server.
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
                # The probe's errors are ignored: the next call with rows meets them again.
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
        """Only a server that accepts no request counts as unavailable at once. A connection that
        broke during a request may be the request's fault, so the break counts as one failure; if
        the server is really gone, it refuses the next request.
        """
        is_away = isinstance(error, Unreachable) and not isinstance(error, NoAnswer)
        if self._standby.failed(number, _now_s(), is_away=is_away):
            address = self._endpoints[number].address
            log.warning("the model server %s is passed over: %s", address, error)
            if self._watcher is not None:
                self._watcher.model_failed_over(address)


def _now_s() -> float:
    return asyncio.get_running_loop().time()
