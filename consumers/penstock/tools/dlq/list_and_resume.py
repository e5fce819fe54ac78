"""`penstock dlq list` shows dead letters and where lines have stopped; `penstock dlq resume` and
`skip` let one go on without a restart, by a word in Kafka that its worker reads.

Rule: letters that differ only in rows of their object are one entry of the table, whose length is
limited; JSON is printed at once, and no letter is kept. Characters that would control a terminal
are printed as escapes. The group's commits tell which lines have stopped, and at which message; the
message names the stream. A word is for the partition's owner or its next one.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import aclosing
from shlex import quote
from typing import Final, NamedTuple

import msgspec
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from penstock import config
from penstock.adapters.kafka.positions_from_outside import obeyed_words, tell_stopped_lines
from penstock.adapters.kafka.reader import OnRead, Reader, Spans, open_reader
from penstock.core.progress.cursor import STOPS
from penstock.core.progress.line_stop import Verb, Word, stream_digest
from penstock.core.routing.stream_keys import StreamNames, fallback, key_text
from penstock.errors import usage
from penstock.messages.cloud_events import structured
from penstock.messages.codec import Inline, References, SchemaError, decode
from penstock.ports import Where
from penstock.process.asyncio_additions import SystemClock
from penstock.terminal_text import utc, visible
from penstock.tools.dlq.letters import Choice, Filed, Seen, letters, rows_text

# How many entries of the table are kept in addition to those that will be shown. They are kept
# because a later letter may belong to one of them, and make it one of the newest.
KEPT: Final = 5_000
# So many messages behind a stop are looked at.
MOST_COUNTED: Final = 10_000


class Alike(NamedTuple):
    """An entry of the table: letters with the same code and the same error message about one
    object. `letters`: the number of these letters. `newest`: the letter that failed last.
    """

    newest: Filed
    letters: int

    @property
    def rows(self) -> str:
        rows = rows_text(self.newest.letter.rows)
        return rows if self.letters == 1 else f"{rows} and {self.letters - 1:,} more like it"


class LetterListing:
    """The newest `limit` entries of the table, and the counts of all letters. `stops`: one text for
    each message at which a line has stopped.
    """

    def __init__(self, limit: int) -> None:
        self.seen = Seen()
        self.stops: list[str] = []
        self._limit = limit
        self._alike: dict[tuple[str, ...], Alike] = {}
        self._left_out = 0

    def add(self, filed: Filed) -> None:
        letter = filed.letter
        about = f"{letter.object.bucket}/{letter.object.key}" if letter.object else str(filed.place)
        kind = (letter.code, letter.stream, about, letter.member or "", letter.message)
        former = self._alike.pop(kind, None)
        count = 1 if former is None else former.letters + 1
        if former is not None and former.newest.letter.failed_at > letter.failed_at:
            filed = former.newest
        self._alike[kind] = Alike(filed, count)
        if len(self._alike) > KEPT + self._limit:
            kept = {id(group) for group in self._newest(self._limit)}
            self._left_out += sum(
                group.letters for group in self._alike.values() if id(group) not in kept
            )
            self._alike = {kind: group for kind, group in self._alike.items() if id(group) in kept}

    def _newest(self, most: int) -> list[Alike]:
        """The newest entries of the table. The one with the latest failure is the last."""
        return sorted(self._alike.values(), key=lambda group: group.newest.letter.failed_at)[-most:]

    def render(self) -> RenderableType:
        table = Table(pad_edge=False)
        for name in ("id", "failed at (UTC)", "code", "stream", "object", "rows", "message"):
            table.add_column(name, overflow="fold", no_wrap=name in ("id", "code"))
        shown = self._newest(self._limit)
        for group in shown:
            place, letter, _ = group.newest
            about = letter.object
            table.add_row(
                str(place),
                utc(letter.failed_at),
                *map(
                    visible,
                    (
                        letter.code,
                        letter.stream,
                        f"{about.bucket}/{about.key}" if about else "-",
                        group.rows,
                        letter.message,
                    ),
                ),
            )
        all_counts = sum(group.letters for group in self._alike.values())
        hidden = self._left_out + all_counts - sum(group.letters for group in shown)
        parts: list[RenderableType] = [table] if shown else []
        if hidden:
            parts.append(Text(f"{hidden:,} older ones are not shown; see --limit and --json"))
        parts.append(Text(self.seen.sentence()))
        parts += [Text(stop, style="bold red") for stop in self.stops]
        return Group(*parts)


async def list_letters(
    cfg: config.Config,
    choice: Choice,
    *,
    limit: int,
    on_letter: Callable[[Filed], None] | None,
    progress: OnRead,
) -> LetterListing:
    """Read the letters. `on_letter`: a function that is called with each letter. If it is given, no
    letter is kept.
    """
    listing = LetterListing(limit)
    async with open_reader(cfg.kafka, "read_committed") as reader:
        async with aclosing(letters(cfg, reader, choice, listing.seen, progress)) as filings:
            async for filed in filings:
                (on_letter or listing.add)(filed)
        for topic in await reader.inputs():
            listing.stops += [line async for line in _stop_lines(cfg, reader, topic)]
    return listing


async def _stop_lines(cfg: config.Config, reader: Reader, topic: str) -> AsyncIterator[str]:
    spans = await reader.spans(topic)
    for partition, offsets in sorted((await reader.stopped(topic, spans)).items()):
        for offset in offsets:
            streams = await _streams_at(cfg, reader, Where(topic, partition), offset, spans)
            named = f" (STREAM is {visible(' or '.join(sorted(streams)))})" if streams else ""
            yield (
                f"line stopped: group {cfg.kafka.group} stands still at "
                f"{topic}/{partition}/{offset}. Mend the cause, then start its worker again, or "
                f"say penstock dlq resume STREAM{named}: it goes on there"
            )
        if len(offsets) >= STOPS:
            yield (
                f"{topic}/{partition}: a commit names {STOPS} stopped streams at most, and there "
                "may be more; /api/status of the worker tells all of them"
            )


def as_json_line(filed: Filed) -> bytes:
    """The letter's own JSON on one line, with the letter's `id` before the other fields."""
    text = msgspec.json.format(filed.value, indent=-1)
    return b'{"id":"%b",%b' % (str(filed.place).encode(), text[1:])


class LineOutcome(NamedTuple):
    """What became of a stopped line. `is_well`: it goes on, or will."""

    said: str
    is_well: bool


async def go_on(
    cfg: config.Config, stream: str, verb: Verb, wait_s: float, until: int | None = None
) -> AsyncIterator[LineOutcome]:
    """Tell the stopped lines of this stream to go on, and say where each of them stands; then wait
    for what comes of it. `until`: the word holds for all stops up to this offset; -1: up to the
    partition's present end. Raises `Fatal` if no line of the stream has stopped.

    A commit names only so many of a partition's stopped streams. In such a partition the stream may
    have stopped, too, and its worker is told to let it go on wherever it stands.
    """
    async with open_reader(cfg.kafka, "read_uncommitted") as reader:
        spans = {topic: await reader.spans(topic) for topic in await reader.inputs()}
        stops, full, others = await _stops_of(cfg, reader, spans, stream)
        stops = stops or dict.fromkeys(full)
        if not stops:
            known = f"; these do: {', '.join(sorted(others))}" if others else ""
            raise usage(
                f"no line of stream {stream!r} stands still in group {cfg.kafka.group}{known}"
            )
        number, digest = SystemClock().wall_ms(), stream_digest(stream)
        words: dict[Where, Word] = {}
        for where, at in stops.items():
            end = spans[where.topic][where.partition][1] - 1
            last = None if until is None or at is None else max(at, end if until < 0 else until)
            words[where] = Word(verb, at, digest, number, until=last)
        await tell_stopped_lines(cfg.kafka, words)
        for where, at in stops.items():
            place = (
                f"{where.topic}/{where.partition}/{at}"
                if at is not None
                else f"{where.topic}/{where.partition}, if it is one of the stopped streams that "
                "the group's commit has no room for"
            )
            yield LineOutcome(f"{verb} stream {stream}, which stands at {place}", is_well=True)
        if not wait_s:
            return
        done = await obeyed_words(cfg.kafka, words, wait_s)
        if done:
            # A line that goes on and stops again is committed by then.
            await asyncio.sleep(2 * cfg.delivery.commit_interval_ms / 1000)
        again, _, _ = await _stops_of(cfg, reader, spans, stream)
        for where, word in words.items():
            if where not in done:
                yield LineOutcome(_not_yet(where, word, wait_s), is_well=True)
            elif (stop := again.get(where)) is not None:
                more = await _more_behind(cfg, reader, where, stream, stop)
                yield LineOutcome(_stopped_again(stream, where, stop, more), is_well=False)
            else:
                yield LineOutcome(f"{where.topic}/{where.partition} goes on", is_well=True)


def _not_yet(where: Where, word: Word, wait_s: float) -> str:
    what = f"{where.topic}/{where.partition}: no worker has obeyed within {wait_s:g} s"
    if word.until is not None:
        what = f"{where.topic}/{where.partition}: not at offset {word.until} after {wait_s:g} s"
    return f"{what}; the word stays, and is obeyed as soon as a worker has the partition"


def _stopped_again(stream: str, where: Where, stop: int, more: int) -> str:
    many = f"{MOST_COUNTED:,} or more" if more >= MOST_COUNTED else f"{more:,}"
    skip = f"penstock dlq skip {quote(stream)} --until end"
    return (
        f"it stopped again at once, at {where.topic}/{where.partition}/{stop}: {many} more of its "
        f"messages wait behind that one. Mend the cause; or answer by their errors all that fail: "
        f"{skip}"
    )


async def _stops_of(
    cfg: config.Config, reader: Reader, spans: Mapping[str, Spans], stream: str
) -> tuple[dict[Where, int | None], set[Where], set[str]]:
    """Returns where the stream has stopped; the partitions with more stops than a commit names; and
    all streams that have stopped.
    """
    by_part: dict[Where, int | None] = {}
    full: set[Where] = set()
    others: set[str] = set()
    for topic, parts in spans.items():
        for partition, offsets in (await reader.stopped(topic, parts)).items():
            where = Where(topic, partition)
            if len(offsets) >= STOPS:
                full.add(where)
            for offset in offsets:
                streams = await _streams_at(cfg, reader, where, offset, parts)
                others |= streams
                if stream in streams:
                    by_part[where] = offset
    return by_part, full, others


async def _more_behind(
    cfg: config.Config, reader: Reader, where: Where, stream: str, stop: int
) -> int:
    """How many messages of the stream come after the one at which it stopped."""
    spans = await reader.spans(where.topic)
    first, end = stop + 1, spans[where.partition][1]
    span = {where.partition: (first, min(end, first + MOST_COUNTED))}
    if first >= end:
        return 0
    count = 0
    async with aclosing(reader.records(where.topic, span)) as records:
        async for record in records:
            value = structured(record.value, record.headers)
            count += stream in _streams_of(cfg, where, record.key, value)
    return count


async def _streams_at(
    cfg: config.Config, reader: Reader, where: Where, offset: int, spans: Spans
) -> set[str]:
    """The streams of all objects that the message at `offset` names; none, if the topic does not
    have it any more. `spans`: what the topic has.
    """
    begin, end = spans[where.partition]
    if not begin <= offset < end:
        return set()
    span = {where.partition: (offset, offset + 1)}
    async with aclosing(reader.records(where.topic, span)) as records:
        async for record in records:
            return _streams_of(cfg, where, record.key, structured(record.value, record.headers))
    return set()


def _streams_of(
    cfg: config.Config, where: Where, key: bytes | None, value: bytes | None
) -> set[str]:
    try:
        message = decode(value)
    except SchemaError:
        message = None
    if isinstance(message, References):
        name = "" if message.announced else key_text(key)
        naming = StreamNames(cfg.kafka.stream_from)
        return {naming.of(item, name) for item in message.items}
    named = message.stream if isinstance(message, Inline) else None
    return {named or fallback(key, where.partition)}
