"""Tells a group's workers what to do with its stopped lines.

Rule: each word is the metadata of a commit, in a second group that has no members, so it survives
restarts. If no worker acts on it, it expires with that group's positions, after the broker's
`offsets.retention.minutes` (a week). Owner: the command.
"""

from collections.abc import Mapping

from aiokafka import AIOKafkaConsumer, TopicPartition
from aiokafka.structs import OffsetAndMetadata

from penstock import config
from penstock.adapters.kafka.client import connection, opened, within
from penstock.adapters.kafka.committed_positions import lines_group, positions
from penstock.adapters.kafka.inside.handles import client_of
from penstock.core.order import operator_words
from penstock.core.order.operator_words import Word
from penstock.ports import Where


async def say(settings: config.Kafka, words: Mapping[Where, Word]) -> None:
    """Add these words to those already said of the same partitions."""
    group = lines_group(settings.group)
    consumer = AIOKafkaConsumer(**connection(settings), group_id=group, enable_auto_commit=False)
    parts = [TopicPartition(*where) for where in words]
    async with opened(consumer, settings, "a word about stopped lines"):
        consumer.assign(parts)
        async with within("what was said of stopped lines", settings.timeout_ms / 1000):
            before = await positions(client_of(consumer), group, parts)
            said = {}
            for part, word in zip(parts, words.values(), strict=True):
                known = before[part]
                old = operator_words.decode(known.metadata) if known is not None else []
                said[part] = OffsetAndMetadata(word.offset, operator_words.encode([*old, word]))
            await consumer.commit(said)
