"""Asks the brokers about topics and group: which messages will be lost, which settings do harm?

Rule: missing topics are created only with `fix`. A finding ends with what mends it.
"""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import Final, NamedTuple

from msgspec.structs import replace

from penstock import config
from penstock.adapters.kafka.group.membership import instance_of
from penstock.adapters.kafka.group.observed import GroupView
from penstock.adapters.kafka.positions import GroupPositions
from penstock.adapters.kafka.reader import Prober, Reader, open_reader
from penstock.adapters.kafka.sink import KafkaSink
from penstock.adapters.kafka.topics import TopicShape, create_topics, no_topic, topic_shapes
from penstock.ops.topic_checks import TIMES, check_rekey, check_topics, fewer_times
from penstock.process.asyncio_additions import SystemClock, stopped_after
from penstock.tools.doctor.finding import Finding, hurried

RETENTION: Final = "retention.ms"
POLICY: Final = "cleanup.policy"
INSYNC: Final = "min.insync.replicas"
MOST_BYTES: Final = "max.message.bytes"
SETTINGS: Final = (RETENTION, POLICY, INSYNC, MOST_BYTES, *TIMES)

# A retention below this is too short. It is the length of a night: an outage may begin in the
# evening, and nobody notices it before the morning.
SHORT_MS: Final = 8 * 3_600_000
_FOR_EVER: Final = float("inf")
# If a message's time is further in the future than this, it is reported. Clocks of synchronised
# machines differ only by milliseconds.
CLOCK_MS: Final = 5_000
# With fewer messages than this in an hour, their spread over the partitions cannot be judged. A
# partition is hot if it gets four times its even share of the messages, or nearly all of them.
SKEW_MESSAGES: Final = 1_000
SKEW_TIMES: Final = 4
SKEW_SHARE: Final = 0.9


class PartitionState(NamedTuple):
    """A partition of an input topic. `committed`: the offset that the group has committed; None: it
    has committed none. `arrived`: how many messages came in the last hour. `stopped`: the offsets
    of the messages at which the partition, or one of its streams, has stopped. `oldest_ms`: the
    time of the oldest message without an answer. `newest_ms`: the time of the newest message.
    """

    topic: str
    number: int
    begin: int
    end: int
    committed: int | None = None
    arrived: int = 0
    stopped: Sequence[int] = ()
    oldest_ms: int | None = None
    newest_ms: int | None = None

    @property
    def next_offset(self) -> int:
        return self.begin if self.committed is None else max(self.begin, self.committed)

    @property
    def lag(self) -> int:
        return max(0, self.end - self.next_offset)

    def __str__(self) -> str:
        return f"{self.topic}/{self.number}"


class Facts(NamedTuple):
    topics: Mapping[str, TopicShape]
    parts: Sequence[PartitionState]


def judge(cfg: config.Config, facts: Facts, now_ms: int) -> list[Finding]:
    """The findings of all rules. If no rule finds anything, there is one finding, which says how
    far the group is.
    """
    wrong = [
        *_policies(cfg, facts),
        *_copies(facts, cfg),
        *_limits(cfg, facts),
        *_retention(cfg, facts, now_ms),
        *_between(cfg, facts),
        *_times(cfg, facts),
        *_lost(cfg, facts),
        *_stopped(cfg, facts),
        *_clocks(facts, now_ms),
        *_skew(facts),
    ]
    lag = sum(part.lag for part in facts.parts)
    return wrong or [Finding("progress", "ok", f"group {cfg.kafka.group}: {lag:,} messages to do")]


def _set(cfg: config.Config, topic: str, setting: str) -> str:
    return (
        f"kafka-configs.sh --bootstrap-server {cfg.kafka.bootstrap_servers} --alter "
        f"--entity-type topics --entity-name {topic} --add-config {setting}"
    )


def _policies(cfg: config.Config, facts: Facts) -> Iterator[Finding]:
    harm = {
        cfg.output.topic: "of each stream only the last answer stays",
        cfg.output.dead_letter_topic: "it refuses dead letters, which have no key",
    }
    for topic, shape in facts.topics.items():
        if "compact" in shape.settings.get(POLICY, ""):
            why = harm.get(topic, "of each key only the last message stays, answered or not")
            yield Finding(
                topic, "wrong", f"it is compacted: {why}; {_set(cfg, topic, f'{POLICY}=delete')}"
            )


