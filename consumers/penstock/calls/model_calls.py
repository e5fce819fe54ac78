"""Requests to the model server, and what their ends say about its health.

Rule: every request passes the gate; the gate, the outage and the metrics learn its end here and
nowhere else. A probe sends the row of `model.canary` if one is configured, else a row that was
answered since the server last hung up, else an empty batch, which shows at least that a worker
process runs. Owner: predict.
"""

import asyncio
import logging
import math
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Final

from penstock.calls.gate import Gate, Rank
from penstock.calls.outage import Outage
from penstock.calls.unexpected_errors import Guards
from penstock.calls.wait_for_services import ask_model
from penstock.core.bad_rows.lost_requests import ChanceHangUps
from penstock.core.health.breaker import Breaker, Call
from penstock.core.health.retry import Backoff
from penstock.core.health.rows_unanswered import RowsUnanswered
from penstock.core.rows.blocks import Block
from penstock.core.rows.payload import Payload
from penstock.errors import (
    EXIT_FATAL,
    Fatal,
    HungUp,
    NoAnswer,
    Overloaded,
    Poison,
    Transient,
    Unforeseen,
    Unreachable,
    WorkerDied,
)
from penstock.ports import Answers, Clock, Model
from penstock.telemetry.models import CallsTelemetry

log = logging.getLogger(__name__)

Tracing = Callable[[Sequence[Block]], AbstractContextManager[None]]

# The pauses before the same rows are sent again while the breaker is closed; once it is open, the
# breaker paces all requests.
RETRY: Final = Backoff(first_s=0.05, most_s=5.0)
# The most rows of a probe: they cost a recovering server little more than one row.
PROBE_ROWS: Final = 32
# After this many broken connections in a row without an answer, the server counts as silent.
WELL_HANG_UPS: Final = 3
# After this many it counts as unavailable. A server that breaks half of all connections by chance
# breaks as many in a row one time in a thousand.
GONE_HANG_UPS: Final = 10
# The least time between two log lines about a server that fails now and then.
QUIET_S: Final = 60.0

# How long after an outage "no such model" counts as "still loading": a restarted server answers so
# until it has loaded the model, MLServer for some seconds, with a large network for a minute.
LOADING_S: Final = 120.0

_OUTCOMES: Final[dict[type[Transient], str]] = {
    Overloaded: "overloaded",
    Unreachable: "unreachable",
    NoAnswer: "unreachable",
    HungUp: "unreachable",
    WorkerDied: "worker_died",
}


