"""Services in virtual time, and a run of requests through a limiter to one of them."""

import heapq
import math
from bisect import insort
from collections.abc import Callable
from dataclasses import dataclass
from itertools import count
from random import Random
from typing import Protocol

from penstock.core.health.limiter import InFlight, Limiter

# The times of an object store's answers are lognormal with about this sigma.
SIGMA = 0.4


class Service(Protocol):
    def ask(self, now_s: float, in_flight: int, random: Random) -> tuple[bool, float]:
        """Does it answer, or refuse? And after how many seconds?"""


@dataclass
class Steady:
    """Answers as fast as ever, however many requests there are. `later_s`: from `at_s` on."""

    answer_s: float
    later_s: float = 0.0
    at_s: float = math.inf

    def ask(self, now_s: float, in_flight: int, random: Random) -> tuple[bool, float]:
        took_s = self.answer_s if now_s < self.at_s else self.later_s
        return True, took_s * random.lognormvariate(0, SIGMA)


@dataclass
class Quadratic:
    """Its time grows with the square of what is in flight, and is doubled at `best`."""

    answer_s: float
    best: int

    def ask(self, now_s: float, in_flight: int, random: Random) -> tuple[bool, float]:
        crowd = 1 + (in_flight / self.best) ** 2
        return True, self.answer_s * crowd * random.lognormvariate(0, SIGMA)


@dataclass
class Rated:
    """Refuses what is more than so many requests a second."""

    per_s: float
    answer_s: float
    tokens: float = 10.0
    last_s: float = 0.0

    def ask(self, now_s: float, in_flight: int, random: Random) -> tuple[bool, float]:
        self.tokens = min(10.0, self.tokens + (now_s - self.last_s) * self.per_s)
        self.last_s = now_s
        if self.tokens < 1:
            return False, self.answer_s / 3
        self.tokens -= 1
        return True, self.answer_s * random.lognormvariate(0, SIGMA)


@dataclass
class Counting:
    """Refuses what is more than so many requests within a second of the clock."""

    per_s: int
    answer_s: float
    second: int = -1
    asked: int = 0

    def ask(self, now_s: float, in_flight: int, random: Random) -> tuple[bool, float]:
        if int(now_s) != self.second:
            self.second, self.asked = int(now_s), 0
        self.asked += 1
        if self.asked > self.per_s:
            return False, self.answer_s / 3
        return True, self.answer_s * random.lognormvariate(0, SIGMA)


@dataclass
class Crowded:
    """Refuses a request if there are more than `most` with it."""

    most: int
    answer_s: float

    def ask(self, now_s: float, in_flight: int, random: Random) -> tuple[bool, float]:
        if in_flight > self.most:
            return False, self.answer_s / 3
        return True, self.answer_s * random.lognormvariate(0, SIGMA)


class Queueing:
    """Has so many places, before which requests queue. `lost_at_s`: then half of them are lost, or
    all but `left`.
    """

    def __init__(
        self, places: int, answer_s: float, lost_at_s: float = math.inf, left: int | None = None
    ) -> None:
        self.free_s = [0.0] * places
        self.answer_s = answer_s
        self.lost_at_s = lost_at_s
        self.left = places // 2 if left is None else left

    def ask(self, now_s: float, in_flight: int, random: Random) -> tuple[bool, float]:
        if now_s >= self.lost_at_s:
            self.lost_at_s = math.inf
            del self.free_s[self.left :]
        begins_s = max(now_s, self.free_s.pop(0))
        ends_s = begins_s + self.answer_s * random.lognormvariate(0, SIGMA)
        insort(self.free_s, ends_s)
        return True, ends_s - now_s


@dataclass
class Run:
    """What happened from `from_s` on. `waits`: how many requests wait at the end."""

    answered: int = 0
    refused: int = 0
    in_flight_s: float = 0.0
    waits: int = 0
    longest_wait_s: float = 0.0


def run(
    service: Service,
    limiter: Limiter,
    end_s: float,
    *,
    per_s: float | None = None,
    from_s: float = 0.0,
    each: Callable[[float], None] | None = None,
) -> Run:
    """Requests of a backlog, or so many `per_s`, until `end_s`."""
    random, number, seen = Random(1), count(), Run()
    ends: list[tuple[float, int, InFlight, bool]] = []
    arrived: list[float] = []
    now_s, next_s = 0.0, math.inf if per_s is None else 0.0
    while now_s < end_s:
        while limiter.has_room and (per_s is None or arrived):
            if arrived:
                waited_s = now_s - arrived.pop(0)
                seen.longest_wait_s = max(seen.longest_wait_s, waited_s * (now_s >= from_s))
            request = limiter.begin(now_s)
            answers, took_s = service.ask(now_s, limiter.in_flight, random)
            heapq.heappush(ends, (now_s + took_s, next(number), request, answers))
        then_s = min(ends[0][0] if ends else math.inf, next_s)
        seen.in_flight_s += limiter.in_flight * max(0.0, then_s - max(now_s, from_s))
        now_s = then_s
        if now_s == next_s and per_s is not None:
            arrived.append(now_s)
            next_s = now_s + random.expovariate(per_s)
            continue
        _, _, request, answers = heapq.heappop(ends)
        if answers:
            limiter.answered(request, now_s)
        else:
            limiter.failed(request, now_s, is_full=True)
        if now_s >= from_s:
            seen.answered += answers
            seen.refused += not answers
        if each is not None:
            each(now_s)
    seen.waits = len(arrived)
    return seen
