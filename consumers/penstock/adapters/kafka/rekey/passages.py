"""Transactions with records of the topic that is keyed by stream, and positions of its input.

Rule: the transactional id is the group's, so who begins fences all former members: they can write
nothing any more. Owner: the rekeyer.
"""

from collections.abc import Mapping

from penstock import config
from penstock.adapters.kafka.exactly_once.transactions import (
    KafkaTransactions,
    opened,
    transactional_producer,
)
from penstock.ports import Clock


class KafkaPassages:
    """`group` of the settings: the rekeyer's. `batch_bytes`: by topic, the largest batch."""

    def __init__(
        self, settings: config.Kafka, clock: Clock, batch_bytes: Mapping[str, int]
    ) -> None:
        self._settings = settings
        self._clock = clock
        self._batch_bytes = batch_bytes

    async def open(self) -> KafkaTransactions:
        group = self._settings.group
        producer = transactional_producer(self._settings, group)
        return await opened(KafkaTransactions(producer, group, self._clock, self._batch_bytes))
