"""Where partitions end, as it is when asked.

Owner: the rekeyer.
"""

from collections.abc import Iterable, Mapping

from aiokafka import AIOKafkaConsumer, TopicPartition

from penstock import config
from penstock.adapters.kafka.client import CLOSE_S, answered_within, close, connection, start
from penstock.ports import Where


class Ends:
    """Asks for the ends of partitions, on a connection of its own: on the reader's the broker
    answers only after the read, for which it may wait half a second.
    """

    def __init__(self, settings: config.Kafka) -> None:
        self._settings = settings
        self._consumer = AIOKafkaConsumer(
            **connection(settings), enable_auto_commit=False, isolation_level=settings.isolation
        )

    async def start(self) -> None:
        await start(self._consumer, self._settings, "the start of the consumer")

    async def ask(self, wanted: Iterable[Where], within_s: float) -> Mapping[Where, int]:
        """The offset after the last record of each. Raises `Transient`."""
        parts = [TopicPartition(*where) for where in wanted]
        async with answered_within("a question about the ends of partitions", within_s):
            found = await self._consumer.end_offsets(parts)
        return {Where(*part): end for part, end in found.items()}

    async def stop(self) -> None:
        await close(self._consumer, CLOSE_S, "the end of the consumer")