class ModelCalls:
    """`enter`, then `send`. Raises what the model port raises."""

    def __init__(
        self,
        model: Model,
        canary: Payload | None,
        most_calls: int,
        clock: Clock,
        telemetry: CallsTelemetry,
        outage: Outage,
        jitter: Callable[[], float],
        guards: Guards,
        *,
        is_alone: bool = True,
        tracing: Tracing | None = None,
    ) -> None:
        """`is_alone`: this is the only model. If one of several has a wrong setting, it counts as
        unavailable instead of ending the worker, so that the others go on. `tracing`: enters the
        span of a request with these blocks.
        """
        self._tracing = tracing or (lambda _: nullcontext())
        self._is_alone = is_alone
        self._guard = guards.at("model")
        self._model = model
        self._canary = [canary] if canary is not None else []
        self._gate = Gate(Breaker(most_calls), clock, jitter)
        self._clock = clock
        self._telemetry = telemetry
        self._outage = outage
        self.jitter = jitter
        self._is_known = self._was_open = self._was_logged = False
        self._quiet_until_s = 0.0
        self._lost_s = -math.inf
        self._rows = RowsUnanswered()
        self._odd_quiet_until_s = -math.inf
        # A row that was answered since the server last hung up: a healthy server answers it.
        self._witness: list[Payload] = []
        self._wants_witness = False
        self._broken_in_a_row = 0
        # True from a failure other than a broken connection until the next answer.
        self._is_away = False
        self.chance_hang_ups = ChanceHangUps()
        self.allowed = most_calls
        # How many requests got an answer or a refusal, and the longest answered request with rows.
        self.heard = 0
        self.slowest_s: float | None = None
        telemetry.model_health(is_open=False, calls=most_calls)

    @property
    def is_open(self) -> bool:
        """True while only probes pass, because the server fails."""
        return self._gate.is_open

    @property
    def most_rows(self) -> int | None:
        """The most rows of one request, if the server tells."""
        return self._model.most_rows

    @property
    def has_canary(self) -> bool:
        return bool(self._canary)

    @property
    def is_silent(self) -> bool:
        """True if the server hung up `WELL_HANG_UPS` times in a row without an answer between."""
        return self._broken_in_a_row >= WELL_HANG_UPS

    @property
    def is_gone(self) -> bool:
        """True if the server gives no answers and this cannot be chance (`GONE_HANG_UPS`)."""
        return self._is_away or self._broken_in_a_row >= GONE_HANG_UPS

    @property
    def has_witness(self) -> bool:
        """True if there is a row that the server is known to answer."""
        return bool(self._canary or self._witness)

    async def enter(self, rank: Rank | None = None) -> Call:
        """Wait for the right to make one request; `send`, `probe` or `leave` must use it up. A
        search gives its rank.
        """
        return await self._gate.enter(rank)

    def leave(self, call: Call) -> None:
        self._gate.dropped(call)

    async def send(self, call: Call, blocks: Sequence[Block]) -> Answers:
        """The rows of the blocks, as one request."""
        started_s = self._clock.now()
        payloads = [block.payload for block in blocks if block.payload is not None]
        with self._tracing(blocks):
            answers = await self._request(call, payloads)
        now_s = self._clock.now()
        self._telemetry.call_answered(now_s - started_s, len(answers.values))
        self.slowest_s = max(self.slowest_s or 0.0, now_s - started_s)
        if self._wants_witness:
            self._witness, self._wants_witness = [payloads[0].cut(0, 1).owned()], False
        for block in blocks:
            block.called_s, block.answered_s = started_s, now_s
        return answers

    async def probe(self, call: Call) -> bool:
        """True if the server answers the best probe that there is (see the rule above)."""
        try:
            await self._request(call, self._canary or self._witness, is_canary=self.has_canary)
        except Transient as error:
            if isinstance(error, HungUp):
                self.chance_hang_ups.happened(1, self.heard)
            return False
        except Poison:
            # A handler that refuses an empty batch runs in a living worker process.
            return True
        return True

    async def is_healthy(self, rank: Rank | None) -> bool:
        return await self.probe(await self._gate.enter(rank))

    async def until_healthy(self, rank: Rank | None) -> bool:
        """Probe until the server is healthy. True if it counted as gone at any time meanwhile."""
        failures, was_gone = 0, self.is_gone
        while not await self.is_healthy(rank):
            failures += 1
            was_gone = was_gone or self.is_gone
            # Until it counts as gone, probe again soon: it may be back in a moment.
            await self.pause(failures if was_gone else 1)
        return was_gone

    def parted(self) -> None:
        """Count a refused request whose rows will be sent again in smaller parts."""
        self._telemetry.retried("predict")

    async def pause(self, failures: int) -> None:
        """Wait before the same rows are sent again; an open breaker paces by itself."""
        if not self._gate.is_open:
            delay_s = RETRY.delay_s(failures, 0.0, self.jitter())
            assert delay_s is not None, "this backoff never ends"
            await asyncio.sleep(delay_s)

    async def check(self) -> None:
        """At the start: raises `Transient` if the server is unavailable, `Fatal` for settings that
        waiting cannot cure.
        """
        await ask_model(self._guarded, self._canary)
        self._is_known = True

    async def _request(
        self, call: Call, payloads: Sequence[Payload], *, is_canary: bool = False
    ) -> Answers:
        try:
            answers = await self._ask(payloads, is_canary=is_canary)
        except Transient as error:
            self._telemetry.model_request(_OUTCOMES.get(type(error), "ill"))
            self._telemetry.retried("predict")
            if isinstance(error, Unreachable):
                self._lost_s = self._clock.now()
                self._is_away = self._is_away or not isinstance(error, HungUp)
            if payloads and isinstance(error, NoAnswer):
                self._rows.lost(error, self._clock.now())
            if isinstance(error, HungUp) and self._hung_up():
                self._gate.dropped(call)
                raise
            self._gate.failed(call, error)
            self._look(error)
            if isinstance(error, Unreachable) and not self._fails_at_rows():
                self._outage.unreachable(error)
            raise
        except Unforeseen:
            # The exception tells nothing about the server, which may not even have been asked.
            self._gate.dropped(call)
            raise
        except Poison as error:
            self._telemetry.model_request("refused")
            self._healthy(call, payloads, error)
            raise
        except Fatal as error:
            self._gate.dropped(call)
            raise self._stopping(error) from None
        except BaseException:
            self._gate.dropped(call)
            raise
        self._telemetry.model_request("answered")
        self._healthy(call, payloads)
        return answers

    async def _predict(self, payloads: Sequence[Payload]) -> Answers:
        try:
            return await self._guarded(payloads)
        except Fatal as error:
            if self._is_known and self._clock.now() - self._lost_s < LOADING_S:
                raise Transient(f"{error} (it may be loading)") from error
            if self._is_alone:
                raise
            raise Unreachable(str(error)) from error

    async def _guarded(self, payloads: Sequence[Payload]) -> Answers:
        with self._guard:
            answers = await self._model.predict(payloads)
            rows = sum(payload.rows for payload in payloads)
            if rows and len(answers.values) != rows:
                raise ValueError(f"{len(answers.values)} answers came for {rows} rows")
            if answers.nbytes is None:
                answers = answers._replace(nbytes=sum(map(len, answers.values)))
            return answers

    async def _ask(self, payloads: Sequence[Payload], *, is_canary: bool) -> Answers:
        if not is_canary:
            return await self._predict(payloads)
        try:
            answers = await self._predict(payloads)
        except Poison as error:
            raise Transient(f"the row of model.canary is refused: {error}") from None
        for message in answers.errors.values():
            raise Transient(f"the row of model.canary is refused: {message}")
        return answers

    def _hung_up(self) -> bool:
        """Count a broken connection. True if the server may still be healthy: then the rows that
        were sent may be the cause.
        """
        self._wants_witness = True
        self._broken_in_a_row += 1
        return self._broken_in_a_row < GONE_HANG_UPS

    def _healthy(
        self, call: Call, payloads: Sequence[Payload], refusal: Poison | None = None
    ) -> None:
        self._broken_in_a_row = 0
        self._is_away = False
        self._is_known = True
        self._lost_s = -math.inf
        self.heard += 1
        if payloads:
            self._rows.answered()
            self._look_at_answer(refusal)
        else:
            self._rows.idle_answered()
        if not self._fails_at_rows():
            self._outage.answered()
        self._gate.answered(call)
        self._look()

    def _fails_at_rows(self) -> bool:
        """Does the server answer questions, but not rows? Then that is told as its outage."""
        why = self._rows.why(self._clock.now())
        if why is not None:
            self._outage.fails(why)
        return why is not None

    def _look_at_answer(self, refusal: Poison | None) -> None:
        said, now_s = self._rows.odd(refusal), self._clock.now()
        if said is not None and now_s >= self._odd_quiet_until_s:
            self._odd_quiet_until_s = now_s + QUIET_S
            log.warning("the %s fails: %s", self._outage.service, said)

    def _stopping(self, error: Fatal) -> Fatal:
        """The error that stops the worker. If the model worked before, the settings were right:
        another exit code, and a text that says so.
        """
        if not self._is_known:
            return error
        return Fatal(
            f"{error}. It worked before: the line stops, and rows without an answer are not "
            "committed",
            exit_code=EXIT_FATAL,
        )

    def _look(self, error: Transient | None = None) -> None:
        """Log and count if the breaker opened or closed, or the allowed calls changed."""
        allowed, is_open = self._gate.allowed, self._gate.is_open
        if allowed == self.allowed and is_open == self._was_open:
            return
        is_news = self._clock.now() >= self._quiet_until_s and not isinstance(error, Unreachable)
        if is_open and not self._was_open and is_news:
            log.warning("the model server fails, only probes are sent: %s", error)
            self._quiet_until_s, self._was_logged = self._clock.now() + QUIET_S, True
        elif self._was_open and not is_open and self._was_logged:
            log.warning("the model server works again")
            self._was_logged = False
        self.allowed, self._was_open = allowed, is_open
        self._telemetry.model_health(is_open=is_open, calls=allowed)
