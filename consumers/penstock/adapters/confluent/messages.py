"""What librdkafka hands over: records, and notices that a partition has been read to its end.

Rule: the pipeline gets a record as it does from aiokafka. Owner: the reads.
"""

from typing import Any

from confluent_kafka import KafkaError

from penstock.messages.cloud_events import structured
from penstock.messages.traceparent import in_headers
from penstock.ports import Record


def is_end(message: Any) -> bool:
    """Is it no record, but word that all records of a partition have been handed over?"""
    error = message.error()
    return error is not None and error.code() == KafkaError._PARTITION_EOF


def records_in(messages: list[Any]) -> int:
    return len(messages) - sum(map(is_end, messages))


def record_of(number: int, message: Any) -> Record:
    value, headers = message.value(), message.headers()
    return Record(
        number,
        message.offset(),
        message.key(),
        structured(value, headers) if headers else value,
        message.timestamp()[1],
        in_headers(headers) if headers else None,
    )
