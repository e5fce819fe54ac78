"""Output topics in memory, of which one refuses some records by their content."""

import asyncio
from collections.abc import Awaitable, Callable

from penstock.adapters.memory import MemorySink
from penstock.ports import Outgoing


class RefusingSink(MemorySink):
    """Asks for what is to be sent instead, as the adapter of Kafka does it."""

    def __init__(self, topic: str, refuses: Callable[[bytes], bool]) -> None:
        super().__init__(partitions=1)
        self._topic = topic
        self._refuses = refuses

    async def send(self, outgoing: Outgoing) -> Awaitable[None]:
        out = Outgoing(outgoing.topic, outgoing.partition, [], [])
        for index, (key, value) in enumerate(zip(outgoing.keys, outgoing.values, strict=True)):
            waiting = [value]
            while waiting:
                one = waiting.pop(0)
                if outgoing.topic == self._topic and self._refuses(one):
                    assert outgoing.instead is not None
                    instead = outgoing.instead(index, one, "no such content")
                    assert instead is not None
                    waiting[:0] = instead
                else:
                    out.add(key, [one], None)
        await (await super().send(out))
        for more in outgoing.then:
            await (await self.send(more))
        return asyncio.sleep(0)
