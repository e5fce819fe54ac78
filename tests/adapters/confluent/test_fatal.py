"""What librdkafka reports beside the reads."""

import pytest
from confluent_kafka import KafkaError

from penstock import config
from penstock.adapters.confluent.source import ConfluentSource
from penstock.errors import EXIT_UNREACHABLE, EXIT_USAGE, Fatal
from tests.adapters.confluent.member import member
from tests.support.partitions import P0


async def test_a_fatal_error_of_the_client_ends_the_worker() -> None:
    source = ConfluentSource(config.Kafka(), drain_ms=1_000)
    source._on_error(KafkaError(KafkaError._TRANSPORT, "it comes back"))
    source._on_error(KafkaError(KafkaError._FATAL, "Fatal error: lost"))
    with pytest.raises(Fatal, match=r"Fatal error: lost.*\n.*start the worker again") as ended:
        await source.poll([P0], 10)
    assert ended.value.exit_code == EXIT_UNREACHABLE


async def test_a_member_whose_place_another_took_says_so() -> None:
    source = ConfluentSource(config.Kafka(), drain_ms=1_000)
    fenced = KafkaError(KafkaError.FENCED_INSTANCE_ID).str()
    source._on_error(KafkaError(KafkaError._FATAL, f"Fatal error: {fenced}: of the group"))
    with pytest.raises(Fatal, match=r"kafka\.instance_id of this one") as ended:
        await source.poll([P0], 10)
    assert ended.value.exit_code == EXIT_USAGE


async def test_a_group_that_cannot_change_its_protocol_says_what_to_do() -> None:
    source = ConfluentSource(config.Kafka(), drain_ms=1_000)
    refused = KafkaError(KafkaError.GROUP_ID_NOT_FOUND).str()
    source._on_error(KafkaError(KafkaError._FATAL, f"ConsumerGroupHeartbeat failed: {refused}"))
    with pytest.raises(Fatal, match=r"Stop all members of kafka\.group, then start") as ended:
        await source.poll([P0], 10)
    assert ended.value.exit_code == EXIT_USAGE


@pytest.mark.parametrize("error", [KafkaError._FATAL, KafkaError._TRANSPORT])
async def test_a_consumer_that_is_dead_is_not_closed(
    monkeypatch: pytest.MonkeyPatch, error: int
) -> None:
    """Closing a fenced consumer hangs, and its thread takes a whole core meanwhile."""
    async with member(monkeypatch) as one:
        one.source._on_error(KafkaError(error, "lost"))
    assert ("close" in one.consumer.said) is (error == KafkaError._TRANSPORT)
