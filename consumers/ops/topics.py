"""Do the topics fit the configuration, and each other?

Rule: asked before the first record is read, by the worker and by `penstock doctor`; what is wrong
is a setting to mend. Owner: the application.
"""

from consumers import config
from consumers.errors import EXIT_USAGE, Fatal
from consumers.ports import Sink

# An error that says as little as it can: 4,096 characters of a stream as the Kafka key (16 kB), as
# many of a member's name as JSON (25 kB), and 1,000 of a message (6 kB).
LEAST_RECORD_BYTES = 50_000


async def check_topics(cfg: config.Config, sink: Sink) -> dict[str, int]:
    """Partitions of each topic; raises `Fatal` where answers would have no place to go."""
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