def _copies(facts: Facts, cfg: config.Config) -> Iterator[Finding]:
    for topic, shape in facts.topics.items():
        least = int(shape.settings.get(INSYNC, 1))
        if least > shape.replication:
            yield Finding(
                topic,
                "wrong",
                f"{INSYNC} is {least}, but it has {shape.replication} replicas, so every write is "
                f"refused; {_set(cfg, topic, f'{INSYNC}={shape.replication}')}, or add replicas",
            )


def _limits(cfg: config.Config, facts: Facts) -> Iterator[Finding]:
    letters = cfg.output.dead_letter_topic
    most = {
        topic: int(shape.settings[MOST_BYTES])
        for topic, shape in facts.topics.items()
        if MOST_BYTES in shape.settings
    }
    for topic in cfg.after_rekey().all_inputs:
        if letters in most and most[letters] < most.get(topic, 0):
            yield Finding(
                letters,
                "mind",
                f"it takes {most[letters]:,} bytes, {topic} {most[topic]:,}: a letter about a "
                "larger inline message leaves it out and cannot be sent back; "
                f"{_set(cfg, letters, f'{MOST_BYTES}={most[topic]}')}",
            )


def _retention(cfg: config.Config, facts: Facts, now_ms: int) -> Iterator[Finding]:
    oldest: dict[str, int] = {}
    for part in facts.parts:
        if part.oldest_ms is not None:
            oldest[part.topic] = min(part.oldest_ms, oldest.get(part.topic, part.oldest_ms))
    for topic in {part.topic: None for part in facts.parts}:
        shape = facts.topics.get(topic)
        kept_ms = int(shape.settings.get(RETENTION, -1)) if shape is not None else -1
        if kept_ms < 0:
            continue
        age_ms = now_ms - oldest[topic] if topic in oldest else 0
        if age_ms > kept_ms / 2:
            yield Finding(
                topic,
                "wrong",
                f"its oldest unanswered message is {_hours(age_ms)} old, and it keeps messages for "
                f"{_hours(kept_ms)}: then they are lost. Start more workers, and "
                f"{_set(cfg, topic, f'{RETENTION}={2 * age_ms}')}",
            )
        elif kept_ms < SHORT_MS:
            yield Finding(
                topic,
                "mind",
                f"it keeps messages for {_hours(kept_ms)} only: an outage of that length loses "
                f"them; {_set(cfg, topic, f'{RETENTION}=604800000')}",
            )


def _between(cfg: config.Config, facts: Facts) -> Iterator[Finding]:
    """A message that is passed on to the topic `kafka.rekey` keeps its time stamp. So this topic
    must keep messages as long as the input topics do.
    """
    rekey = cfg.kafka.rekey
    if rekey is None or rekey not in facts.topics:
        return
    kept_ms = _kept_ms(facts, rekey)
    longest_ms = max((_kept_ms(facts, topic) for topic in cfg.kafka.inputs), default=kept_ms)
    if kept_ms < longest_ms:
        keep = "-1" if longest_ms == _FOR_EVER else f"{longest_ms:.0f}"
        yield Finding(
            rekey,
            "mind",
            f"it keeps messages for {_hours(int(kept_ms))}, less than {cfg.kafka.inputs[0]}: "
            "messages keep their time when they are passed on, so an older one is deleted before "
            f"it is answered; {_set(cfg, rekey, f'{RETENTION}={keep}')}",
        )


def _times(cfg: config.Config, facts: Facts) -> Iterator[Finding]:
    """A message that is passed on to the topic `kafka.rekey` keeps its time, if the topic takes
    it.
    """
    rekey = cfg.kafka.rekey
    if rekey is None:
        return
    moved = "and messages keep their time when they are passed on: those beyond get another time"
    for topic in cfg.kafka.inputs:
        for name in fewer_times(facts.topics, topic, rekey):
            value = facts.topics[topic].settings[name]
            yield Finding(
                rekey,
                "mind",
                f"its {name} is below that of {topic}, {moved}; "
                f"{_set(cfg, rekey, f'{name}={value}')}",
            )


