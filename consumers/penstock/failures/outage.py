"""A service that does not answer: logs its outage, and lets a starting worker wait for it.

Rule: all tasks that ask one service share one `Outage`, and tell it after each request whether it
answered. An outage that lasts longer than `patience_s` ends the process.

A starting worker takes no partitions before store and model have answered, because the present
owner may be able to work. Then the patience is `limits.start_ms`, and an error that waiting cannot
cure ends the start at once.
"""

import asyncio
import logging
import math
import random
from collections.abc import Awaitable, Callable, Iterable, Mapping
from contextlib import suppress
from typing import Final
from urllib.parse import urlsplit

from penstock.core.health.retries import Backoff
from penstock.errors import (
    EXIT_UNREACHABLE,
    Fatal,
    NoAnswer,
    Poison,
    Transient,
    Unreachable,
    usage,
)
from penstock.ports import PROBE, Clock, Objects

log = logging.getLogger(__name__)

# The least time between two log lines about a service that answers but fails.
QUIET_S: Final = 60.0
# If no task has reported a failure of a failing service for this long, the service counts as
# healthy again.
FAILS_S: Final = 120.0
# The status page finds Kafka's outage by this name.
KAFKA: Final = "Kafka broker"
# The provider of the tokens by which Kafka knows us.
TOKENS: Final = "token provider"
# The name of each store begins with the first of these, and that of each model server with the
# second.
STORE: Final = "object store"
MODEL: Final = "model server"


class Outage:
    """`patience_s`: how long an outage may last. It is None in a running worker: the worker keeps
    its partitions, and the outage may last without end.
    """

    def __init__(self, service: str, clock: Clock, patience_s: float | None) -> None:
        self.service = service
        self._clock = clock
        self._patience_s = patience_s
        self._since_s: float | None = None
        self._quiet_until_s = self._worse_quiet_until_s = -math.inf
        # While the service fails: the time at which it counts as healthy again if no other failure
        # is reported. While it does not answer at all: infinite.
        self._until_s = math.inf
        # What is wrong with the service, without what to check, which the status page says by
        # itself; None while it answers.
        self.why: str | None = None

    @property
    def is_endless(self) -> bool:
        return self._patience_s is None

    @property
    def away_s(self) -> float | None:
        """How long the service has not answered; None while it answers."""
        now_s = self._clock.now()
        if self._since_s is None or now_s > self._until_s:
            return None
        return now_s - self._since_s

    @property
    def is_silent(self) -> bool:
        """Does the service not answer at all? One that fails at its work does."""
        return self.away_s is not None and self._until_s == math.inf

    def unreachable(self, error: Transient, silent_s: float = 0.0) -> None:
        """The service did not answer. `silent_s`: for how long it has not. Raises `Fatal` when the
        outage has lasted too long.
        """
        if self.away_s is None:
            self._since_s = None  # an earlier failure has ended by itself
        now_s = self._clock.now()
        # A log line is due at the beginning of an outage. Another one is due if the service was
        # failing, but answered until now. A service may often change between failing and silence,
        # so lines of the second kind are at least `QUIET_S` apart.
        is_worse = self._until_s < math.inf and now_s >= self._worse_quiet_until_s
        is_news = self._since_s is None or is_worse
        if is_news:
            self._worse_quiet_until_s = now_s + QUIET_S
        self._until_s = math.inf
        since_s = now_s - silent_s
        self._lasts("does not answer", "did not answer", str(error), since_s, is_news=is_news)
        if isinstance(error, Unreachable):
            self.why = error.found

    def fails(self, why: str, silent_s: float = 0.0, *, did_work: bool = True) -> None:
        """The service answers, but does not do its work. Raises `Fatal` as `unreachable` does. If
        no further failure is reported, the service counts as healthy again after a while: it may
        have failed at a single row, which was then rejected. `did_work`: False if it has never done
        its work, so that waiting is of no use.
        """
        if self._patience_s is not None and not did_work:
            raise Fatal(f"the {self.service} fails: {why}", exit_code=EXIT_UNREACHABLE)
        now_s = self._clock.now()
        if self.away_s is None:
            self._since_s = now_s - silent_s
        self._until_s = now_s + FAILS_S
        is_news = now_s >= self._quiet_until_s
        if is_news:
            self._quiet_until_s = now_s + QUIET_S
        self._lasts("fails", "failed", why, now_s, is_news=is_news)

    def _lasts(self, verb: str, past: str, why: str, since_s: float, *, is_news: bool) -> None:
        now_s, self.why = self._clock.now(), why
        if is_news:
            how_long = "" if self._patience_s is None else f" up to {self._patience_s:g} s"
            log.warning("the %s %s, waiting%s: %s", self.service, verb, how_long, why)
        if self._since_s is None:
            self._since_s = since_s
        elif self._patience_s is not None and now_s - self._since_s >= self._patience_s:
            raise Fatal(
                f"the {self.service} {past} for {self._patience_s:g} s: {why}",
                exit_code=EXIT_UNREACHABLE,
            )

    def answered(self) -> None:
        """The service answered, whatever the answer was."""
        away_s = self.away_s
        self._since_s = self.why = None
        if away_s is not None:
            log.warning("the %s answers again after %.1f s", self.service, away_s)

    def forget(self) -> None:
        """Nobody waits for the service any more: whether it answers is not known."""
        self._since_s = self.why = None


