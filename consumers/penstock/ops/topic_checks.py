"""Checks that the topics exist, and fit the configuration and each other.

Rule: a topic that does not fit is a wrong setting and raises `Fatal`. A running worker looks again
and again, because Kafka's clients wait for a deleted topic without end.
"""

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from typing import Final, Protocol

from penstock import config
from penstock.adapters.kafka.client import KafkaLogin
from penstock.adapters.kafka.positions import GroupPositions
from penstock.adapters.kafka.topics import TopicShape, no_topic, partition_counts, topic_shapes
from penstock.errors import PenstockError, Transient, usage
from penstock.ports import Sink
from penstock.process.asyncio_additions import first_of, meanwhile, stopped_after

log = logging.getLogger(__name__)

RETENTION: Final = "retention.ms"
TIME_TYPE: Final = "message.timestamp.type"
# How far the time of a record may lie in the past and in the future. Kafka 3.6 and later.
LIMITS: Final = ("message.timestamp.before.max.ms", "message.timestamp.after.max.ms")
TIMES: Final = (TIME_TYPE, *LIMITS)
# The size of the largest error record after all texts are cut. It has 4,096 characters of a
# stream's name as the Kafka key (16 kB), 4,096 characters of a member's name as JSON (25 kB), and
# 1,000 characters of a message (6 kB).
LEAST_RECORD_BYTES = 50_000
LOOK_EVERY_S: Final = 10.0
# A topic counts as gone if no look within this time finds it. One look is not enough: a broker that
# has just started may not know a topic for half a minute, and a deleted topic may be created again
# at once.
GONE_S: Final = 60.0
# If all our topics are missing, the broker has probably lost its metadata, and may get it back.
ALL_GONE_S: Final = 180.0
ANSWER_S: Final = 5.0
# Between two checks of a login, if clients are refused again and again.
REFUSED_PAUSE_S: Final = 1.0


async def check_topics(cfg: config.Config, sink: Sink) -> dict[str, int]:
    """Returns how many partitions each topic has. Raises `Fatal` if a topic is missing, or if a
    topic would not accept the worker's answers.
    """
    counts = {topic: await sink.partitions(topic) for topic in cfg.topics}
    for topic, count in counts.items():
        if not count:
            raise no_topic(topic, cfg.kafka)
    for topic in (cfg.output.topic, cfg.output.dead_letter_topic):
        if not sink.fits(topic, None, LEAST_RECORD_BYTES):
            raise usage(
                f"max.message.bytes of {topic} is too small for the longest names that a message "
                f"may have: set it to {2 * LEAST_RECORD_BYTES:,} or more"
            )
    of_output = counts[cfg.output.topic]
    for topic in cfg.all_inputs:
        if cfg.output.partitioning == "same" and of_output < counts[topic]:
            raise usage(
                f"{cfg.output.topic} has {of_output} partitions, {topic} has {counts[topic]}; "
                "add partitions, or set output.partitioning = 'stream'"
            )
    return counts


async def check_rekey(cfg: config.Config) -> dict[str, int]:
    """Returns the number of partitions of each topic that the rekeyer reads or writes. Raises
    `Fatal` if one of the topics is missing.
    """
    topics = [*cfg.kafka.inputs, *([cfg.kafka.rekey] if cfg.kafka.rekey is not None else [])]
    counts = await partition_counts(cfg.kafka, topics)
    for topic in topics:
        if topic not in counts:
            raise no_topic(topic, cfg.kafka)
    return counts


async def warn_of_limits(kafka: config.Kafka, sources: Sequence[str], target: str) -> None:
    """Warn if the topic `target`, to which records are passed on with their times, keeps records
    for less time than a topic from which they come: an old record of a backlog would be deleted at
    once. Warn as well if it takes fewer times.
    """
    shapes = await topic_shapes(kafka, [*sources, target], [RETENTION, *TIMES])
    settings = {topic: shape.settings.get(RETENTION, "-1") for topic, shape in shapes.items()}
    for topic in kept_longer(settings, target):
        log.warning(
            "%s keeps records for less time than %s, from which they come with their times: older "
            "ones of a backlog would be deleted as soon as they are passed on. Set %s of %s to "
            "that of %s",
            *(target, topic, RETENTION, target, topic),
        )
    for topic in sources:
        for name in fewer_times(shapes, topic, target):
            log.warning(
                "%s takes fewer times than %s, from which records come with their times: records "
                "beyond its limit get the nearest time that it takes. Set %s of %s to that of %s",
                *(target, topic, name, target, topic),
            )


