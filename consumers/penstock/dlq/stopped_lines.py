"""`penstock dlq resume` and `skip`: let a stopped line go on, without a restart.

Rule: the group's commits tell which lines have stopped and at which message, and that message names
the stream. The command writes a word (`resume` or `skip`) to Kafka. The word is read by the worker
that has the partition, or by the partition's next owner. Owner: the command.
"""

from contextlib import aclosing

from penstock import config
from penstock.adapters.kafka.positions_from_outside import tell_stopped_lines
from penstock.adapters.kafka.reader import Reader, open_reader
from penstock.core.order.line_stop import Verb, Word, stream_digest
from penstock.core.routing.stream_names import StreamNames, fallback, key_text
from penstock.errors import usage
from penstock.messages.cloud_events import structured
from penstock.messages.codec import Inline, References, SchemaError, decode
from penstock.ports import Where
from penstock.process.clock import SystemClock


async def go_on(cfg: config.Config, stream: str, verb: Verb) -> list[str]:
    """Tell the stopped lines of this stream to go on. Returns their places. Raises `Fatal` if no
    line of the stream has stopped.
    """
    found: dict[Where, int] = {}
    others: set[str] = set()
    async with open_reader(cfg.kafka, "read_uncommitted") as reader:
        for topic in await reader.inputs():
            stopped = await reader.stopped(topic, await reader.spans(topic))
            for partition, offsets in stopped.items():
                for offset in offsets:
                    streams = await _streams(cfg, reader, Where(topic, partition), offset)
                    others |= streams
                    if stream in streams:
                        found[Where(topic, partition)] = offset
    if not found:
        known = f"; these do: {', '.join(sorted(others))}" if others else ""
        raise usage(f"no line of stream {stream!r} stands still in group {cfg.kafka.group}{known}")
    number = SystemClock().wall_ms()
    words = {where: Word(verb, at, stream_digest(stream), number) for where, at in found.items()}
    await tell_stopped_lines(cfg.kafka, words)
    return [f"{where.topic}/{where.partition}/{at}" for where, at in found.items()]


async def _streams(cfg: config.Config, reader: Reader, where: Where, offset: int) -> set[str]:
    """The streams of the objects that the message at `offset` names."""
    spans = {where.partition: (offset, offset + 1)}
    async with aclosing(reader.records(where.topic, spans)) as records:
        async for record in records:
            return _named(cfg, where, record.key, structured(record.value, record.headers))
    return set()


def _named(cfg: config.Config, where: Where, key: bytes | None, value: bytes | None) -> set[str]:
    try:
        message = decode(value)
    except SchemaError:
        message = None
    if isinstance(message, References):
        name = "" if message.announced else key_text(key)
        naming = StreamNames(cfg.kafka.stream_from)
        return {naming.of(one, name) for one in message.items}
    named = message.stream if isinstance(message, Inline) else None
    return {named or fallback(key, where.partition)}