Ask = Callable[[], Awaitable[object]]
# If a starting worker asks several services, it waits this long for those that are silent. A
# running server answers within milliseconds, and a server that is loading its models within
# seconds.
CHANCE_S = 5.0
RETRY = Backoff(first_s=0.2, most_s=3.0)
# S3's codes for a wrong key or secret. No other refusal ends the start, because the rights may
# differ from object to object.
WRONG_KEY = ("InvalidAccessKeyId", "SignatureDoesNotMatch")


async def until_answered(
    service: str, ask: Ask, clock: Clock, patience_s: float, shown: list[Outage] | None = None
) -> None:
    """Call `ask` again and again until it succeeds. `shown`: has the outage meanwhile, for the
    status. Raises `Fatal` if it has raised `Transient` for `patience_s`.
    """
    outage = Outage(service, clock, patience_s)
    if shown is not None:
        shown.append(outage)
    loop, attempt = asyncio.get_running_loop(), 0
    try:
        while True:
            attempt += 1
            silence = loop.call_later(CHANCE_S, _is_silent, outage)
            try:
                await ask()
            except Transient as error:
                outage.unreachable(error)
            else:
                outage.answered()
                return
            finally:
                silence.cancel()
            await asyncio.sleep(RETRY.delay_s(attempt, 0.0, random.random()) or 0.0)
    finally:
        if shown is not None:
            shown.remove(outage)


def _is_silent(outage: Outage) -> None:
    """The service was asked, and has sent nothing, however long the client itself waits."""
    with suppress(Fatal):  # which the end of the question raises
        outage.unreachable(NoAnswer("no byte of an answer came"), CHANCE_S)


def longest(outages: Iterable[Outage]) -> dict[str, Outage]:
    """For each service, its outage that lasts longest: a start has one of its own."""
    services: dict[str, Outage] = {}
    for outage in outages:
        before = services.get(outage.service)
        if before is None or (before.away_s or 0.0) < (outage.away_s or 0.0):
            services[outage.service] = outage
    return services


async def until_one_answered(
    services: Mapping[str, Ask],
    clock: Clock,
    patience_s: float,
    shown: list[Outage] | None = None,
) -> None:
    """Return when all services have answered. After `CHANCE_S` one answering service is enough,
    because the worker can then work with that service. Raises `Fatal` if none answers within
    `patience_s`.
    """
    async with asyncio.TaskGroup() as tasks:
        asking = {
            tasks.create_task(until_answered(service, ask, clock, patience_s, shown)): service
            for service, ask in services.items()
        }
        answered, silent = await asyncio.wait(asking, timeout=min(CHANCE_S, patience_s / 2))
        if not answered:
            _, silent = await asyncio.wait(silent, return_when=asyncio.FIRST_COMPLETED)
        for task in silent:
            log.warning("the %s does not answer; going on without it", asking[task])
            task.cancel()


async def ask_store(objects: Objects, endpoint_url: str | None) -> None:
    """Return if a store answers at `endpoint_url` and knows our key; otherwise raise an error. If
    `endpoint_url` is not an http or https URL, no store is asked.
    """
    if urlsplit(endpoint_url or "").scheme not in ("http", "https"):
        return
    try:
        body = await objects.open(PROBE)
    except Poison as error:
        if any(word in str(error) for word in WRONG_KEY):
            raise usage(str(error)) from None
        return
    await body.aclose()
