"""Keeps a few of the last rows with their predictions, for people who look at the status page.

Rule: only if `http.samples` allows it, and only while somebody looks; afterwards all are forgotten.
At most one row a second from each stream in view, always a block's first; sizes are bounded.
"""

import itertools
from collections import deque
from collections.abc import Collection, Sequence
from typing import Final, NamedTuple

import orjson

from penstock.core.rows.blocks import Block
from penstock.core.rows.payload import BytesRows, Columns, JsonRows, Matrix, Payload
from penstock.formats.pictures.pixels import EncodedPicture, PixelOptions, Rgb, png, thumbnail
from penstock.ports import Answers, Clock

# An open page asks again within this time; if no page asks, nobody looks any more.
LOOKED_S: Final = 10.0
EVERY_S: Final = 1.0
# This many samples are kept of each stream. With 20 streams in view, and a picture of
# `MOST_PICTURE_BYTES` in each sample, all samples take some 30 MB.
LAST: Final = 3
MOST_PICTURE_BYTES: Final = 512 << 10
MOST_CHARS: Final = 500
MOST_NUMBERS: Final = 32
# Columns of a row that have more than this are not made into a text of which little is shown.
MOST_COLUMNS_BYTES: Final = 64 << 10
# At most this many samples are taken from one batch, because its answers wait while samples are
# taken.
MOST_OF_A_BATCH: Final = 4


class Sample(NamedTuple):
    """A row with its answer. `number`: a number that no other sample has. `object`: bucket and key
    of the row's object; None for inline rows.
    """

    number: int
    at_ms: int
    stream: str
    model: str
    topic: str
    partition: int
    offset: int
    object: str | None
    row: int
    input: str
    prediction: str | None
    error: str | None
    picture: EncodedPicture | Rgb | None


class Samples:
    """The samples that are kept. A page calls `look` to see some streams. For some time after that
    call, samples of these streams are taken.
    """

    def __init__(self, clock: Clock) -> None:
        self.clock = clock
        self._numbers = itertools.count(1)
        self._until_s = 0.0
        self._in_view: frozenset[str] = frozenset()
        self._kept: dict[str, deque[Sample]] = {}
        self._taken_s: dict[str, float] = {}

    def look(self, streams: Collection[str]) -> list[Sample]:
        """Put these streams in view. Returns the samples of these streams that are kept, the newest
        first.
        """
        self._until_s = self.clock.now() + LOOKED_S
        if self._in_view != streams:
            self._in_view = frozenset(streams)
            for name in self._kept.keys() - self._in_view:
                del self._kept[name], self._taken_s[name]
        samples = itertools.chain.from_iterable(self._kept.values())
        return sorted(samples, key=lambda sample: sample.number, reverse=True)

    def picture(self, number: int) -> EncodedPicture | None:
        """The picture of a sample. None: the sample has no picture, or is no longer kept."""
        every = itertools.chain.from_iterable(self._kept.values())
        picture = next((sample.picture for sample in every if sample.number == number), None)
        return picture if picture is None or isinstance(picture, EncodedPicture) else png(picture)

    def wants(self, stream: str, now_s: float) -> bool:
        if now_s >= self._until_s:
            self.forget()
        return stream in self._in_view and (now_s - self._taken_s.get(stream, -EVERY_S) >= EVERY_S)

    def forget(self) -> None:
        self._in_view = frozenset()
        self._kept.clear()
        self._taken_s.clear()

    def number(self) -> int:
        return next(self._numbers)

    def keep(self, sample: Sample, now_s: float) -> None:
        self._taken_s[sample.stream] = now_s
        self._kept.setdefault(sample.stream, deque(maxlen=LAST)).append(sample)


class Sampling:
    """Takes the samples of one model. `pixels`: how pictures are decoded for this model; None if
    they are not decoded.
    """

    def __init__(self, samples: Samples, model: str, pixels: PixelOptions | None) -> None:
        self._samples = samples
        self._model = model
        self._pixels = pixels

    def take(self, blocks: Sequence[Block], answers: Answers) -> None:
        """Take samples of a batch that was just answered. Call this before the blocks of the batch
        let go of their rows.
        """
        now_s, start, taken = self._samples.clock.now(), 0, 0
        for block in blocks:
            if taken < MOST_OF_A_BATCH and self._samples.wants(block.ticket.stream, now_s):
                self._samples.keep(self._sample(block, start, answers), now_s)
                taken += 1
            start += block.rows

    def _sample(self, block: Block, at: int, answers: Answers) -> Sample:
        ticket, reference = block.ticket, block.ticket.reference
        assert block.payload is not None
        row, error = block.payload.cut(0, 1), answers.errors.get(at)
        return Sample(
            self._samples.number(),
            self._samples.clock.wall_ms(),
            ticket.stream,
            self._model,
            *ticket.owner.where,
            ticket.record.offset,
            None if reference is None else f"{reference.bucket}/{reference.key}",
            block.first_row,
            in_words(row),
            None if error is not None else _text(answers.values[at]),
            error,
            thumbnail(row, self._pixels, MOST_PICTURE_BYTES),
        )


def in_words(row: Payload) -> str:
    """One row as a text that people can read."""
    if isinstance(row, Matrix):
        values = row.values[0, :MOST_NUMBERS].tolist()
        more = row.values.shape[1] - len(values)
        return ", ".join(f"{value:g}" for value in values) + (f" and {more:,} more" if more else "")
    if isinstance(row, JsonRows):
        return _text(bytes(row.body[: 4 * MOST_CHARS]))
    if isinstance(row, Columns) and row.nbytes <= MOST_COLUMNS_BYTES:
        values = row.batch.slice(0, 1).to_pylist()[0]
        return _text(orjson.dumps(values, default=str)[: 4 * MOST_CHARS])
    if isinstance(row, BytesRows):
        body = row.row(0)
        text = _text(bytes(body[: 4 * MOST_CHARS]))
        return text if text.isprintable() and "\ufffd" not in text else f"{len(body):,} bytes"
    return f"{row.nbytes:,} bytes"


def _text(body: bytes) -> str:
    text = body[: 4 * MOST_CHARS].decode(errors="replace")
    return text if len(text) <= MOST_CHARS else text[:MOST_CHARS] + " …"
