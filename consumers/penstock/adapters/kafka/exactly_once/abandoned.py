"""Takes back transactions that a dead or frozen member left open, so that neither their partitions
nor readers of committed records stand still until the broker's time is over.

Rule: it is looked for them only while a position waits for one, and once when partitions come,
as the dead may have sent records and no position yet. What is open at two looks, a second or two
apart, is taken back, whosever it is: a member that lives has its transaction repeated, and the
group has gone on without all others. If that does not help a position, it waits twice as long the
next time, as transactions may be slow. Without the right to look, or on a broker before Kafka 3.0,
the broker's time decides. Owner: the source, and the worker's producers.
"""

import asyncio
import logging
from collections.abc import Collection
from contextlib import suppress
from typing import NamedTuple

from aiokafka.client import AIOKafkaClient
from aiokafka.protocol.transaction import InitProducerIdRequest

from penstock.adapters.kafka.client import translated
from penstock.adapters.kafka.exactly_once.requests import DescribeTransactions, ListTransactions
from penstock.errors import PenstockError, Transient

log = logging.getLogger(__name__)

# Ten times what a transaction takes on a busy broker.
ABANDONED_S = 1.0
MOST_S = 30.0
# Longer, as nobody may be waiting: of a member that lives it should be none.
LEFT_S = 2.0
LOOK_EVERY_S = 0.3
# Who looks again after so long a pause was not waiting in between.
FORGET_S = 10.0
# A broker answers within milliseconds; one that is away is left out.
LOOK_S = 5.0
# Where a transaction keeps the positions of groups.
OFFSETS = "__consumer_offsets"
ONGOING = "Ongoing"


class _Seen(NamedTuple):
    transactional_id: str
    timeout_ms: int
    began_ms: int
    producer_id: int
    producer_epoch: int
    moves_positions: bool


def id_of(group: str, worker: str) -> str:
    """What the transactional ids of a worker's producers begin with; a number follows."""
    return f"{_of_group(group)}{worker}/"


def _of_group(group: str) -> str:
    return f"{group}/"


class Abandoned:
    """`look` again and again while a position waits."""

    def __init__(self, group: str) -> None:
        self._group = group
        self._seen: dict[_Seen, float] = {}
        self._abandoned_s = ABANDONED_S
        self._looked_s = -LOOK_EVERY_S
        self._may_look = True

    async def look(self, client: AIOKafkaClient) -> None:
        now_s = asyncio.get_running_loop().time()
        if not self._may_look or now_s - self._looked_s < LOOK_EVERY_S:
            return
        if now_s - self._looked_s > FORGET_S:
            self._seen.clear()
            self._abandoned_s = ABANDONED_S
        self._looked_s = now_s
        taken = 0
        try:
            for node in [broker.nodeId for broker in client.cluster.brokers()]:
                with suppress(Transient, TimeoutError):  # another broker may still answer
                    async with asyncio.timeout(LOOK_S):
                        taken += await self._look_at(client, node, now_s)
        except (NotImplementedError, PenstockError) as error:
            # Of a release that does not know the request, or because it may not be asked.
            self._may_look = False
            log.warning("open transactions end when the broker's time for them is over: %r", error)
        if taken:
            self._abandoned_s = min(2 * self._abandoned_s, MOST_S)

    async def _look_at(self, client: AIOKafkaClient, node: int, now_s: float) -> int:
        """Returns how many it took back."""
        taken = 0
        for one in await _open(client, node, [self._group]):
            if not one.moves_positions:
                continue
            if now_s - self._seen.setdefault(one, now_s) >= self._abandoned_s:
                self._seen[one] = now_s  # if it is refused, it is not asked for at each look
                taken += 1
                await _take_back(client, node, one)
        return taken


async def take_back_left(client: AIOKafkaClient, groups: Collection[str], spared: str) -> None:
    """What workers of these groups have open now and in a moment, but for ids with the beginning
    `spared`.
    """
    first = set(await _all_open(client, groups, spared))
    if first:
        await asyncio.sleep(LEFT_S)
        for one, node in (await _all_open(client, groups, spared)).items():
            if one in first:
                await _take_back(client, node, one)


async def _all_open(
    client: AIOKafkaClient, groups: Collection[str], spared: str
) -> dict[_Seen, int]:
    """Each with the broker that coordinates it."""
    found: dict[_Seen, int] = {}
    for node in [broker.nodeId for broker in client.cluster.brokers()]:
        with suppress(Transient):  # another broker may still answer
            for one in await _open(client, node, groups):
                if not one.transactional_id.startswith(spared):
                    found[one] = node
    return found


async def _open(client: AIOKafkaClient, node: int, groups: Collection[str]) -> list[_Seen]:
    with translated("a question about open transactions"):
        listed = await client.send(node, ListTransactions(ONGOING))
        prefixes = tuple(map(_of_group, groups))
        ids = [id_ for id_, *_ in listed.transactions if id_.startswith(prefixes)]
        if not ids:
            return []
        described = await client.send(node, DescribeTransactions(ids))
    return [
        _Seen(
            id_, timeout_ms, began_ms, producer_id, epoch, OFFSETS in {name for name, *_ in topics}
        )
        for code, id_, state, timeout_ms, began_ms, producer_id, epoch, topics, _ in (
            described.transactions
        )
        if not code and state == ONGOING
    ]


async def _take_back(client: AIOKafkaClient, node: int, one: _Seen) -> None:
    log.warning("the transaction of %s, which nobody ends, is taken back", one.transactional_id)
    with translated("the end of an open transaction"):
        await client.send(node, InitProducerIdRequest(one.transactional_id, one.timeout_ms))
