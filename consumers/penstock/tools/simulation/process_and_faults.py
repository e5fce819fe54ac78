"""What keeps a request from its answer: the worker's process, paused or dead, and the faults of the
services.

Rule: a service awaits `Process.gate` before each request and answer, where a paused worker waits
until it goes on, a dead one for ever; then the `FaultInjector` decides. Everything is drawn from
one seeded source. After `stop` nothing fails and nothing is delayed.
"""

import asyncio
from dataclasses import dataclass
from random import Random


class Process:
    """`is_cut`: True if the process is dead and its connections are cut, so that everything is lost
    that has not arrived yet. `going`: an event that is set unless the process is paused.
    """

    def __init__(self) -> None:
        self.alive = True
        self.is_cut = False
        self.paused_s = 0.0
        self._paused_at_s = 0.0
        self.going = asyncio.Event()
        self.going.set()

    async def gate(self) -> None:
        """Return as soon as the process runs. If the process is dead, never return."""
        while not (self.alive and self.going.is_set()):
            if not self.alive:
                await asyncio.get_running_loop().create_future()
            await self.going.wait()

    def pause(self) -> None:
        if self.going.is_set():
            self._paused_at_s = asyncio.get_running_loop().time()
            self.going.clear()

    def go_on(self) -> None:
        if not self.going.is_set():
            self.paused_s += asyncio.get_running_loop().time() - self._paused_at_s
            self.going.set()

    def die(self, *, is_cut: bool) -> None:
        """`is_cut`: True if the connections are cut, so that everything is lost that has not
        arrived yet.
        """
        self.alive, self.is_cut = False, is_cut
        self.going.set()


@dataclass(frozen=True, slots=True)
class Faults:
    """The chances of each fault per request. `delay_s`: the longest ordinary delay; one answer in
    twenty takes ten times as long. `crowd_s`: how much longer a read takes with the square of the
    reads in flight. `slow_read`: the chance that a read takes `SLOW_S`. `store_s`, `model_s`: how
    far away the service is; times of answers are lognormal.
    """

    store_away: float = 0.0
    slow_read: float = 0.0
    store_ill: float = 0.0
    store_full: float = 0.0
    body_breaks: float = 0.0
    model_away: float = 0.0
    model_ill: float = 0.0
    model_hangs_up: float = 0.0
    answer_lost: float = 0.0
    worker_dies: float = 0.0
    commit_fails: float = 0.0
    delivery_fails: float = 0.0
    delay_s: float = 0.0
    crowd_s: float = 0.0
    store_s: float = 0.0
    model_s: float = 0.0


NO_FAULTS = Faults()
# How long a slow read takes. It is longer than most worlds last without it, so that whatever waits
# for it by mistake is seen.
SLOW_S = 5.0

# The times of S3's answers are lognormal with about this sigma.
SIGMA = 0.4

# If the model's process dies each time that it gets certain rows, the pipeline rejects these rows.
# So two deaths by chance must not meet the same rows: after a death by chance, no other follows for
# this long.
BETWEEN_DEATHS_S = 60.0


def drawn_faults(random: Random) -> Faults:
    """A mix of faults. In one seed of four nothing fails."""
    if random.random() < 0.25:
        return Faults(delay_s=random.choice((0.0, 0.02, 0.1)), crowd_s=random.choice((0.0, 0.001)))

    def chance(most: float) -> float:
        return random.choice((0.0, most / 4, most))

    return Faults(
        store_away=chance(0.2),
        store_ill=chance(0.2),
        store_full=chance(0.2),
        body_breaks=chance(0.05),
        model_away=chance(0.2),
        model_ill=chance(0.3),
        model_hangs_up=chance(0.2),
        answer_lost=chance(0.2),
        worker_dies=chance(0.1),
        commit_fails=chance(0.5),
        delivery_fails=chance(0.1),
        delay_s=random.choice((0.005, 0.05, 0.3)),
        crowd_s=random.choice((0.0, 0.001)),
    )


class FaultInjector:
    """Every service asks the injector before it answers."""

    def __init__(self, faults: Faults, random: Random) -> None:
        self.faults = faults
        self._random = random
        self._died_s = -BETWEEN_DEATHS_S

    @property
    def is_stopped(self) -> bool:
        return self.faults is NO_FAULTS

    def stop(self) -> None:
        self.faults = NO_FAULTS

    async def delay_read(self) -> None:
        """The delay of a read of the store."""
        if self.happens(self.faults.slow_read):
            await asyncio.sleep(SLOW_S)
        await self.delay(self.faults.store_s)

    def happens(self, chance: float) -> bool:
        return chance > 0 and self._random.random() < chance

    def worker_dies(self) -> bool:
        now_s = asyncio.get_running_loop().time()
        if now_s - self._died_s < BETWEEN_DEATHS_S or not self.happens(self.faults.worker_dies):
            return False
        self._died_s = now_s
        return True

    def delay_s(self) -> float:
        """The delay of an answer. It is often zero, because races happen within one turn of the
        loop.
        """
        most_s, drawn = self.faults.delay_s, self._random.random()
        if not most_s or drawn < 0.4:
            return 0.0
        return most_s * (10.0 if drawn > 0.95 else drawn)

    async def delay(self, far_s: float = 0.0) -> None:
        """`far_s`: the median of the times that such a service takes at its distance."""
        if far_s:
            far_s *= self._random.lognormvariate(0.0, SIGMA)
        await asyncio.sleep(far_s + self.delay_s())
