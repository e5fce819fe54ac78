"""How often a producer asks: for the leader of a partition that has none, and whether the markers
of its last transaction are written.

Rule: aiokafka sends; we set its pauses. It uses private parts of aiokafka 0.14's accumulator, and a
number of its sender's module, as there is no public way.
"""

import asyncio
import math
from typing import Any

from aiokafka import AIOKafkaProducer
from aiokafka.producer import sender

# About the time of an election. Without a pause the broker would be asked 500 times a second.
STALE_S = 0.05
# A broker writes the markers of a transaction after it has answered its commit, some milliseconds
# later, and refuses the next one until then. aiokafka asks again after 20.
MARKERS_S = 0.003


def begin_transactions_soon() -> None:
    """Where one transaction follows the other, aiokafka's pause is longer than a transaction."""
    sender.BACKOFF_OVERRIDE = MARKERS_S


def ask_for_leaders_with_pauses(producer: AIOKafkaProducer) -> None:
    """aiokafka's loop asks in each turn in which the accumulator misses a leader."""
    accumulator = producer._message_accumulator
    drain = accumulator.drain_by_nodes
    asked_s = -math.inf

    def drained(**options: Any) -> Any:
        nonlocal asked_s
        batches, is_stale = drain(**options)
        if is_stale:
            loop = asyncio.get_running_loop()
            is_stale = loop.time() - asked_s >= STALE_S
            if is_stale:
                asked_s = loop.time()
            else:
                loop.call_later(STALE_S, accumulator._wakeup, accumulator.waiter())
        return batches, is_stale

    accumulator.drain_by_nodes = drained
