"""Asks in the background where the input ends, and whether every model and store answers; pages
show the last answers with their age.

Rule: every question has a deadline and a pause behind it, however often pages are asked. A service
that leaves requests and a question unanswered for some seconds is told to its outage, whatever the
client does with the requests.
"""

import asyncio
import logging
import math
from collections import deque
from collections.abc import Mapping, Set
from contextlib import AbstractAsyncContextManager

from penstock.asking.model_calls import ModelCalls
from penstock.core.diagnosis.clocks import ahead_s
from penstock.errors import NoAnswer, Transient, Unreachable, words_of
from penstock.pipeline.life import Pipeline
from penstock.ports import PROBE_KEY, Location, Model, Objects, Where
from penstock.process.asyncio_additions import meanwhile

log = logging.getLogger(__name__)

# Kafka may be asked this often where the input ends, because each question is only one small
# request.
LAG_EVERY_S = 2.0
# A question costs the model server a request, so a model that answers is asked seldom. A silent
# model is asked more often.
MODEL_EVERY_S = 5.0
SILENT_MODEL_EVERY_S = 1.0
# An answer may take this long, because a busy model answers a question only after the batches that
# came before it.
ANSWER_S = 5.0
# A service that is asked, and sends no byte for this long, is away, however long the client itself
# goes on trying. A store gets `SILENT_TIMES` its usual time if that is longer, and a model as many
# times the time of its slowest call.
SILENT_S = 5.0
SILENT_TIMES = 3.0
# A model that answers questions is at work, so a call may take this many times as long as calls
# take at present: a language model answers with one word, or with hundreds. After so many answers
# the slowest of them tells how long one may take.
AT_WORK_TIMES = 100.0
AT_WORK_CALLS = 100
# From this silence on, the service is asked another question, because one slow object or one slow
# batch is no outage. A model is not doubted before its slowest call is over.
DOUBTED_S = 2.0
# A store that nobody reads from is asked this often.
IDLE_S = 10.0
LOOK_S = 1.0
# The store's clock is asked for this often, by a request of its own.
CLOCK_EVERY_S = 10.0
# The growth of the input is a mean over this time.
GROWTH_OVER_S = 10.0


class Growth:
    """Computes how fast the input grows. Call `add` with each answer of Kafka, which has the end of
    each partition.
    """

    def __init__(self) -> None:
        self._seen: deque[tuple[float, Mapping[Where, int]]] = deque()

    def add(self, now_s: float, ends: Mapping[Where, int]) -> None:
        self._seen.append((now_s, dict(ends)))
        while len(self._seen) > 2 and self._seen[1][0] <= now_s - GROWTH_OVER_S:
            self._seen.popleft()

    @property
    def per_s(self) -> float | None:
        """Records a second. None: the growth is not known yet."""
        if len(self._seen) < 2:
            return None
        (first_s, first), (last_s, last) = self._seen[0], self._seen[-1]
        grown = sum(end - first[number] for number, end in last.items() if number in first)
        return grown / max(last_s - first_s, 1e-3)


