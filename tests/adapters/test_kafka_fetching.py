"""What aiokafka asks a broker for, and for how long the broker may keep the question."""

import contextlib
from collections.abc import AsyncIterator
from types import SimpleNamespace

from aiokafka import TopicPartition
from aiokafka.consumer.fetcher import Fetcher
from aiokafka.consumer.subscription_state import SubscriptionState

from consumers.adapters.kafka_fetching import PART_MS, WHOLE_MS, ask_patiently

FIRST, SECOND = (TopicPartition("refs", number) for number in range(2))


class OneBroker:
    """Leads every partition."""

    _loop, _metadata_max_age_ms = None, 0
    cluster = SimpleNamespace(leader_for_partition=lambda where: 0, broker_metadata=lambda node: 0)


class Asked:
    """What a consumer of two partitions would ask its broker for now."""

    def __init__(self) -> None:
        state = SubscriptionState()
        state.subscribe({"refs"})
        state.assign_from_subscribed([FIRST, SECOND])
        self.assignment = state.subscription.assignment
        for where in FIRST, SECOND:
            self.assignment.state_value(where).reset_to(0)
        self.fetcher = Fetcher(OneBroker(), state)
        ask_patiently(self.fetcher)

    def now(self) -> tuple[int, int]:
        """Partitions in the question, and the time that the broker gets."""
        [(_, request)], *_ = self.fetcher._get_actions_per_node(self.assignment)
        return sum(len(parts) for _, parts in request.topics), request._max_wait_ms


@contextlib.asynccontextmanager
async def asking() -> AsyncIterator[Asked]:
    """Its own task has had no turn yet."""
    asked = Asked()
    try:
        yield asked
    finally:
        await asked.fetcher.close()


async def test_a_question_for_all_partitions_may_be_kept_for_long() -> None:
    async with asking() as asked:
        assert asked.now() == (2, WHOLE_MS)


async def test_a_question_without_a_partition_whose_records_wait_is_a_short_one() -> None:
    async with asking() as asked:
        asked.fetcher._records[FIRST] = SimpleNamespace(calculate_backoff=lambda: 0)
        assert asked.now() == (1, PART_MS)


async def test_a_question_without_a_paused_partition_is_a_short_one() -> None:
    async with asking() as asked:
        asked.assignment.state_value(FIRST).pause()
        assert asked.now() == (1, PART_MS)
        asked.assignment.state_value(FIRST).resume()
        assert asked.now() == (2, WHOLE_MS)
