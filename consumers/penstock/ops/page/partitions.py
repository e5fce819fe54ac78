"""Every partition of the whole group with its owner, on any machine, as Kafka tells them.

Rule: Kafka is asked every few seconds, and only while somebody looks at the page. No page waits for
Kafka: each page shows Kafka's last answer and the age of that answer. A question that fails affects
nothing else. Owner: the page's server.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AbstractAsyncContextManager, nullcontext
from typing import Any, Final

from penstock import config
from penstock.process.stopping import meanwhile, stopped_after

log = logging.getLogger(__name__)

EVERY_S: Final = 5.0
ANSWER_S: Final = 10.0


class GroupPartitions:
    """`look` returns Kafka's last answer. While `watching` runs, a call of `look` has a second
    effect: Kafka is asked again in the background.
    """

    def __init__(self, kafka: config.Kafka | None) -> None:
        self._kafka = kafka
        self._wanted = asyncio.Event()
        self._partitions: list[dict[str, Any]] | None = None
        self._why: str | None = None
        self._at_s = 0.0

    def look(self) -> dict[str, Any] | None:
        """The group's partitions, or why Kafka told none. None: Kafka has not answered yet."""
        self._wanted.set()
        if self._partitions is None and self._why is None:
            return None
        return {
            "age_s": round(asyncio.get_running_loop().time() - self._at_s, 1),
            "why": self._why,
            "partitions": self._partitions or [],
        }

    def watching(self) -> AbstractAsyncContextManager[None]:
        return nullcontext() if self._kafka is None else meanwhile(self._ask_forever(self._kafka))

    async def _ask_forever(self, kafka: config.Kafka) -> None:
        await self._wanted.wait()
        # This import waits until somebody looks, because a supervisor imports little.
        from penstock.adapters.kafka.group.lag_and_owners import GroupView  # noqa: PLC0415

        group = GroupView(kafka)
        async with stopped_after(group.stop):
            while True:
                await self._wanted.wait()
                self._wanted.clear()
                await self._ask(group.partitions)
                await asyncio.sleep(EVERY_S)

    async def _ask(self, partitions: Callable[[], Awaitable[Sequence[Any]]]) -> None:
        try:
            async with asyncio.timeout(ANSWER_S):
                self._partitions = [one._asdict() for one in await partitions()]
        # Every exception is caught, because a worker must not end just because a page cannot show
        # the group.
        except Exception as error:
            self._why = f"{error}" or type(error).__name__
            log.debug("Kafka does not tell of the group: %r", error)
            return
        self._why, self._at_s = None, asyncio.get_running_loop().time()
