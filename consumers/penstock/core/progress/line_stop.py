"""When does a line stop, and in which words does an operator let it go on? (pipeline/stopped_lines
hears them.) A line is a partition or, with order by stream, one stream of a partition.

Rule: a line stops before the dead letter that would be one too many for its stream; the object at
which it stops is not answered. Of each record only the first failed object counts: a record that
names a hundred missing objects would otherwise stop its line after every restart. Beyond
`MAX_STREAMS` streams the one silent longest is forgotten.

An operator says a `Word` about one stop, which the word names by stream and offset. It is obeyed
once: the worker marks it when the record of the stop is answered, or the line has stopped there
again. The words of a partition are one short text with the newest last.
"""

import hashlib
import re
import zlib
from collections.abc import Collection, Iterable, Sequence
from typing import Any, Literal, NamedTuple

# `ratio` is the share of failed objects among this many last objects of a stream. Fewer objects are
# too small a sample.
WINDOW = 100
_ALL = (1 << WINDOW) - 1
# Each stream takes about 200 bytes, so all of them take 2 MB per partition. A longer name than this
# is kept as its digest, because a name may have 16 kB.
MAX_STREAMS = 10_000
_KEPT_CHARS = 64


class LineLimits(NamedTuple):
    """A line stops in two cases: more than `ratio` of the last 100 objects of one stream failed; or
    more than `consecutive` objects of one stream failed in a row. 0 turns a limit off.
    """

    ratio: float
    consecutive: int

    @property
    def digest(self) -> str:
        """Four hexadecimal digits, by which a worker sees that the limits were changed."""
        return f"{zlib.crc32(f'{self.ratio:g}/{self.consecutive}'.encode()) & 0xFFFF:04x}"


NO_LIMITS = LineLimits(0.0, 0)


class LineStop(NamedTuple):
    """Where a line stopped, at which dead letter, and by which limit. `row`: the row that failed;
    None: the object as a whole failed. `record_ms`: the timestamp of the record at which the line
    stopped.
    """

    topic: str
    partition: int
    stream: str
    offset: int
    object_index: int
    row: int | None
    code: str
    message: str
    limit: str
    since_ms: int
    record_ms: int

    @property
    def keys(self) -> dict[str, Any]:
        """The keys of a log line about the stop, besides those of the partition."""
        known = {"stream": self.stream, "object_index": self.object_index, "code": self.code}
        return known if self.row is None else known | {"row": self.row}

    def __str__(self) -> str:
        place = f"{self.topic}/{self.partition}, offset {self.offset}, object {self.object_index}"
        where = place if self.row is None else f"{place}, row {self.row}"
        message = self.message if self.message.isprintable() else repr(self.message)
        return f"stream {self.stream!r} at {where}: {self.limit}; now {self.code}: {message}"


class Passing(NamedTuple):
    """Dead letters of this stream stop no line at the records from `first` to `last`."""

    stream: str
    first: int
    last: int


class _Stream:
    """The account of one stream. `recent`: one bit for each of the last objects, 1 if the object
    has a dead letter. `failing`: the object that is leaving now has a dead letter. `failed_record`:
    the offset of the record whose failure was counted last.
    """

    __slots__ = ("failed_record", "failing", "in_a_row", "recent", "seen")

    def __init__(self) -> None:
        self.recent = 0
        self.seen = 0
        self.in_a_row = 0
        self.failing = False
        self.failed_record = -1

    def exceeds(self, limits: LineLimits) -> str | None:
        """The text of the limit that one more failed object would exceed; None: no limit would be
        exceeded.
        """
        failed = (self.recent << 1 & _ALL | 1).bit_count()
        if limits.ratio and self.seen + 1 >= WINDOW and failed > limits.ratio * WINDOW:
            return (
                f"{failed} of its last {WINDOW} objects failed, limits.dlq_ratio is {limits.ratio}"
            )
        if limits.consecutive and self.in_a_row >= limits.consecutive:
            return (
                f"{self.in_a_row + 1} of its objects failed in a row, "
                f"limits.dlq_consecutive is {limits.consecutive}"
            )
        return None

    def finish(self, offset: int) -> None:
        if self.failing and offset == self.failed_record:
            self.failing = False
            return
        if self.failing:
            self.failed_record = offset
        self.recent = self.recent << 1 & _ALL | self.failing
        self.seen = min(self.seen + 1, WINDOW)
        self.in_a_row = self.in_a_row + 1 if self.failing else 0
        self.failing = False


