"""Requests to the model server: rows, and probes of its health.

Rule: every request passes the gate, and `server_health.py` learns how it ended. A probe sends the
canary, if one is configured. The canary is the row of `model.canary`, which the model is known to
answer. Without a canary a probe sends a row that was answered before. If there is no such row
either, it sends an empty batch, which shows at least that a worker process runs. Owner: the predict
stage.
"""

import asyncio
import math
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Final

import numpy as np
import orjson

from penstock.asking.gate import Breaker, Call, Gate, Rank
from penstock.asking.server_health import ServerHealth
from penstock.core.bad_rows.verdicts import UNCONTROLLED_TRIES
from penstock.core.health.limiter import Limiter
from penstock.core.health.retries import Backoff
from penstock.core.rows.blocks import Block
from penstock.core.rows.payload import BytesRows, Form, JsonRows, Matrix, Payload
from penstock.errors import (
    Doubtful,
    Fatal,
    HungUp,
    NoAnswer,
    PenstockError,
    Poison,
    Transient,
    Unforeseen,
    Unreachable,
    WorkerDied,
    usage,
)
from penstock.failures.outage import Outage
from penstock.failures.unexpected_errors import Guards
from penstock.ports import Answers, Clock, Model
from penstock.telemetry.per_service import CallsTelemetry

# A function that is given the blocks of a request, and returns a context manager that records the
# request's span.
Tracing = Callable[[Sequence[Block]], AbstractContextManager[None]]

# The pauses before the same rows are sent again. They hold only while the breaker is closed; once
# it is open, the breaker itself paces all requests.
RETRY: Final = Backoff(first_s=0.05, most_s=5.0)
# A starting worker waits this long for the model's answer. Even an empty batch may take long while
# the server is busy loading the model; otherwise it takes milliseconds.
MODEL_S = 5.0
# If the server refuses the canary without a reason, maybe it is only busy. So the canary is sent
# again after this pause.
CANARY_PAUSE_S = 0.2
# The pauses between probes of a server that answers grow up to this probe, to 0.4 s.
SOON_TRIES: Final = 4
# A request that is a probe has at most this many rows. They cost a recovering server little more
# than one row.
PROBE_ROWS: Final = 32
# The slowest answer is that of this time and of as much before it. A server that needed a minute
# once, to load its model, is not waited for so long for ever. Nor does a call count that was told
# to have no answer: the server hung. If it is told again within this time, such calls are usual.
SLOWEST_S: Final = 300.0