class ServiceAnswers:
    """The last answers, kept up to date while `watching` runs."""

    def __init__(self, pipeline: Pipeline, model: Model) -> None:
        self._pipeline = pipeline
        wiring = pipeline.wiring
        self._clock = wiring.adapters.clock
        self._models = {wiring.main.name: model, **wiring.adapters.models}
        self._answers: dict[str, bool | None] = dict.fromkeys(self._models)
        # How many requests had got an answer when the last question was over.
        self._heard: dict[str, int] = {}
        self._asked_at_s: dict[str, float] = {}
        self._answers_since_s: dict[str, float] = {}
        self._ends: Mapping[Where, int] = {}
        self.growth = Growth()
        # By how much our clock is ahead of the store's; None: not known.
        self.clock_ahead_s: float | None = None
        self._known_s = self._clock.now()
        self._away_since_s: float | None = None
        # The client's error if Kafka did not answer the last question.
        self.why_kafka: str | None = None

    @property
    def lags(self) -> Mapping[Where, int]:
        """For each partition, how many of the records before its end are not committed. The end is
        the one that Kafka told last. A partition is left out until Kafka has told its end.
        """
        lanes, ends = self._pipeline.wiring.lanes, self._ends
        return {
            where: max(0, ends[where] - lane.account.committed.next_offset)
            for where, lane in lanes.items()
            if where in ends
        }

    @property
    def read_partitions(self) -> Set[Where]:
        """The partitions that were read to the end that Kafka told last; none if Kafka has not told
        it for a while.
        """
        if self.lag_age_s > LAG_EVERY_S + ANSWER_S:
            return frozenset()
        lanes = self._pipeline.wiring.lanes.items()
        return {
            where
            for where, lane in lanes
            if not lane.stopped and lane.read_next >= self._ends.get(where, lane.read_next + 1)
        }

    @property
    def answers(self) -> Mapping[str, bool | None]:
        """For each model's name, whether that model answers; None if this is not known yet. An
        answer to rows tells as much as one to a question.
        """
        tracks = self._pipeline.wiring.tracks.values()
        heard = {track.name: track.calls.health.heard for track in tracks}
        return {
            name: answers if answers is not False else heard.get(name, 0) > self._heard.get(name, 0)
            for name, answers in self._answers.items()
        }

    def asked_s(self, model: str) -> float | None:
        """How long ago the last finished question to the model was asked. A question is finished
        when it has been answered or has failed.
        """
        at_s = self._asked_at_s.get(model)
        return None if at_s is None else round(self._clock.now() - at_s, 1)

    def answers_for_s(self, model: str) -> float | None:
        """For how long the model has answered all questions; None if not the last one."""
        since_s = self._answers_since_s.get(model)
        return None if since_s is None else round(self._clock.now() - since_s, 1)

    @property
    def lag_age_s(self) -> float:
        """How old Kafka's last answer is. Before the first answer: for how long we have waited for
        it.
        """
        return self._clock.now() - self._known_s

    @property
    def kafka_away_s(self) -> float | None:
        """For how long Kafka has not answered; None while it answers."""
        return None if self._away_since_s is None else self._clock.now() - self._away_since_s

    @property
    def doubted_s(self) -> float:
        """How long a model or a store has sent nothing, if it usually does sooner; 0: none is
        doubted.
        """
        wiring, now_s = self._pipeline.wiring, self._clock.now()
        calls = (track.calls for track in wiring.tracks.values())
        silent_s = [one.limiter.silent_s(now_s) for one in calls if _is_doubted(one, now_s)]
        for reads in wiring.reads.values():
            usual_s = SILENT_TIMES * (reads.limiter.usual_s or 0.0)
            read_s = reads.limiter.silent_s(now_s)
            silent_s += [read_s] if read_s >= max(DOUBTED_S, usual_s) else []
        return max(silent_s, default=0.0)

    def watching(self) -> AbstractAsyncContextManager[None]:
        """Ask Kafka, the stores and the models while the body runs."""
        models = (self._ask_model_forever(name, model) for name, model in self._models.items())
        stores = (self._watch_store_forever(store) for store in self._pipeline.wiring.reads)
        return meanwhile(self._ask_kafka_forever(), self._ask_for_time_forever(), *models, *stores)

    async def _ask_kafka_forever(self) -> None:
        while True:
            # A member without a partition has no lag.
            if self._pipeline.wiring.lanes:
                await self._ask_kafka()
            else:
                self._known_s = self._clock.now()
            await asyncio.sleep(LAG_EVERY_S)

    async def _ask_kafka(self) -> None:
        asked_s = self._clock.now()
        try:
            async with asyncio.timeout(ANSWER_S):
                self._ends = await self._pipeline.wiring.adapters.source.end_offsets()
                self.growth.add(self._clock.now(), self._ends)
        # Every exception is caught, because a worker must not end just because a page cannot show
        # the lag.
        except Exception as error:
            self.why_kafka = words_of(error)
            if self._away_since_s is None:
                self._away_since_s = asked_s
                log.warning("Kafka does not tell the end of the input: %s", self.why_kafka)
            return
        self._known_s, self._away_since_s = asked_s, None

    async def _ask_model_forever(self, name: str, model: Model) -> None:
        # Until the worker has joined its group, the worker's own start asks the model. More
        # questions would only burden a server that is starting.
        await self._pipeline.joined.wait()
        tracks = {track.name: track for track in self._pipeline.wiring.tracks.values()}
        calls = tracks[name].calls if name in tracks else None
        within_s = ANSWER_S
        while True:
            asked_s = self._clock.now()
            heard = 0 if calls is None else calls.health.heard
            answers = reply = await _answers(model, within_s)
            within_s = ANSWER_S
            if answers is None and calls is not None:
                # Before its first answer here, the model has answered the worker's start.
                was_away = self._answers[name] is False
                may_wait = not was_away and _may_wait(calls, self._clock.now())
                # The next question gets the rest of the time in which a call may be silent.
                left_s = _most_silence_s(calls) - calls.limiter.silent_s(self._clock.now())
                within_s = min(ANSWER_S, max(LOOK_S, left_s))
                answers = may_wait or calls.health.heard > heard
            self._answers[name] = answers = bool(answers)
            self._heard[name] = 0 if calls is None else calls.health.heard
            self._asked_at_s[name] = asked_s
            if answers:
                self._answers_since_s.setdefault(name, asked_s)
            else:
                self._answers_since_s.pop(name, None)
            if calls is not None:
                if reply or not answers:  # otherwise the question only waits behind calls
                    calls.health.questioned(answers=answers)
                _tell_silence(calls, self._clock.now(), answers=answers)
            until_s = self._clock.now() + (MODEL_EVERY_S if answers else SILENT_MODEL_EVERY_S)
            while (left_s := until_s - self._clock.now()) > 0:
                await asyncio.sleep(min(LOOK_S, left_s))
                if calls is not None and (
                    calls.health.is_silent or _is_doubted(calls, self._clock.now())
                ):
                    break

    async def _ask_for_time_forever(self) -> None:
        ask = self._pipeline.wiring.adapters.store_time
        while ask is not None:
            asked_s = self._clock.wall_ms() / 1000
            theirs = await ask()
            answered_s = self._clock.wall_ms() / 1000
            self.clock_ahead_s = (
                None
                if theirs is None
                else round(ahead_s(asked_s, answered_s, theirs.timestamp()), 1)
            )
            await asyncio.sleep(CLOCK_EVERY_S)

    async def _watch_store_forever(self, store: str) -> None:
        wiring = self._pipeline.wiring
        reads, outage = wiring.reads[store], wiring.store_outages[store]
        asked_s = -math.inf
        while True:
            await asyncio.sleep(LOOK_S)
            now_s = self._clock.now()
            silent_s = reads.limiter.silent_s(now_s)
            waits = silent_s >= DOUBTED_S
            is_idle = reads.limiter.idle_s(now_s) >= IDLE_S
            is_away = outage.is_silent
            due_s = 0.0 if is_away else IDLE_S if is_idle else SILENT_S
            if reads.bucket is None or not (waits or is_idle or is_away) or now_s - asked_s < due_s:
                continue
            asked_s = now_s
            location = Location(reads.bucket, PROBE_KEY, store=store)
            usual_s = SILENT_TIMES * (reads.limiter.usual_s or 0.0)
            # Reads that have waited already are part of the silence.
            left_s = max(SILENT_S - silent_s, DOUBTED_S) if waits and not is_away else SILENT_S
            error = await _silence(wiring.adapters.objects, location, max(left_s, usual_s))
            now_s = self._clock.now()
            waited_s, silent_s = now_s - asked_s, reads.limiter.silent_s(now_s)
            if error is None:
                if outage.is_silent:
                    outage.answered()
            # Otherwise a read was answered while the question waited.
            elif max(silent_s, reads.limiter.idle_s(now_s)) >= waited_s:
                outage.unreachable(error, max(silent_s, waited_s))