def _kept_ms(facts: Facts, topic: str) -> float:
    shape = facts.topics.get(topic)
    kept_ms = int(shape.settings.get(RETENTION, -1)) if shape is not None else 0
    return kept_ms if kept_ms >= 0 else _FOR_EVER


def _hours(ms: int) -> str:
    return f"{ms / 3_600_000:.1f} h" if ms >= 360_000 else f"{ms / 1000:.0f} s"


def _lost(cfg: config.Config, facts: Facts) -> Iterator[Finding]:
    for part in facts.parts:
        if part.committed is None:
            continue
        if part.committed < part.begin:
            yield Finding(
                str(part),
                "wrong",
                f"group {cfg.kafka.group} is at {part.committed}, but the topic begins at "
                f"{part.begin}: {part.begin - part.committed:,} messages were deleted unanswered. "
                "Announce their objects again: penstock produce URL; and raise retention.ms",
            )
        elif part.committed > part.end:
            yield Finding(
                str(part),
                "mind",
                f"group {cfg.kafka.group} is at {part.committed}, but the topic ends at "
                f"{part.end}: it was made anew. A worker begins at its first message; or name "
                "another kafka.group",
            )


def _stopped(cfg: config.Config, facts: Facts) -> Iterator[Finding]:
    for part in facts.parts:
        for offset in part.stopped:
            yield Finding(
                f"{part}/{offset}",
                "wrong",
                f"a line of group {cfg.kafka.group} has stopped here; see penstock dlq list, mend "
                "the cause, then penstock dlq resume STREAM (or skip)",
            )


def _clocks(facts: Facts, now_ms: int) -> Iterator[Finding]:
    ahead: defaultdict[str, int] = defaultdict(int)
    for part in facts.parts:
        if part.newest_ms is not None:
            ahead[part.topic] = max(ahead[part.topic], part.newest_ms - now_ms)
    for topic, ms in ahead.items():
        if ms > CLOCK_MS:
            yield Finding(
                topic,
                "wrong",
                f"its newest message comes from {ms / 1000:.0f} s in the future: a producer's "
                "clock or this machine's is wrong, and so is every latency; see timedatectl",
            )


def _skew(facts: Facts) -> Iterator[Finding]:
    by_topic: defaultdict[str, list[PartitionState]] = defaultdict(list)
    for part in facts.parts:
        by_topic[part.topic].append(part)
    for topic, parts in by_topic.items():
        arrived = sum(part.arrived for part in parts)
        hottest = max(parts, key=lambda part: part.arrived)
        most = min(SKEW_SHARE, SKEW_TIMES / len(parts))
        if len(parts) == 1 or arrived < SKEW_MESSAGES or hottest.arrived <= most * arrived:
            continue
        yield Finding(
            topic,
            "mind",
            f"partition {hottest.number} got {100 * hottest.arrived / arrived:.0f} % of the "
            f"{arrived:,} messages of the last hour, and one worker serves it alone; give messages "
            "keys that differ (penstock produce --stream), or none",
        )


HOUR_MS = 3_600_000
# For at most this many partitions we ask for the times of the oldest unanswered message and of the
# newest message. They are the partitions with the most unanswered messages.
MOST_ASKED = 60
# If there is no other topic whose shape could be copied, a created topic gets this many partitions.
PARTITIONS = 4
# A longer session is reported, because a crash then costs more time than with the default session
# of the group protocol "classic".
LONG_SESSION_MS = 10_000
# A member's id is its name, a dash and a UUID. The dash and the UUID together have this length.
UUID_LENGTH = 37


async def look_at_topics(cfg: config.Config, *, fix: bool) -> list[Finding]:
    """Check that the topics are there, and that answers can be written to them."""
    kafka = hurried(cfg.kafka)
    shapes = await topic_shapes(kafka, cfg.topics)
    missing = [topic for topic in cfg.topics if topic not in shapes]
    if missing and fix:
        return [await _made(kafka, topic, shapes) for topic in missing]
    if missing:
        return [Finding("topics", "wrong", str(no_topic(topic, kafka))) for topic in missing]
    sink = KafkaSink(kafka, SystemClock())
    async with stopped_after(sink.stop):
        await sink.start()
        counts = await check_topics(cfg.after_rekey(), sink)
    if cfg.kafka.rekey is not None:
        counts = await check_rekey(replace(cfg, kafka=kafka)) | counts
    topics = ", ".join(f"{topic} ({count} partitions)" for topic, count in counts.items())
    return [Finding("topics", "ok", f"{topics} on {kafka.bootstrap_servers}")]


