"""Judges the health of a model server by how its requests end.

Rule: every request that was answered, refused or lost is reported here once. Only this file then
tells the gate, the outage and the metrics, and logs when the server begins to fail and when it
works again. Owner: the calls of one model.
"""

import logging
import math
from typing import Final

from penstock.asking.gate import Call, Gate
from penstock.core.bad_rows.verdicts import Chance
from penstock.core.health.rows_unanswered import RowsUnanswered
from penstock.errors import (
    EXIT_FATAL,
    Doubtful,
    Fatal,
    HungUp,
    NoAnswer,
    Overloaded,
    Poison,
    Transient,
    Unreachable,
    WorkerDied,
)
from penstock.failures.outage import Outage
from penstock.ports import Clock
from penstock.telemetry.per_service import CallsTelemetry

log = logging.getLogger(__name__)

# After this many broken connections without an answer between them, the server counts as silent.
SILENT_HANG_UPS: Final = 3
# After this many broken connections without an answer between them, the server counts as gone. If a
# server breaks half of all connections by chance, ten breaks in a row come once in a thousand
# times.
GONE_HANG_UPS: Final = 10
# The least time between two log lines about a server that fails now and then.
QUIET_S: Final = 60.0
# For this long after an outage the answer "no such model" counts as "still loading", because a
# restarted server gives that answer until it has loaded the model. MLServer takes some seconds to
# load a model, and a minute to load a large network.
LOADING_S: Final = 120.0

_OUTCOMES: Final[dict[type[Transient], str]] = {
    Overloaded: "overloaded",
    Unreachable: "unreachable",
    NoAnswer: "unreachable",
    HungUp: "unreachable",
    WorkerDied: "worker_died",
}


