"""Asks the brokers about the topics and the group. Are the topics there, and do they fit each
other? How far is the group, and how soon does it notice a crash? Which worker is the member with
the name `kafka.instance_id`?

Rule: missing topics are created only with `fix`. The answers about the group's progress, and about
what the topics do with old messages, are judged by `topic_rules`. Owner: `examine`.
"""

from msgspec.structs import replace

from penstock import config
from penstock.adapters.kafka.group.lag_and_owners import GroupView
from penstock.adapters.kafka.group.membership import instance_of
from penstock.adapters.kafka.positions import GroupPositions
from penstock.adapters.kafka.reader import Prober, Reader, open_reader
from penstock.adapters.kafka.sink import KafkaSink
from penstock.adapters.kafka.topics import TopicShape, create_topics, no_topic, topic_shapes
from penstock.ops.topic_checks import check_rekey, check_topics
from penstock.process.asyncio_additions import stopped_after
from penstock.process.clock import SystemClock
from penstock.tools.doctor.finding import Finding, hurried
from penstock.tools.doctor.topic_rules import SETTINGS, Facts, Part, judge

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
        parts: list[Part] = []
        for topic in await reader.inputs():
            parts += await _parts(reader, topic, now_ms)
        async with reader.prober() as prober:
            timed = await _timed(prober, parts)
    return judge(cfg, Facts(shapes, timed), now_ms)


async def _parts(reader: Reader, topic: str, now_ms: int) -> list[Part]:
    spans = await reader.spans(topic)
    hour = await reader.spans_since(topic, now_ms - HOUR_MS)
    committed = await reader.committed(topic, spans)
    stopped = await reader.stopped(topic, spans)
    return [
        Part(
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


async def _timed(prober: Prober, parts: list[Part]) -> list[Part]:
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


async def _time(prober: Prober, part: Part, offset: int) -> int | None:
    if not part.begin <= offset < part.end:
        return None
    found = await prober.at(part.topic, part.number, offset)
    return int(found[0].timestamp) if found else None


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
        said = "the broker does not tell its group.consumer.* settings, so what a "
        return [Finding("group", "mind", f"{said}crash costs is not known; by its defaults 45 s")]
    is_long = terms.session_ms > LONG_SESSION_MS
    return [Finding("group", "mind" if is_long else "ok", str(terms))]


async def _member(kafka: config.Kafka, name: str) -> Finding:
    view = GroupView(kafka)
    async with stopped_after(view.stop):
        placed = await view.partitions()
    hosts = {one.host for one in placed if one.owner and one.owner[:-UUID_LENGTH] == name}
    if not hosts:
        said = f"the member {name} (kafka.instance_id) has no partitions now"
        return Finding("group", "ok", said)
    said = f"the member {name} (kafka.instance_id) is a worker at {', '.join(map(str, hosts))}"
    return Finding("group", "ok", f"{said}; a second worker of this name would end that one")
