"""The start: services that start together find each other.

Rule: a worker takes no partitions before store and model answered, since the worker that has them
may be able to work. Each service is waited for with one line when that begins and one when it ends,
at most `limits.start_ms`; what no waiting mends ends the start at once. Owner: the application.
"""

import asyncio
import logging
import random
from collections.abc import Awaitable, Callable, Mapping, Sequence
from urllib.parse import urlsplit

from consumers.core.payload import Payload
from consumers.core.retry import Backoff
from consumers.errors import EXIT_USAGE, Fatal, Poison, Transient, Unreachable
from consumers.ports import Answers, Clock, Location, Objects
from consumers.services.outage import Outage

log = logging.getLogger(__name__)

Ask = Callable[[], Awaitable[None]]
Predict = Callable[[Sequence[Payload]], Awaitable[Answers]]
# A server that is there answers within milliseconds, one that loads its models within seconds.
CHANCE_S = 5.0
RETRY = Backoff(first_s=0.2, most_s=3.0)
# An empty batch is answered within milliseconds, unless the server is busy loading the model.
MODEL_S = 5.0
# Any answer about it is an answer; errors quote its name, so it says what it is.
PROBE = Location("penstock", "probe-that-need-not-exist")
# What S3 says of a key or a secret that is no one's; rights may differ from object to object.
WRONG_KEY = ("InvalidAccessKeyId", "SignatureDoesNotMatch")


async def until_answered(service: str, ask: Ask, clock: Clock, patience_s: float) -> None:
    """Returns when `ask` does. Raises `Fatal` when it has been `Transient` for too long."""
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
    """Returns when each did, or one did and the others had their chance: what waits for these need
    not keep a worker from all the rest. Raises `Fatal` when none of them answers for too long.
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
            log.warning("the %s does not answer; what waits for it waits", asking[task])
            task.cancel()


async def ask_store(objects: Objects, endpoint_url: str | None) -> None:
    """Does anybody answer at `objects.endpoint_url` and know our key? Others are not asked."""
    if urlsplit(endpoint_url or "").scheme not in ("http", "https"):
        return
    try:
        body = await objects.open(PROBE)
    except Poison as error:
        if any(word in str(error) for word in WRONG_KEY):
            raise Fatal(str(error), exit_code=EXIT_USAGE) from None
        return
    await body.aclose()


async def ask_model(predict: Predict, canary: Sequence[Payload]) -> None:
    """Is the model there, and does it take the canary row, if there is one? Raises `Transient` for
    a server that is away or ill, `Fatal` for settings that waiting cannot mend.
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
        raise Fatal(
            f"the model refuses the row of model.canary: {complaint}; give it a row that the "
            "model is known to take",
            exit_code=EXIT_USAGE,
        )
