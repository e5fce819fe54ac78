"""Makes a producer that keeps its batches for as long as its owner wants.

Owner: the sink, outlet or writer that made the producer; it also gives it up.
"""

from typing import Any

from aiokafka import AIOKafkaProducer

from penstock import config
from penstock.adapters.kafka.client import connection
from penstock.adapters.kafka.inside.giving_up import keep_batches
from penstock.adapters.kafka.inside.sending import ask_for_leaders_with_pauses


def producer_of(settings: config.Kafka, **options: Any) -> AIOKafkaProducer:
    """Not started yet."""
    producer = AIOKafkaProducer(**connection(settings), **options)
    keep_batches(producer)
    ask_for_leaders_with_pauses(producer)
    return producer
