"""Aborts transactions that a dead or frozen member left open, for which its partitions and the
readers of committed records would stand still until the broker's own limit.

Rule: a worker looks while a position waits for the end of a transaction, and when it gets
partitions, because a dead member may have sent records but no position yet. One still open a second
or two after it was first seen is aborted: a living member repeats it; without a dead or frozen one
the group has gone on. If a position still waits after an abort, transactions may be slow, so the
next may stay open twice as long. Without the right to look, or before Kafka 3.0, the broker's limit
decides.
"""

import asyncio
import logging
from collections.abc import Callable
from contextlib import suppress
from typing import NamedTuple

from aiokafka.client import AIOKafkaClient
from aiokafka.protocol.transaction import InitProducerIdRequest

from penstock.adapters.kafka.client import check_code, translated
from penstock.adapters.kafka.requests import DescribeTransactions, ListTransactions
from penstock.errors import PenstockError, Transient

log = logging.getLogger(__name__)

# How long a transaction may stay open after it was first seen: ten times what a transaction takes
# on a busy broker.
ABANDONED_S = 1.0
MOST_S = 30.0
# How long a transaction may stay open if no position waits for its end. This time is longer than
# `ABANDONED_S`, because no worker stands still meanwhile.
LEFT_S = 2.0
# The number of looks. One is not enough, because the first look may come while a coordinator loads
# its log.
LOOKS = 3
LOOK_EVERY_S = 0.3
# If the last look was longer ago than this, no position has waited since then. So the transactions
# that were seen then are forgotten.
FORGET_S = 10.0
# A broker answers within milliseconds. If a broker has not answered after this time, we look for
# open transactions without it.
LOOK_S = 5.0
# A transaction that has positions of a group writes them to this topic.
OFFSETS = "__consumer_offsets"
ONGOING = "Ongoing"
CONCURRENT_TRANSACTIONS = 51
# Codes of a broker that loads its log, or is no longer the coordinator.
MOVING = (14, 15, 16)


class _SeenTransaction(NamedTuple):
    transactional_id: str
    timeout_ms: int
    began_ms: int
    producer_id: int
    producer_epoch: int
    moves_positions: bool


def id_of(group: str, worker: str) -> str:
    """The prefix of the transactional ids of a worker's producers. In each id a number follows this
    prefix.
    """
    return f"{group}/{worker}/"


def is_of(transactional_id: str, group: str) -> bool:
    """True if the id belongs to a worker of this group. The group's name may contain slashes; the
    worker's name may not.
    """
    return transactional_id.rsplit("/", 2)[:-2] == [group]


class Abandoned:
    """Aborts abandoned transactions. Call `look` again and again while a position waits for the end
    of a transaction.
    """

    def __init__(self, group: str) -> None:
        self._group = group
        self._seen: dict[_SeenTransaction, float] = {}
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
            transactions, is_complete = await _all_open(client, self._group)
            if is_complete:
                self._seen = {
                    transaction: since_s
                    for transaction, since_s in self._seen.items()
                    if transaction in transactions
                }
            for transaction, node in transactions.items():
                with suppress(Transient):  # the next transaction may still be aborted
                    taken += await self._look_at(client, node, transaction, now_s)
        except (NotImplementedError, PenstockError) as error:
            # The broker's release does not know the request, or we do not have the right to ask.
            self._may_look = False
            log.warning("open transactions end only by the broker's time limit: %r", error)
        if taken:
            self._abandoned_s = min(2 * self._abandoned_s, MOST_S)

    async def _look_at(
        self, client: AIOKafkaClient, node: int, transaction: _SeenTransaction, now_s: float
    ) -> bool:
        """Abort the transaction if it has been open for long enough. Returns True if it was
        aborted.
        """
        if not transaction.moves_positions:
            return False
        if now_s - self._seen.setdefault(transaction, now_s) < self._abandoned_s:
            return False
        self._seen[transaction] = now_s  # if the abort is refused, we try again after the same wait
        await _take_back(client, node, transaction)
        return True


async def take_back_left(
    client: AIOKafkaClient, group: str, spared: str, wall_ms: Callable[[], int]
) -> None:
    """Abort the transactions that workers of the group left open, except those whose ids begin with
    `spared`. A transaction that began more than `LEFT_S` ago by our clock is aborted at once. Any
    other transaction is aborted when the next look finds it still open.
    """
    seen: set[_SeenTransaction] = set()
    for _ in range(LOOKS):
        transactions, is_complete = await _all_open(client, group, spared)
        old_ms = wall_ms() - LEFT_S * 1000
        left = {
            transaction
            for transaction in transactions
            if transaction in seen or transaction.began_ms < old_ms
        }
        for transaction in left:
            with suppress(Transient):  # the next look finds it again
                await _take_back(client, transactions[transaction], transaction)
        seen = set(transactions)
        if is_complete and seen == left:
            return
        await asyncio.sleep(LEFT_S)


async def _all_open(
    client: AIOKafkaClient, group: str, spared: str | None = None
) -> tuple[dict[_SeenTransaction, int], bool]:
    """Returns two things: a mapping from each open transaction to the broker that coordinates it;
    and whether all brokers answered.
    """
    nodes = [broker.nodeId for broker in client.cluster.brokers()]
    asked = (_open_at(client, node, group) for node in nodes)
    answers: list[list[_SeenTransaction] | None] = []
    # `return_exceptions` makes sure that all questions have ended before a failure is raised.
    for answer in await asyncio.gather(*asked, return_exceptions=True):
        if isinstance(answer, BaseException):
            raise answer
        answers.append(answer)
    open_now = {
        transaction: node
        for node, answer in zip(nodes, answers, strict=True)
        for transaction in answer or ()
        if spared is None or not transaction.transactional_id.startswith(spared)
    }
    return open_now, None not in answers


async def _open_at(client: AIOKafkaClient, node: int, group: str) -> list[_SeenTransaction] | None:
    """The open transactions of the group that this broker coordinates. None: the broker is
    unreachable, or is loading its log, or another broker coordinates the transactions now.
    """
    with suppress(Transient, TimeoutError):
        async with asyncio.timeout(LOOK_S):
            return await _open(client, node, group)
    return None


async def _open(client: AIOKafkaClient, node: int, group: str) -> list[_SeenTransaction]:
    with translated("a question about open transactions"):
        listed = await client.send(node, ListTransactions(ONGOING))
        check_code(listed.error_code)
        ids = [id_ for id_, *_ in listed.transactions if is_of(id_, group)]
        if not ids:
            return []
        described = await client.send(node, DescribeTransactions(ids))
        for code, *_ in described.transactions:
            if code in MOVING:
                check_code(code)
    return [
        _SeenTransaction(
            id_, timeout_ms, began_ms, producer_id, epoch, OFFSETS in {name for name, *_ in topics}
        )
        for code, id_, state, timeout_ms, began_ms, producer_id, epoch, topics, _ in (
            described.transactions
        )
        if not code and state == ONGOING
    ]


async def _take_back(client: AIOKafkaClient, node: int, transaction: _SeenTransaction) -> None:
    """Abort the transaction. Raises `Transient`, or `Fatal` if we do not have the right to use its
    id.
    """
    with translated(f"the end of the open transaction of {transaction.transactional_id}"):
        request = InitProducerIdRequest(transaction.transactional_id, transaction.timeout_ms)
        code = (await client.send(node, request)).error_code
        if code != CONCURRENT_TRANSACTIONS:  # this code says that the broker is aborting it
            check_code(code)
    log.warning("the transaction of %s was left open and is aborted", transaction.transactional_id)