def fewer_times(shapes: Mapping[str, TopicShape], source: str, target: str) -> list[str]:
    """The settings by which `target` refuses times that `source` takes. A topic that sets the times
    of its records itself refuses none.
    """
    if source not in shapes or target not in shapes:
        return []
    there, here = shapes[source].settings, shapes[target].settings
    if here.get(TIME_TYPE) == "LogAppendTime":
        return []
    both = [name for name in LIMITS if name in there and name in here]
    return [name for name in both if int(here[name]) < int(there[name])]


def kept_longer(retentions: Mapping[str, str], topic: str) -> list[str]:
    """The topics that keep records longer than `topic` does. `retentions`: for each topic's name,
    its `retention.ms`, where -1 means for ever.
    """
    kept_ms = {
        each: int(retention) if int(retention) >= 0 else float("inf")
        for each, retention in retentions.items()
    }
    return [each for each, ms in kept_ms.items() if ms > kept_ms.get(topic, ms)]


class Login(Protocol):
    """Whether the brokers still know us. Kafka's clients repeat a refused connection without end,
    though a password may have been changed since the start, or a certificate may have expired.
    """

    async def refused(self) -> None:
        """Returns when a broker refuses a connection."""

    async def check(self) -> None:
        """Make a new connection. Raises `Transient`, or `Fatal` if the brokers refuse us."""


async def mind_topics(cfg: config.Config, sink: Sink, login: Login) -> None:
    """Runs until an input, output or dead-letter topic has gone, or the brokers refuse us, and then
    raises `Fatal`. While the broker does not answer, no topic counts as gone; but then the login is
    checked.
    """
    await first_of(_look_at_topics(cfg, sink, login), _look_at_refusals(login))


async def _look_at_topics(cfg: config.Config, sink: Sink, login: Login) -> None:
    needed = {*cfg.kafka.inputs, cfg.output.topic, cfg.output.dead_letter_topic}
    missing_s = dict.fromkeys(needed, 0.0)
    while True:
        await asyncio.sleep(LOOK_EVERY_S)
        for topic in needed:
            since_s = missing_s[topic] + LOOK_EVERY_S
            is_missing = await _is_missing(sink, topic)
            missing_s[topic] = since_s if is_missing else 0.0
            if is_missing is None:
                with suppress(Transient):
                    await login.check()
        most_s = GONE_S if not all(missing_s.values()) else ALL_GONE_S
        gone = sorted(topic for topic, since_s in missing_s.items() if since_s > most_s)
        if gone:
            raise usage(
                f"gone from {cfg.kafka.bootstrap_servers} since the start: topic "
                f"{' and '.join(gone)}. Create it again: penstock topics create"
            )


async def _look_at_refusals(login: Login) -> None:
    """A refusal is looked at soon, as the clients' calls would only end when their patience is
    over.
    """
    while True:
        await login.refused()
        with suppress(Transient):
            await login.check()
        await asyncio.sleep(REFUSED_PAUSE_S)


async def mind_credentials(ask: Callable[[], Awaitable[object]], login: Login) -> None:
    """Runs until the brokers refuse our credentials, and then raises `Fatal`. `ask`: a question on
    a connection that is open. While it is not answered, the login is checked, as in `mind_topics`.
    """
    await first_of(_look_at_credentials(ask, login), _look_at_refusals(login))


async def _look_at_credentials(ask: Callable[[], Awaitable[object]], login: Login) -> None:
    while True:
        await asyncio.sleep(LOOK_EVERY_S)
        try:
            async with asyncio.timeout(ANSWER_S):
                await ask()
        except (PenstockError, TimeoutError):
            with suppress(Transient):
                await login.check()


@asynccontextmanager
async def minding_credentials(kafka: config.Kafka) -> AsyncIterator[None]:
    """A block of work with Kafka that fails if the brokers refuse our credentials meanwhile, for a
    process that has no sink to look at its topics.
    """
    asked = GroupPositions(kafka)
    async with stopped_after(asked.stop):
        await asked.start()
        async with meanwhile(mind_credentials(asked.ask, KafkaLogin(kafka))):
            yield


async def _is_missing(sink: Sink, topic: str) -> bool | None:
    """None: the broker does not answer."""
    try:
        async with asyncio.timeout(ANSWER_S):
            return not await sink.partitions(topic)
    except (PenstockError, TimeoutError):
        return None
