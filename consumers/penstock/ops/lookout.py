"""Asks Kafka how long the input is and every model whether it answers, so that no page waits for
them.

Rule: pages show the last answers and their age. Every question has a deadline, and the next one
follows after a pause, however often pages are asked. A question that fails changes nothing else.
Owner: the health page.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Mapping
from contextlib import AbstractAsyncContextManager

from penstock.pipeline.life import Pipeline
from penstock.ports import Model
from penstock.process.stopping import meanwhile

log = logging.getLogger(__name__)

# An open page asks every two seconds; one small request to a broker for each.
LAG_EVERY_S = 2.0
# Each question to a model is a request for it: seldom while it answers, often until it does.
MODEL_EVERY_S = 5.0
SILENT_MODEL_EVERY_S = 1.0
# A busy model answers a probe only after the batches before it.
ANSWER_S = 5.0
# Records a second are over this time.
GROWTH_OVER_S = 10.0


class Growth:
    """`add` every answer."""

    def __init__(self) -> None:
        self._seen: deque[tuple[float, Mapping[int, int]]] = deque()

    def add(self, now_s: float, ends: Mapping[int, int]) -> None:
        self._seen.append((now_s, dict(ends)))
        while len(self._seen) > 2 and self._seen[1][0] <= now_s - GROWTH_OVER_S:
            self._seen.popleft()

    @property
    def per_s(self) -> float | None:
        """Records a second; None: not known yet."""
        if len(self._seen) < 2:
            return None
        (first_s, first), (last_s, last) = self._seen[0], self._seen[-1]
        grown = sum(end - first[number] for number, end in last.items() if number in first)
        return grown / max(last_s - first_s, 1e-3)


class Lookout:
    """The last answers, while `watching`. `answers`: by model; None: not known yet."""

    def __init__(self, pipeline: Pipeline, model: Model) -> None:
        self._pipeline = pipeline
        wiring = pipeline.wiring
        self._clock = wiring.adapters.clock
        self._models = {wiring.main.name: model, **wiring.adapters.models}
        self.answers: dict[str, bool | None] = dict.fromkeys(self._models)
        self._asked_at_s: dict[str, float] = {}
        self._ends: Mapping[int, int] = {}
        self.growth = Growth()
        self._known_s = self._clock.now()
        self._away_since_s: float | None = None
        # What Kafka's client said when it last got no answer.
        self.why_kafka: str | None = None

    @property
    def lags(self) -> Mapping[int, int]:
        """How many records are not committed, by partition, by the ends that Kafka told last. A
        partition whose end it has not told yet is left out.
        """
        lanes, ends = self._pipeline.wiring.lanes, self._ends
        return {
            number: max(0, ends[number] - lane.committed.next_offset)
            for number, lane in lanes.items()
            if number in ends
        }

    def asked_s(self, model: str) -> float | None:
        """How long ago the question was asked that the model answered last, or failed to."""
        at_s = self._asked_at_s.get(model)
        return None if at_s is None else round(self._clock.now() - at_s, 1)

    @property
    def lag_age_s(self) -> float:
        """How old the answer is; without any, how long we have waited for it."""
        return self._clock.now() - self._known_s

    @property
    def kafka_away_s(self) -> float | None:
        """How long Kafka has not answered; None while it answers."""
        return None if self._away_since_s is None else self._clock.now() - self._away_since_s

    def watching(self) -> AbstractAsyncContextManager[None]:
        """Ask while the body runs."""
        models = (self._ask_model_forever(name, model) for name, model in self._models.items())
        return meanwhile(self._ask_kafka_forever(), *models)

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
        # Whatever it is: a worker must not end because a page has no lag to show.
        except Exception as error:
            self.why_kafka = f"{error}" or type(error).__name__
            if self._away_since_s is None:
                self._away_since_s = asked_s
                log.warning("Kafka does not tell the end of the input: %r", error)
            return
        self._known_s, self._away_since_s = asked_s, None

    async def _ask_model_forever(self, name: str, model: Model) -> None:
        # Until then the start asks it; more questions would only burden a server that comes up.
        await self._pipeline.joined.wait()
        while True:
            asked_s = self._clock.now()
            self.answers[name] = answers = await _answers(model)
            self._asked_at_s[name] = asked_s
            await asyncio.sleep(MODEL_EVERY_S if answers else SILENT_MODEL_EVERY_S)


async def _answers(model: Model) -> bool:
    try:
        async with asyncio.timeout(ANSWER_S):
            return await model.ready()
    except Exception as error:
        log.debug("the model was asked whether it answers: %r", error)
        return False
