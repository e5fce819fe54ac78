"""The start of a worker: wait until store and model answer.

Rule: a worker takes no partitions before store and model have answered, because the worker that has
the partitions now may be able to work. The wait for a service lasts at most `limits.start_ms`, with
one log line when it begins and one when it ends. An error that waiting cannot cure ends the start
at once. Owner: the application.
"""

import asyncio
import logging
import random
from collections.abc import Awaitable, Callable, Mapping, Sequence
from urllib.parse import urlsplit

from penstock.calls.outage import Outage
from penstock.core.health.retry_and_failover import Backoff
from penstock.core.rows.payload import Payload
from penstock.errors import Poison, Transient, Unreachable, usage
from penstock.ports import Answers, Clock, Location, Objects

log = logging.getLogger(__name__)

Ask = Callable[[], Awaitable[object]]
Predict = Callable[[Sequence[Payload]], Awaitable[Answers]]
# If several services are asked, the start waits this long for those that are silent. A running
# server answers within milliseconds, a server that is loading its models within seconds.
CHANCE_S = 5.0
RETRY = Backoff(first_s=0.2, most_s=3.0)
# An empty batch is answered within milliseconds, unless the server is busy loading the model.
MODEL_S = 5.0
# Any answer about this object shows that the store is there. The key explains itself, because
# errors quote it.
PROBE = Location("penstock", "probe-that-need-not-exist")
# S3's codes for a wrong key or secret. Other refusals do not count, because rights may differ by
# object.
WRONG_KEY = ("InvalidAccessKeyId", "SignatureDoesNotMatch")


async def until_answered(service: str, ask: Ask, clock: Clock, patience_s: float) -> None:
    """Retry `ask` until it succeeds. Raises `Fatal` after `patience_s` of `Transient` errors."""
    outage = Outage(service, clock, patience_s)
    attempt = 0
    while True:
        attempt += 1
        try:
            await ask()
        except Transient as error:
            outage.unreachable(error)
            await asyncio.sleep(RETRY.delay_s(attempt, 0.0, random.random()) or 0.0)
        else:
            outage.answered()
            return


async def until_one_answered(services: Mapping[str, Ask], clock: Clock, patience_s: float) -> None:
    """Return when all services have answered, or, after `CHANCE_S`, when at least one has: the
    worker can then serve the rows of that one. Raises `Fatal` if none answers within `patience_s`.
    """
    async with asyncio.TaskGroup() as tasks:
        asking = {
            tasks.create_task(until_answered(service, ask, clock, patience_s)): service
            for service, ask in services.items()
        }
        answered, silent = await asyncio.wait(asking, timeout=min(CHANCE_S, patience_s / 2))
        if not answered:
            _, silent = await asyncio.wait(silent, return_when=asyncio.FIRST_COMPLETED)
        for task in silent:
            log.warning("the %s does not answer; going on without it", asking[task])
            task.cancel()


async def ask_store(objects: Objects, endpoint_url: str | None) -> None:
    """Raises unless a store answers at `objects.endpoint_url` and knows our key. Without an http or
    https URL no store is asked.
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


async def ask_model(predict: Predict, canary: Sequence[Payload]) -> None:
    """Return if the model is there and answers the row of `model.canary`, if that is set. Raises
    `Transient` if the server is unavailable, `Fatal` for settings that waiting cannot cure.
    """
    try:
        async with asyncio.timeout(MODEL_S):
            answers = await predict(canary)
        complaint = next(iter(answers.errors.values()), None)
    except TimeoutError:
        raise Unreachable(f"no answer within {MODEL_S:.0f} s; check model.url") from None
    except Poison as error:
        complaint = str(error)
    if canary and complaint:
        raise usage(
            f"the model refuses the row of model.canary: {complaint}; give it a row that the "
            "model is known to take"
        )
