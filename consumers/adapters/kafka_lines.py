"""Says something of a group's stopped lines, where its workers look for it.

Rule: it is kept like a position, as the metadata of a commit of a group without members, so that it
survives restarts; where nobody acts on it, it is gone with that group's positions, after the
broker's `offsets.retention.minutes` (a week). Owner: the command.
"""

from collections.abc import Mapping

from aiokafka import AIOKafkaConsumer, TopicPartition
from aiokafka.structs import OffsetAndMetadata

from consumers import config
from consumers.adapters.kafka_client import connection, opened, within
from consumers.adapters.kafka_positions import lines_group, positions
from consumers.core import lines
from consumers.core.lines import Word
from consumers.ports import Where


async def say(settings: config.Kafka, words: Mapping[Where, Word]) -> None:
    """Beside what was said of these partitions before."""
    group = lines_group(settings.group)
    consumer = AIOKafkaConsumer(**connection(settings), group_id=group, enable_auto_commit=False)
    parts = [TopicPartition(*where) for where in words]
    async with opened(consumer, settings, "a word about stopped lines"):
        consumer.assign(parts)
        async with within("what was said of stopped lines", settings.timeout_ms / 1000):
            before = await positions(consumer._client, group, parts)
            said = {}
            for part, word in zip(parts, words.values(), strict=True):
                known = before[part]
                old = lines.decode(known.metadata) if known is not None else []
                said[part] = OffsetAndMetadata(word.offset, lines.encode([*old, word]))
            await consumer.commit(said)
