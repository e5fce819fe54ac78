"""Transactions with records of the topic that is keyed by stream, and positions of its input.

Rule: the transactional ids are the group's, so who begins fences all former members: they can write
nothing any more. There are two, used by turns, as the broker writes the markers of a transaction
after it has answered its end, and refuses that producer's next one until then. They are opened, and
used first, in the same order by everybody: so of two members that open them at once only one gets
past its first transaction. Owner: the rekeyer.
"""

import asyncio
from collections.abc import Mapping, Sequence
from contextlib import AsyncExitStack

from penstock import config
from penstock.adapters.kafka.exactly_once.transactions import (
    KafkaTransactions,
    opened,
    transactional_producer,
)
from penstock.ports import Clock, Commit, Outgoing, Where


class KafkaPassages:
    """`group` of the settings: the rekeyer's. `batch_bytes`: by topic, the largest batch."""

    def __init__(
        self, settings: config.Kafka, clock: Clock, batch_bytes: Mapping[str, int]
    ) -> None:
        self._settings = settings
        self._clock = clock
        self._batch_bytes = batch_bytes

    async def open(self) -> "KafkaPassage":
        group = self._settings.group
        async with AsyncExitStack() as failing:
            both = []
            for id_ in ids_of(group):
                producer = transactional_producer(self._settings, id_)
                one = KafkaTransactions(producer, group, self._clock, self._batch_bytes)
                both.append(await opened(one))
                failing.push_async_callback(one.close)
            failing.pop_all()
        return KafkaPassage(both)


def ids_of(group: str) -> list[str]:
    return [group, f"{group}/2"]


class KafkaPassage:
    """After a failure none of them is used any more."""

    def __init__(self, by_turns: Sequence[KafkaTransactions]) -> None:
        self._by_turns = list(by_turns)

    async def publish(
        self, outgoing: Sequence[Outgoing], positions: Mapping[Where, Commit]
    ) -> None:
        turn = self._by_turns.pop(0)
        self._by_turns.append(turn)
        await turn.publish(outgoing, positions)

    async def close(self) -> None:
        async with asyncio.TaskGroup() as tasks:
            for one in self._by_turns:
                tasks.create_task(one.close())