class ModelCalls:
    """For each request call `enter`, and then `send`, `probe` or `leave`. `send` raises the errors
    of the port `Model`. `slowest_s`: how long the slowest of the requests with rows took that were
    answered lately; `slowest_of`: of how many.
    """

    def __init__(
        self,
        model: Model,
        canary: Payload | None,
        limiter: Limiter,
        clock: Clock,
        telemetry: CallsTelemetry,
        outage: Outage,
        jitter: Callable[[], float],
        guards: Guards,
        *,
        is_alone: bool = True,
        tracing: Tracing | None = None,
        size: Callable[[Sequence[Block]], float] | None = None,
        token_prices: tuple[float, float] = (0.0, 0.0),
    ) -> None:
        """`is_alone`: True if this is the only model. If one of several models has a wrong setting,
        that does not end the worker: the model counts as unavailable, so that the other models go
        on. `size`: how many times as long as the average a call with these rows should take.
        `token_prices`: of a token that is read, and of one that is written.
        """
        self.limiter = limiter
        self._size = size
        self._token_prices = token_prices
        self._tracing = tracing or (lambda _: nullcontext())
        self._is_alone = is_alone
        self._guard = guards.at("model")
        self._model = model
        self._canary = [canary] if canary is not None else []
        self._gate = Gate(Breaker(limiter), clock, jitter)
        self._clock = clock
        self._telemetry = telemetry
        self.health = ServerHealth(self._gate, clock, telemetry, outage)
        self.jitter = jitter
        # A row that was answered, so a healthy server answers it again: the first one, and a new
        # one after each failure that rows may have caused. Empty if none was answered.
        self._witness: list[Payload] = []
        self._wants_witness = True
        # How often, one after the other, the canary was refused. A server that does so for long is
        # not busy, but ill.
        self._canary_doubts = 0
        self.slowest_s: float | None = None
        self.slowest_of = 0
        self._slowest_since_s = clock.now()
        self._slowest_lately_s, self._answered_lately = 0.0, 0
        # When the server last hung, and answered the calls of that time at last.
        self._hung_s = -math.inf

    @property
    def most_rows(self) -> int | None:
        """The most rows of one request; None if the server does not tell."""
        return self._model.most_rows

    @property
    def has_canary(self) -> bool:
        return bool(self._canary)

    @property
    def has_witness(self) -> bool:
        """True if there is a row that the server is known to answer."""
        return bool(self._canary or self._witness)

    async def enter(self, rank: Rank | None = None) -> Call:
        """Wait until one request may be made. The caller must then pass the returned call to
        `send`, `probe` or `leave`. `rank`: the rank of a search; None if the request carries a
        batch.
        """
        return await self._gate.enter(rank)

    def leave(self, call: Call) -> None:
        self._gate.dropped(call)

    async def send(self, call: Call, blocks: Sequence[Block]) -> Answers:
        """Send the rows of all blocks in one request."""
        started_s = self._clock.now()
        payloads = [block.payload for block in blocks if block.payload is not None]
        if self._size is not None:
            call.request.size = self._size(blocks)
        with self._tracing(blocks):
            answers = await self._request(call, payloads)
        now_s = self._clock.now()
        self._telemetry.call_answered(now_s - started_s, len(answers.values))
        self._took(now_s - started_s, now_s)
        if self._wants_witness:
            self._witness, self._wants_witness = [payloads[0].cut(0, 1).owned()], False
        for block in blocks:
            block.called_s, block.answered_s = started_s, now_s
        return answers

    def _took(self, took_s: float, now_s: float) -> None:
        if now_s - self._slowest_since_s >= SLOWEST_S:
            self.slowest_s, self.slowest_of = self._slowest_lately_s or None, self._answered_lately
            self._slowest_since_s = now_s
            self._slowest_lately_s, self._answered_lately = 0.0, 0
        self._answered_lately += 1
        self.slowest_of += 1
        began_s = now_s - took_s
        if began_s <= self.health.silent_at_s:
            # Other calls of the same time end now, too.
            is_usual = self._hung_s < began_s and now_s - self._hung_s < SLOWEST_S
            self._hung_s = now_s
            if not is_usual:
                return
        self._slowest_lately_s = max(self._slowest_lately_s, took_s)
        self.slowest_s = max(self.slowest_s or 0.0, took_s)

    async def probe(self, call: Call) -> bool:
        """Send a probe, as the rule above says. Returns True if the server answers or refuses the
        probe.
        """
        try:
            await self._request(call, self._canary or self._witness, is_canary=self.has_canary)
        except Transient as error:
            if isinstance(error, HungUp | WorkerDied):
                self.health.probe_failed()
            return False
        except Doubtful:
            # The rows of probes are good, so this is chance, and they are sent again.
            self.health.chance.explains(1)
            self._telemetry.retried("predict")
            return False
        except Poison:
            # The handler refused the probe, so its worker process lives.
            return True
        return True

    async def is_healthy(self, rank: Rank | None) -> bool:
        return await self.probe(await self._gate.enter(rank))

    async def until_healthy(self, rank: Rank | None) -> bool:
        """Send probes until the server is healthy. Returns True if the server counted as gone at
        the begin or at any time meanwhile.
        """
        failures, was_gone = 0, self.health.is_gone
        while not await self.is_healthy(rank):
            failures += 1
            was_gone = was_gone or self.health.is_gone
            # A server that does not count as gone is probed again soon, because it may be back in a
            # moment.
            await self.pause(failures if was_gone else min(failures, SOON_TRIES))
        return was_gone

    def parted(self) -> None:
        """Count a refused request whose rows will be sent again in smaller parts."""
        self._telemetry.retried("predict")

    async def pause(self, failures: int) -> None:
        """Wait before the same rows are sent again. If the breaker is open, this returns at once,
        because callers then wait at the gate.
        """
        if not self._gate.is_open:
            delay_s = RETRY.delay_s(failures, 0.0, self.jitter())
            assert delay_s is not None, "this backoff never ends"
            await asyncio.sleep(delay_s)

    async def check(self) -> None:
        """Ask the model when the worker starts. Raises `Transient` if the server is unavailable,
        and `Fatal` if a setting is wrong.
        """

        async def predict(payloads: Sequence[Payload]) -> Answers:
            with self._guard:
                return _checked(await self._model.predict(payloads), _rows_of(payloads))

        await ask_model(predict, self._canary)
        self.health.was_answered = True

    async def _request(
        self, call: Call, payloads: Sequence[Payload], *, is_canary: bool = False
    ) -> Answers:
        """Send one request, and report how it ended."""
        rows = _rows_of(payloads)
        try:
            with self._guard:
                answers = _checked(await self._model.predict(payloads), rows)
            if answers.tokens is not None:
                self._count(*answers.tokens)
            if is_canary:
                for message in answers.errors.values():
                    raise _canary_refused(message)
                self._canary_doubts = 0
        except PenstockError as error:
            meaning = self._meaning(error, is_canary=is_canary)
            self._report(call, meaning, rows)
            if meaning is error:
                raise
            raise meaning from error
        except BaseException:
            self._gate.dropped(call)
            raise
        self.health.answered(call, has_rows=rows > 0)
        return answers

    def _count(self, read: int, written: int) -> None:
        read_price, written_price = self._token_prices
        cost = read * read_price + written * written_price
        self._telemetry.tokens_used(read, written, cost)

    def _meaning(self, error: PenstockError, *, is_canary: bool) -> PenstockError:
        """The error as it concerns this server, of which something is known already."""
        if is_canary and isinstance(error, Poison):
            self._canary_doubts += 1
            is_busy = isinstance(error, Doubtful) and self._canary_doubts < UNCONTROLLED_TRIES
            return error if is_busy else _canary_refused(str(error))
        if not isinstance(error, Fatal):
            return error
        if self.health.may_be_loading:
            return Transient(f"{error} (it may be loading)")
        return self.health.stopping(error) if self._is_alone else Unreachable(str(error))

    def _report(self, call: Call, error: PenstockError, rows: int) -> None:
        if isinstance(error, NoAnswer | WorkerDied | Doubtful):
            self._wants_witness = True
        match error:
            case Transient():
                self.health.lost(call, error, rows)
            case Poison() if not isinstance(error, Unforeseen):
                self.health.answered(call, has_rows=rows > 0, refusal=error)
            case _:
                # This tells nothing about the server: perhaps it was not even asked.
                self._gate.dropped(call)