class ServerHealth:
    """Report the end of each request by `answered` or `lost`. `allowed`: how many calls the gate
    lets through at a time. `heard`: how many requests got an answer or a refusal so far.
    `was_answered`: True once the model has answered, because then its settings are right.
    """

    def __init__(self, gate: Gate, clock: Clock, telemetry: CallsTelemetry, outage: Outage) -> None:
        self._gate = gate
        self._clock = clock
        self._telemetry = telemetry
        self._outage = outage
        self.was_answered = self._answered_rows = False
        # When rows were first refused without a reason, while none was ever answered.
        self._refused_s: float | None = None
        self.allowed = gate.allowed
        self.heard = 0
        # How often good requests fail. Of `_spared` requests that did not it does not know yet.
        self._chance, self._spared = Chance(), 0
        # Nothing has failed or was refused since rows were last answered.
        self._is_well = False
        self._rows = RowsUnanswered()
        # When it was last found that no call is answered. Calls of that time tell nothing of rows.
        self.silent_at_s = -math.inf
        self._hang_ups_in_a_row = self._failed_probes = 0
        # True from a failure other than a broken connection until the next answer.
        self._is_away = False
        self._lost_s = -math.inf
        # For the log.
        self._was_open = self._was_logged = False
        self._quiet_until_s = 0.0
        self._odd_quiet_until_s = -math.inf
        telemetry.model_health(is_open=False, calls=gate.allowed)

    @property
    def is_open(self) -> bool:
        """True while only probes pass, because the server fails."""
        return self._gate.is_open

    @property
    def is_silent(self) -> bool:
        """True if the server hung up `SILENT_HANG_UPS` times without an answer in between."""
        return self._hang_ups_in_a_row >= SILENT_HANG_UPS

    @property
    def is_gone(self) -> bool:
        """True if the server gives no answers and this cannot be chance (`GONE_HANG_UPS`)."""
        return self._is_away or self._hang_ups_in_a_row >= GONE_HANG_UPS

    @property
    def chance(self) -> Chance:
        if self._spared:
            self._chance.succeeded(self._spared)
            self._spared = 0
        return self._chance

    def probe_failed(self) -> None:
        """The server hung up on a probe, or its worker process died. This counts as chance, unless
        the server turns out to be gone.
        """
        self._is_well = False
        self._failed_probes += 1

    @property
    def may_be_loading(self) -> bool:
        """Did the model work before, and was the server away within the last `LOADING_S`?"""
        return self.was_answered and self._clock.now() - self._lost_s < LOADING_S

    @property
    def may_be_starting(self) -> bool:
        """Has the model answered no row so far, and refused rows without a reason only since
        `LOADING_S`? Some servers do so while they load a model. Who has no time for it is told.
        """
        since_s = self._refused_s
        return (
            since_s is not None
            and not self._answered_rows
            and self._outage.is_endless
            and self._clock.now() - since_s < LOADING_S
        )

    def answered(self, call: Call, *, has_rows: bool, refusal: Poison | None = None) -> None:
        """The server answered, or it refused the rows. Both show that the server works."""
        self._telemetry.model_request("answered" if refusal is None else "refused")
        self.was_answered = True
        self.heard += 1
        if self._is_well and has_rows and refusal is None:
            self._spared += 1
        else:
            self._is_well = has_rows and refusal is None
            self._mend(refusal, has_rows=has_rows)
        self._gate.answered(call)
        self._tell_breaker()

    def questioned(self, *, answers: bool) -> None:
        """The server did, or did not, answer a question without rows that passed no gate."""
        if answers:
            self._rows.idle_answered()
        else:
            self._rows.away()

    def gave_up_row(self) -> None:
        """A row was rejected for bare refusals, and the model has answered no row so far. Raises
        `Fatal` if it is not the first, and nobody waits for a server that never worked.
        """
        self._rows.gave_up()
        self._fails_at_rows()

    def _mend(self, refusal: Poison | None, *, has_rows: bool) -> None:
        """An answer ends what had failed; a refusal says of rows what an answer would not."""
        self._lost_s = -math.inf
        if isinstance(refusal, Doubtful):
            self.chance.failed()
        else:
            self.chance.succeeded()
        # While a server is gone, its failures do not tell how often it fails.
        if max(self._failed_probes, self._hang_ups_in_a_row) < GONE_HANG_UPS:
            self.chance.explains(self._failed_probes)
        self._hang_ups_in_a_row = self._failed_probes = 0
        self._is_away = False
        if has_rows:
            self._answered_rows = self._answered_rows or not isinstance(refusal, Doubtful)
            if self._refused_s is None:
                self._refused_s = self._clock.now()
            self._rows.answered(refusal, self._clock.now())
            self._look_at_answer(refusal)
        else:
            self._rows.idle_answered()
        if not self._fails_at_rows():
            self._outage.answered()

    def lost(self, call: Call, error: Transient, rows: int) -> None:
        """The server failed or did not answer a request with so many rows. Raises `Fatal` if an
        outage has lasted too long.
        """
        self._is_well = False
        self._telemetry.model_request(_OUTCOMES.get(type(error), "ill"))
        self._telemetry.retried("predict")
        if isinstance(error, Unreachable):
            self._lost_s = self._clock.now()
            self._is_away = self._is_away or not isinstance(error, HungUp)
        if rows and isinstance(error, NoAnswer):
            self._rows.lost(error, self._clock.now(), rows)
        elif isinstance(error, Unreachable):
            self._rows.away()
        if isinstance(error, NoAnswer | WorkerDied):
            self.chance.failed()
        if isinstance(error, HungUp):
            self._hang_ups_in_a_row += 1
            if self._hang_ups_in_a_row < GONE_HANG_UPS:
                # The rows that were sent may be the cause, so the server is not blamed yet.
                self._gate.dropped(call)
                self._fails_at_rows()
                return
        self._gate.failed(call, error)
        self._tell_breaker(error)
        # If a server answers empty requests but not rows, it is logged as failing, not as away.
        if isinstance(error, Unreachable) and not self._fails_at_rows():
            self._outage.unreachable(error)

    def fell_silent(self, silent_s: float, *, answers_questions: bool) -> None:
        """No call has been answered for this long. Raises `Fatal` if an outage has lasted too
        long.
        """
        self._is_well = False
        self.silent_at_s = self._clock.now()
        if answers_questions:
            self._outage.fails("no call is answered", silent_s)
        else:
            self._outage.unreachable(NoAnswer("no byte of an answer came"), silent_s)

    def stopping(self, error: Fatal) -> Fatal:
        """The error that stops the worker. If the model worked before, the settings were right, so
        the error gets another exit code, and a text that says so.
        """
        if not self.was_answered:
            return error
        return Fatal(
            f"{error}. It worked before: the worker stops, and rows without an answer are not "
            "committed",
            exit_code=EXIT_FATAL,
        )

    def _fails_at_rows(self) -> bool:
        """Returns True if the server answers, but not rows. In that case the failure is also
        reported to the outage.
        """
        why = self._rows.why(self._clock.now())
        if why is not None:
            self._outage.fails(why, did_work=self._answered_rows or not self._rows.is_certain)
        return why is not None

    def _look_at_answer(self, refusal: Poison | None) -> None:
        """Log it if the server keeps answering with status 200 and something that is not a model's
        answer.
        """
        verdict, now_s = self._rows.odd(refusal), self._clock.now()
        if verdict is not None and now_s >= self._odd_quiet_until_s:
            self._odd_quiet_until_s = now_s + QUIET_S
            log.warning("the %s fails: %s", self._outage.service, verdict)

    def _tell_breaker(self, error: Transient | None = None) -> None:
        """Tell the log and the metrics if the breaker has opened or closed, or if `allowed` has
        changed.
        """
        allowed, is_open = self._gate.allowed, self._gate.is_open
        if allowed == self.allowed and is_open == self._was_open:
            return
        # An unreachable server is logged by its outage.
        is_news = self._clock.now() >= self._quiet_until_s and not isinstance(error, Unreachable)
        if is_open and not self._was_open and is_news:
            log.warning("the model server fails, only probes are sent: %s", error)
            self._quiet_until_s, self._was_logged = self._clock.now() + QUIET_S, True
        elif self._was_open and not is_open and self._was_logged:
            log.warning("the model server works again")
            self._was_logged = False
        self.allowed, self._was_open = allowed, is_open
        self._telemetry.model_health(is_open=is_open, calls=allowed)
