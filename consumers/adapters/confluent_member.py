"""How a member of the consumer group is set up in librdkafka.

Rule: where to read and what to commit is ours to say, so everything of librdkafka's own that would
do so is off; what the group sees of a member is as with aiokafka. Owner: the source.
"""

from typing import Any

from consumers import config
from consumers.adapters.confluent_client import connection, noted
from consumers.adapters.kafka_source import (
    HEARTBEAT_INTERVAL_MS,
    METADATA_MAX_AGE_MS,
    SESSION_TIMEOUT_MS,
)

# A broker keeps a question for so long while there are no records. All partitions of a broker share
# one question, and any record answers it, so that this is no latency floor as it is in aiokafka.
FETCH_WAIT_MS = 500
# Read ahead, of a partition and in all: enough for the fastest that was measured (some 5,000
# references a second), little enough to hold where a message is a megabyte.
AHEAD_RECORDS = 1_000
AHEAD_KIB = 16 << 10
# How long it fetches nothing more of a partition of which it has enough; its own second would be a
# standstill.
AHEAD_LOOK_MS = 5


def member_options(settings: config.Kafka, poll_ms: int) -> dict[str, Any]:
    """A member that does not read for `poll_ms` is out of the group."""
    return connection(settings) | {
        "group.id": settings.group,
        "enable.auto.commit": False,
        "enable.auto.offset.store": False,
        "auto.offset.reset": "error",  # we say where to go on, and that we do
        # Its own default leaves out what transactions took back, and waits for open ones.
        "isolation.level": "read_uncommitted",
        "enable.partition.eof": True,
        "session.timeout.ms": SESSION_TIMEOUT_MS,
        "heartbeat.interval.ms": HEARTBEAT_INTERVAL_MS,
        "max.poll.interval.ms": poll_ms,
        "topic.metadata.refresh.interval.ms": METADATA_MAX_AGE_MS,
        "partition.assignment.strategy": "range",
        "fetch.wait.max.ms": settings.fetch_wait_ms or FETCH_WAIT_MS,
        "queued.min.messages": AHEAD_RECORDS,
        "queued.max.messages.kbytes": AHEAD_KIB,
        "fetch.queue.backoff.ms": AHEAD_LOOK_MS,
        "error_cb": noted,
        **({"client.rack": settings.client_rack} if settings.client_rack else {}),
    }