def _checked(answers: Answers, rows: int) -> Answers:
    if rows and len(answers.values) != rows:
        raise ValueError(f"{len(answers.values)} answers came for {rows} rows")
    if answers.nbytes is None:
        return answers._replace(nbytes=sum(map(len, answers.values)))
    return answers


def _canary_refused(message: str) -> Transient:
    return Transient(f"the row of model.canary is refused: {message}")


def _rows_of(payloads: Sequence[Payload]) -> int:
    return sum(payload.rows for payload in payloads)


async def ask_model(
    predict: Callable[[Sequence[Payload]], Awaitable[Answers]], canary: Sequence[Payload]
) -> None:
    """Return if the model answers. If `model.canary` is set, the model must answer that row. Raises
    `Transient` if the server is unavailable, and `Fatal` if a setting is wrong.
    """
    for tries_left in reversed(range(UNCONTROLLED_TRIES)):
        try:
            # The canary is a row, which may take as long as rows do: model.timeout_ms bounds it.
            async with asyncio.timeout(None if canary else MODEL_S):
                answers = await predict(canary)
            complaint = next(iter(answers.errors.values()), None)
        except TimeoutError:
            raise Unreachable(f"no answer within {MODEL_S:.0f} s", mend="check model.url") from None
        except Poison as error:
            complaint = str(error)
            if canary and isinstance(error, Doubtful) and tries_left:
                await asyncio.sleep(CANARY_PAUSE_S)
                continue
        break
    if canary and complaint:
        raise usage(
            f"the model refuses the row of model.canary: {complaint}; give it a row that the "
            "model is known to take"
        )


def canary_of(text: str | None, form: Form) -> Payload | None:
    """The row of `model.canary`, in the form that is sent to the model. `text`: the setting; if the
    form is `bytes`, it is the path of a file. Raises `Fatal` if the setting is not a row of this
    form.
    """
    if text is None:
        return None
    wanted, read = _READERS[form]
    try:
        return read(text)
    except (ValueError, TypeError, OSError) as error:
        raise usage(f"model.canary = {text!r}: write {wanted} ({error})") from None


def _numbers(text: str) -> Payload:
    with np.errstate(over="ignore"):
        values = np.array([orjson.loads(text)], "<f4")
    if values.ndim != 2 or not values.size or not np.isfinite(values).all():
        raise ValueError("these are not finite numbers")
    return Matrix(values)


_READERS: Final[dict[Form, tuple[str, Callable[[str], Payload]]]] = {
    "json": ("a row of JSON", lambda text: JsonRows.of([orjson.dumps(orjson.loads(text))])),
    "matrix": ("a row of numbers, as [1.5, 2, 3]", _numbers),
    "columns": ("a row of numbers, as [1.5, 2, 3]", _numbers),
    "bytes": (
        "the path of a file that is a row",
        lambda text: BytesRows.of([Path(text).read_bytes()]),
    ),
}
