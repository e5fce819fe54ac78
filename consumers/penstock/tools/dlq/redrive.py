"""`penstock dlq redrive`: sends the references of chosen dead letters back to the input topic.

Rule: a reference names exactly the rows that failed, or without them, once for all letters of its
object, the whole. It is sent to the partition of the original message, which keeps the order of the
stream. Rows that have two letters because of a crash are sent once, however the two lives shared
them out. Nothing is remembered for the next run.
"""

import binascii
from base64 import b64decode
from bisect import bisect_left, bisect_right
from collections import OrderedDict
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import aclosing, asynccontextmanager, suppress
from dataclasses import dataclass, field
from hashlib import blake2b
from operator import itemgetter
from typing import Final

from msgspec import msgpack, structs

from penstock import config
from penstock.adapters.kafka.announcer import announcing
from penstock.adapters.kafka.reader import OnRead, Reader, open_reader
from penstock.core.records.result_names import parsed
from penstock.errors import usage
from penstock.messages.codec import encode_reference
from penstock.messages.dead_letter import DeadLetter
from penstock.messages.prediction import Source
from penstock.messages.reference import MAX_INTEGER, MAX_RANGES, Reference, RowRange
from penstock.tools.dlq.letters import Choice, Seen, letters

# How many ranges of rows are remembered to find repeats. This is enough, because a crash repeats
# only the letters of the last commit interval. The remembered ranges take 50 MB at most.
REMEMBERED = 100_000
_ALL: Final[tuple[RowRange, ...]] = ((0, None),)

_Send = Callable[[DeadLetter, bytes], Awaitable[None]]


@dataclass(slots=True)
class Redriven:
    """The counts of a redrive. They are up to date at any moment. `is_dated`: True if the names of
    results have a date.
    """

    dry: bool
    is_dated: bool = False
    seen: Seen = field(default_factory=Seen)
    sent: int = 0
    originals: int = 0
    repeats: int = 0
    without_reference: int = 0
    lost: int = 0
    dated_anew: int = 0
    pinned: int = 0

    def lines(self, topic: str) -> list[str]:
        verb = "would send" if self.dry else "sent"
        sentences = [f"{self.seen.sentence()}", f"{verb} {self.sent:,} of them back to {topic}"]
        if self.originals:
            sentences[-1] += f", {self.originals:,} as whole original messages"
        if self.repeats:
            sentences.append(f"{self.repeats:,} repeat what another letter asks for")
        if self.without_reference:
            sentences.append(
                f"{self.without_reference:,} have no reference (inline rows, or no reference at "
                "all): --originals sends their messages again, whole"
            )
        if self.lost:
            sentences.append(
                f"{self.lost:,} have neither reference nor bytes: their message was too large to "
                "keep and is only on the input topic, at the letter's source"
            )
        if self.pinned:
            sentences.append(
                f"{self.pinned:,} name a version of their object, and might replace the result of "
                "a newer one: --latest sends the present versions"
            )
        if self.dated_anew:
            sentences.append(
                f"{self.dated_anew:,} have no event_time, so their results get today's {{date}} "
                "and replace no earlier ones"
            )
        return sentences


async def redrive(
    cfg: config.Config,
    choice: Choice,
    how: Redriven,
    *,
    originals: bool,
    latest: bool,
    whole: bool,
    progress: OnRead,
) -> None:
    """Send back the references of the chosen letters. `how` is kept up to date meanwhile.
    `originals`: True if the whole original message is sent for a letter without a reference.
    `latest`: True if the objects are asked for in their present versions instead of the versions
    that failed. `whole`: True if all rows are asked for, so that the object has one result again.
    """
    asked = _AskedRows()
    elsewhere: dict[Source, DeadLetter] = {}
    async with (
        open_reader(cfg.kafka, "read_committed") as reader,
        _sending(cfg, how, reader) as send,
    ):
        async with aclosing(letters(cfg, reader, choice, how.seen, progress)) as filings:
            async for filed in filings:
                letter = filed.letter
                if letter.reference is None and not originals:
                    how.without_reference += 1
                elif whole and not latest and letter.reference and letter.reference.version_id:
                    how.pinned += 1
                elif (value := _message(letter, latest=latest, whole=whole)) is None:
                    _remember(elsewhere, letter, how)
                elif not (left := _asks(asked, letter, value, latest=latest, whole=whole)):
                    how.repeats += 1
                else:
                    how.dated_anew += how.is_dated and letter.event_time is None
                    how.originals += letter.reference is None
                    for part in left:
                        await send(letter, part)
        await _send_elsewhere(cfg, reader, send, how, asked, elsewhere)


def _remember(elsewhere: dict[Source, DeadLetter], letter: DeadLetter, how: Redriven) -> None:
    """Note a letter that does not hold its message. Only the first letter about a message holds the
    message, so that letter must be looked for later.
    """
    if letter.source in elsewhere or len(elsewhere) >= REMEMBERED:
        how.repeats += letter.source in elsewhere
        how.lost += letter.source not in elsewhere
    else:
        elsewhere[letter.source] = letter


async def _send_elsewhere(
    cfg: config.Config,
    reader: Reader,
    send: _Send,
    how: Redriven,
    asked: "_AskedRows",
    elsewhere: dict[Source, DeadLetter],
) -> None:
    """Send the messages of the letters in `elsewhere`, which do not hold their messages. For each,
    the letter that holds the message is looked for among all letters, not only among the chosen
    ones.
    """
    for source in [source for source, letter in elsewhere.items() if asked.knows(_wanted(letter))]:
        how.repeats += 1
        del elsewhere[source]
    if not elsewhere:
        return
    async with aclosing(letters(cfg, reader, Choice(), Seen(), lambda *_: None)) as filings:
        async for filed in filings:
            letter = filed.letter
            is_wanted = letter.reference is None and letter.source in elsewhere
            if is_wanted and (value := _message(letter, latest=False, whole=False)) is not None:
                del elsewhere[letter.source]
                how.originals += 1
                await send(letter, value)
    how.lost += len(elsewhere)