async def _made(kafka: config.Kafka, topic: str, shapes: dict[str, TopicShape]) -> Finding:
    """Create the topic with as many partitions as the largest of the other topics. Then each answer
    can go to the partition that has the same number as its message's partition.
    """
    most = max(shapes.values(), key=lambda shape: shape.partitions, default=TopicShape(PARTITIONS))
    shape = TopicShape(most.partitions, most.replication)
    await create_topics(kafka, [topic], shape)
    shapes[topic] = shape
    return Finding("topics", "ok", f"created {topic}, with {shape.partitions} partitions")


async def look_at_progress(cfg: config.Config) -> list[Finding]:
    """Check how far the group is in its input, and what the topics do with old messages."""
    kafka, now_ms = hurried(cfg.after_rekey().kafka), SystemClock().wall_ms()
    shapes = await topic_shapes(kafka, cfg.topics, SETTINGS)
    async with open_reader(kafka, "read_uncommitted") as reader:
        parts: list[PartitionState] = []
        for topic in await reader.inputs():
            parts += await _parts(reader, topic, now_ms)
        async with reader.prober() as prober:
            timed = await _timed(prober, parts)
    return judge(cfg, Facts(shapes, timed), now_ms)


async def _parts(reader: Reader, topic: str, now_ms: int) -> list[PartitionState]:
    numbers = await reader.spans(topic)
    committed = await reader.committed(topic, numbers)
    stopped = await reader.stopped(topic, numbers)
    # Looked up after the positions: a group that is at work would be ahead of an older end.
    spans = await reader.spans(topic)
    hour = await reader.spans_since(topic, now_ms - HOUR_MS)
    return [
        PartitionState(
            topic,
            number,
            begin,
            end,
            None if (commit := committed.get(number)) is None else commit.next_offset,
            hour[number][1] - hour[number][0],
            stopped.get(number, []),
        )
        for number, (begin, end) in sorted(spans.items())
    ]


async def _timed(prober: Prober, parts: list[PartitionState]) -> list[PartitionState]:
    """The same partitions, with two times added: that of the oldest unanswered message, and that of
    the newest message.
    """
    most_lag = sorted(parts, key=lambda part: -part.lag)
    return [
        part._replace(
            oldest_ms=await _time(prober, part, part.next_offset),
            newest_ms=await _time(prober, part, part.end - 1),
        )
        for part in most_lag[:MOST_ASKED]
    ] + most_lag[MOST_ASKED:]


async def _time(prober: Prober, part: PartitionState, offset: int) -> int | None:
    if not part.begin <= offset < part.end:
        return None
    records = await prober.at(part.topic, part.number, offset)
    return int(records[0].timestamp) if records else None


async def look_at_group(cfg: config.Config) -> list[Finding]:
    kafka = hurried(cfg.kafka)
    if kafka.group_protocol == "consumer":
        return await _terms(kafka)
    name = instance_of(kafka)
    return [] if name is None else [await _member(kafka, name)]


async def _terms(kafka: config.Kafka) -> list[Finding]:
    positions = GroupPositions(kafka)
    async with stopped_after(positions.stop):
        await positions.start()
        terms = await positions.terms()
    if terms is None:
        message = "the broker does not tell its group.consumer.* settings, so what a "
        return [
            Finding("group", "mind", f"{message}crash costs is not known; by its defaults 45 s")
        ]
    is_long = terms.session_ms > LONG_SESSION_MS
    return [Finding("group", "mind" if is_long else "ok", str(terms))]


async def _member(kafka: config.Kafka, name: str) -> Finding:
    view = GroupView(kafka)
    async with stopped_after(view.stop):
        placed = await view.partitions()
    hosts = {
        member.host for member in placed if member.owner and member.owner[:-UUID_LENGTH] == name
    }
    if not hosts:
        message = f"the member {name} (kafka.instance_id) has no partitions now"
        return Finding("group", "ok", message)
    message = f"the member {name} (kafka.instance_id) is a worker at {', '.join(map(str, hosts))}"
    return Finding("group", "ok", f"{message}; a second worker of this name would end that one")
