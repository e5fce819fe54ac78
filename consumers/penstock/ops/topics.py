"""Checks that the topics fit the configuration and each other.

Rule: the worker checks before it reads the first record; `penstock doctor` checks the same. A
misfit is a wrong setting: `Fatal`. While it runs, it looks whether they are still there: Kafka's
clients wait for a topic that was deleted, and say at best that nobody answers. Owner: the
application.
"""

import asyncio
from typing import Final

from penstock import config
from penstock.errors import EXIT_USAGE, Fatal, PenstockError
from penstock.ports import Sink

# The largest error record after all texts are cut: 4,096 characters of a stream as the Kafka key
# (16 kB), as many of a member's name as JSON (25 kB), and 1,000 of a message (6 kB).
LEAST_RECORD_BYTES = 50_000
# Missing in two looks in a row is gone: a topic that is made again at once may be missing in one.
LOOK_EVERY_S: Final = 10.0
ANSWER_S: Final = 5.0


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


async def mind_topics(cfg: config.Config, sink: Sink) -> None:
    """Raises `Fatal` when a topic has gone without which no answer is possible. A broker that does
    not answer is waited for.
    """
    needed = {*cfg.kafka.inputs, cfg.output.topic, cfg.output.dead_letter_topic}
    missed: set[str] = set()
    while True:
        await asyncio.sleep(LOOK_EVERY_S)
        missing = {topic for topic in needed if await _is_missing(sink, topic)}
        if gone := " and ".join(sorted(missing & missed)):
            raise Fatal(
                f"gone from {cfg.kafka.bootstrap_servers} since the start: topic {gone}. "
                "Create it again: penstock topics create",
                exit_code=EXIT_USAGE,
            )
        missed = missing


async def _is_missing(sink: Sink, topic: str) -> bool:
    try:
        async with asyncio.timeout(ANSWER_S):
            return not await sink.partitions(topic)
    except (PenstockError, TimeoutError):
        return False