def fields_of_results(cfg: config.Config) -> frozenset[str]:
    """The fields of the template by which results are named. Raises `Fatal` if a result is named by
    its message, so that no new message can replace it.
    """
    if cfg.output.objects is None:
        return frozenset()
    template = parsed(cfg.output.objects)
    if template.names_records(is_one_input=True):
        raise usage(
            "--whole-objects replaces results, but output.objects names them by {partition} and "
            "{offset} of a message; name them by {key}"
        )
    return template.fields


def _message(letter: DeadLetter, *, latest: bool, whole: bool) -> bytes | None:
    """The bytes to send for a letter: its reference, or the original message. None: the letter
    holds neither.
    """
    reference = letter.reference
    if reference is None:
        try:
            return b64decode(letter.value_b64) if isinstance(letter.value_b64, str) else None
        except binascii.Error:
            return None  # not a letter of ours
    if whole:
        reference = structs.replace(reference, rows=None)
    return _encoded(reference, latest=latest)


def _encoded(reference: Reference, *, latest: bool) -> bytes:
    if latest:
        reference = structs.replace(reference, version_id=None, etag=None, size=None)
    return encode_reference(reference)


def _key(letter: DeadLetter) -> bytes:
    """The Kafka key for the letter's message: the one that it had, or the name of its stream."""
    with suppress(binascii.Error):  # not a letter of ours
        if isinstance(letter.key_b64, str):
            return b64decode(letter.key_b64)
    return letter.stream.encode()


class _AskedRows:
    """Remembers which rows were asked for lately, to recognise repeats."""

    def __init__(self) -> None:
        # This is an `OrderedDict`, because a plain dict needs ever longer to find its first key the
        # more keys before it were deleted. The ranges of a key are ascending and disjoint.
        self._known: OrderedDict[bytes, list[tuple[int, int]]] = OrderedDict()
        self._ranges = 0

    def knows(self, wanted: bytes) -> bool:
        return wanted in self._known

    def left(self, wanted: bytes, rows: Sequence[RowRange]) -> list[RowRange]:
        """Those of the rows that nothing asked for yet. From here on they are asked for."""
        known = self._known.setdefault(wanted, [])
        self._known.move_to_end(wanted)
        before = len(known)
        left: list[RowRange] = []
        for start, stop in rows:
            end = MAX_INTEGER if stop is None else stop
            first = bisect_left(known, start, key=itemgetter(1))
            last = bisect_right(known, end, first, key=itemgetter(0))
            at = start
            for begin, until in known[first:last]:
                if at < begin:
                    left.append((at, begin))
                at = max(at, until)
            if at < end:
                left.append((at, stop))
            joined = [(start, end), *known[first:last]]
            known[first:last] = [(min(joined)[0], max(joined, key=itemgetter(1))[1])]
        self._ranges += len(known) - before
        while self._ranges > REMEMBERED and len(self._known) > 1:
            self._ranges -= len(self._known.popitem(last=False)[1])
        return left


def _asks(
    asked: _AskedRows, letter: DeadLetter, value: bytes, *, latest: bool, whole: bool
) -> list[bytes]:
    """The messages for those rows of a letter that nothing asked for yet. `value`: the message for
    all of its rows.
    """
    reference = letter.reference
    if reference is None or whole:
        wanted = _wanted(letter) if reference is None else _digest(value)
        return [value] if asked.left(wanted, _ALL) else []
    rows = _ALL if reference.rows is None else reference.rows
    left = asked.left(_wanted(letter), rows)
    if left == list(rows):
        return [value]
    parts = (tuple(left[at : at + MAX_RANGES]) for at in range(0, len(left), MAX_RANGES))
    return [_encoded(structs.replace(reference, rows=part), latest=latest) for part in parts]


def _wanted(letter: DeadLetter) -> bytes:
    """A key for what a letter asks for, besides its rows. If the letter names no object, the key is
    the place of its message. Otherwise the key has the place, the object and the model. It has the
    object because two messages have the same place if the input topic was created again.
    """
    if letter.object is None:
        return _digest(msgpack.encode(letter.source))
    read = letter.object
    place = (read.store, read.bucket, read.key)
    return _digest(msgpack.encode((letter.source, letter.object_index, place, letter.model)))


def _digest(data: bytes) -> bytes:
    return blake2b(data, digest_size=16).digest()


@asynccontextmanager
async def _sending(cfg: config.Config, how: Redriven, reader: Reader) -> AsyncIterator[_Send]:
    """Gives the block a function that sends a message back to the input topic that it came from. In
    a dry run this function only counts.
    """

    async def count(letter: DeadLetter, value: bytes) -> None:
        how.sent += 1

    if how.dry:
        yield count
        return
    async with announcing(cfg.kafka) as announcer:
        # A mapping from each input topic to the number of its partitions.
        wide = {topic: await announcer.partitions(topic) for topic in await reader.inputs()}

        async def send(letter: DeadLetter, value: bytes) -> None:
            source = letter.source
            is_there = source.partition < wide.get(source.topic, 0)
            await announcer.send(
                value,
                _key(letter),
                source.partition if is_there else None,
                topic=source.topic if source.topic in wide else None,
            )
            how.sent = announcer.acknowledged

        try:
            yield send
            await announcer.settle()
        finally:
            how.sent = announcer.acknowledged