def _most_silence_s(calls: ModelCalls) -> float:
    """A model that sends nothing for longer is away. As long as no call has been answered, only
    `model.timeout_ms` tells that a call takes too long.
    """
    slowest_s = calls.slowest_s
    return math.inf if slowest_s is None else max(SILENT_S, SILENT_TIMES * slowest_s)


def _is_doubted(calls: ModelCalls, now_s: float) -> bool:
    slowest_s = math.inf if calls.slowest_s is None else calls.slowest_s
    return calls.limiter.silent_s(now_s) >= max(DOUBTED_S, slowest_s)


def _may_wait(calls: ModelCalls, now_s: float) -> bool:
    """May a question have no answer because the model works on calls that came before it?"""
    if calls.health.is_gone or not calls.limiter.in_flight:
        return False
    return calls.limiter.silent_s(now_s) < _most_silence_s(calls)


def _tell_silence(calls: ModelCalls, now_s: float, *, answers: bool) -> None:
    """Tell the health of the model's server if its calls are not answered."""
    silent_s, most_s = calls.limiter.silent_s(now_s), _most_silence_s(calls)
    if answers and calls.slowest_of < AT_WORK_CALLS:
        most_s = max(most_s, AT_WORK_TIMES * (calls.limiter.answer_s or 0.0))
    if silent_s >= most_s:
        calls.health.fell_silent(silent_s, answers_questions=answers)


async def _silence(objects: Objects, location: Location, within_s: float) -> Transient | None:
    """None if the store answers, whatever it says."""
    try:
        async with asyncio.timeout(within_s):
            body = await objects.open(location)
            await body.aclose()
    except Unreachable as error:
        return error
    except TimeoutError:
        return NoAnswer("no byte of an answer came")
    # Every other error is the store's answer, or says nothing about it.
    except Exception as error:
        log.debug("the store was asked whether it answers: %r", error)
    return None


async def _answers(model: Model, within_s: float) -> bool | None:
    """None: no answer came in time."""
    try:
        async with asyncio.timeout(within_s):
            return await model.ready()
    except TimeoutError:
        return None
    except Exception as error:
        log.debug("the model was asked whether it answers: %r", error)
        return False
