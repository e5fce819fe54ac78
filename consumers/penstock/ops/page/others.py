"""What the whole group does, from Kafka alone: every partition with its owner, wherever that runs.

Rule: Kafka is asked only while somebody looks at a page, every few seconds, and no page waits for
it: pages tell the last answer and its age. A question that fails changes nothing else. Owner: the
page's server.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AbstractAsyncContextManager, nullcontext
from typing import Any, Final

from penstock import config
from penstock.process.stopping import meanwhile

log = logging.getLogger(__name__)

EVERY_S: Final = 5.0
ANSWER_S: Final = 10.0


class Others:
    """`look` tells the last answer, and has the next one asked for, while `watching`."""

    def __init__(self, kafka: config.Kafka | None) -> None:
        self._kafka = kafka
        self._wanted = asyncio.Event()
        self._partitions: list[dict[str, Any]] | None = None
        self._why: str | None = None
        self._at_s = 0.0

    def look(self) -> dict[str, Any] | None:
        """None: nothing is known."""
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
        # Loaded when somebody looks: a supervisor imports little.
        from penstock.adapters.kafka.group.lag import GroupView  # noqa: PLC0415

        group = GroupView(kafka)
        try:
            while True:
                await self._wanted.wait()
                self._wanted.clear()
                await self._ask(group.partitions)
                await asyncio.sleep(EVERY_S)
        finally:
            await group.stop()

    async def _ask(self, partitions: Callable[[], Awaitable[Sequence[Any]]]) -> None:
        try:
            async with asyncio.timeout(ANSWER_S):
                self._partitions = [one._asdict() for one in await partitions()]
        # Whatever it is: a worker must not end because a page cannot show its group.
        except Exception as error:
            self._why = f"{error}" or type(error).__name__
            log.debug("Kafka does not tell of the group: %r", error)
            return
        self._why, self._at_s = None, asyncio.get_running_loop().time()