class LetterAccount:
    """Counts the dead letters of one lane. `stopped_at`: the records at which lines stopped under
    the present limits, in this assignment or a former one. A dead letter for one of these records
    stops its line at once, because otherwise each restart would let as many dead letters through as
    the limits allow, until the cause is mended. `passing`: the records whose dead letters may
    always leave, whatever the limits are.
    """

    def __init__(
        self,
        limits: LineLimits,
        stopped_at: Collection[int] = (),
        passing: Collection[Passing] = (),
    ) -> None:
        self.limits = limits
        self._is_off = limits == NO_LIMITS
        self.stopped_at = set[int]() if self._is_off else set(stopped_at)
        self._passing = passing
        self._streams: dict[str | bytes, _Stream] = {}

    def refuses(self, stream: str, offset: int, *, failed: bool, finished: bool) -> str | None:
        """Ask this before each group of answers of one object leaves. `failed`: a dead letter
        leaves with the group; `finished`: the object's last answer is in the group. Returns None if
        the group may leave, otherwise the limit that forbids it.
        """
        if self._is_off:
            return None
        name = stream if len(stream) <= _KEPT_CHARS else _digest(stream)
        account = self._streams.pop(name, None) or self._opened()
        self._streams[name] = account
        passes = bool(self._passing) and any(
            passing.stream == stream and passing.first <= offset <= passing.last
            for passing in self._passing
        )
        if failed and not account.failing:
            if not passes and (limit := self._limit_of(account, offset)):
                return limit
            account.failing = True
        if finished:
            account.finish(offset)
            self.stopped_at.discard(offset)
            if passes:
                self._streams[name] = _Stream()
        return None

    def _limit_of(self, account: _Stream, offset: int) -> str | None:
        if offset in self.stopped_at:
            return "it failed here before, and stopped"
        return account.exceeds(self.limits) if offset != account.failed_record else None

    def _opened(self) -> _Stream:
        if len(self._streams) >= MAX_STREAMS:
            del self._streams[next(iter(self._streams))]
        return _Stream()


def _digest(stream: str) -> bytes:
    return hashlib.blake2b(stream.encode(errors="surrogatepass"), digest_size=16).digest()


WORDS_PREFIX = "l1:"
# A commit's metadata takes 4,096 characters, and a word has at most 74 characters. So this many
# words always fit.
MOST_WORDS = 50
_WORD = re.compile(
    r"(resume|skip)\.(-|[0-9a-f]{1,16})(?:~([0-9a-f]{1,16}))?\.([0-9a-f]{16})\.([0-9a-f]{1,14})(\+?)"
)

# What is to happen to the object at which the line stopped. `resume`: the object is tried again;
# `skip`: the object is answered by its error.
Verb = Literal["resume", "skip"]


class Word(NamedTuple):
    """What an operator says about one stop. `offset`: where the line has stopped; None: wherever it
    stands when the word is heard. `stream`: the digest of the stream's name. `number` is unique
    among the words about a stream. `is_done`: a worker has obeyed it. `until`: the word is about
    all stops of the stream up to this offset; None: about one.
    """

    verb: Verb
    offset: int | None
    stream: str
    number: int
    is_done: bool = False
    until: int | None = None

    def is_about(self, stop: LineStop) -> bool:
        last = self.offset if self.until is None else self.until
        is_there = self.offset is None or self.offset <= stop.offset <= (last or 0)
        return is_there and self.stream == stream_digest(stop.stream)


def stream_digest(stream: str) -> str:
    return hashlib.sha256(stream.encode()).hexdigest()[:16]


def encode_words(words: Sequence[Word]) -> str:
    """The words as one text. If they are too many, the oldest are left out, those first that were
    obeyed.
    """
    spare = [word for word in words if word.is_done][: max(0, len(words) - MOST_WORDS)]
    kept = [word for word in words if word not in spare][-MOST_WORDS:]
    return f"{WORDS_PREFIX}{';'.join(map(_encoded, kept))}"


def _encoded(word: Word) -> str:
    where = "-" if word.offset is None else f"{word.offset:x}"
    where += "" if word.until is None else f"~{word.until:x}"
    return f"{word.verb}.{where}.{word.stream}.{word.number:x}{'+' if word.is_done else ''}"


def decode_words(text: str) -> list[Word]:
    """The words of a text. Parts that cannot be read are left out."""
    parts = map(_WORD.fullmatch, text.removeprefix(WORDS_PREFIX).split(";"))
    return [
        Word(
            part[1],  # type: ignore[arg-type]
            None if part[2] == "-" else int(part[2], 16),
            part[4],
            int(part[5], 16),
            part[6] == "+",
            None if part[3] is None else int(part[3], 16),
        )
        for part in parts
        if part is not None
    ]


def obeyed(words: Iterable[Word], done: Collection[Word]) -> list[Word]:
    """The words, with those in `done` marked. A mark stays for a while, because a word that were
    only removed could be said a second time by a command that has read the words before.
    """
    return [word._replace(is_done=True) if word in done else word for word in words]
