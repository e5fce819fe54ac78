"""Checks that the topics fit the configuration and each other.

Rule: the worker checks before it reads the first record; `penstock doctor` checks the same. A
misfit is a wrong setting: `Fatal`. Owner: the application.
"""

from penstock import config
from penstock.errors import EXIT_USAGE, Fatal
from penstock.ports import Sink

# The largest error record after all texts are cut: 4,096 characters of a stream as the Kafka key
# (16 kB), as many of a member's name as JSON (25 kB), and 1,000 of a message (6 kB).
LEAST_RECORD_BYTES = 50_000


async def check_topics(cfg: config.Config, sink: Sink) -> dict[str, int]:
    """How many partitions each topic has. Raises `Fatal` if answers could not be written."""
    counts = {topic: await sink.partitions(topic) for topic in cfg.topics}
    for topic, count in counts.items():
        if not count:
            raise Fatal(
                f"there is no topic {topic} on {cfg.kafka.bootstrap_servers}; "
                "create it: penstock topics create",
                exit_code=EXIT_USAGE,
            )
    for topic in (cfg.output.topic, cfg.output.dead_letter_topic):
        if not sink.fits(topic, None, LEAST_RECORD_BYTES):
            raise Fatal(
                f"max.message.bytes of {topic} is too small for the longest names that a message "
                f"may have: set it to {2 * LEAST_RECORD_BYTES:,} or more",
                exit_code=EXIT_USAGE,
            )
    found = counts[cfg.output.topic]
    for topic in cfg.all_inputs:
        if cfg.output.partitioning == "same" and found < counts[topic]:
            raise Fatal(
                f"{cfg.output.topic} has {found} partitions, {topic} has {counts[topic]}; "
                "add partitions, or set output.partitioning = 'stream'",
                exit_code=EXIT_USAGE,
            )
    return counts
