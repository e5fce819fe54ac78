"""What a container can prove is proven: damage that a checksum covers is never answered by rows
that differ from the rows of the undamaged file.

A `Sample` is one undamaged object, with the places where damage can be proven. To add a format,
append samples to `SAMPLES` here, or make the module of the format's tests call `hold(sample)` for
its own. `hold` damages the object in many ways: a single bit is flipped, or one unit (a byte, and
each of `units`, such as a page) is lost. It reads the object after each damage, and compares its
rows with the undamaged rows: they must be the same rows, from the first one on, and if some are
missing or differ, the object must end with an error. In a format in which a bad row may stand for
damage (a picture in an archive), a row with an error may stand in the place of a row. Some formats
prove only at their end that something is missing (`by_end`): then rows may differ, if the object
ends with an error.

Damage in places that nothing covers (`proven` leaves them out) is tried, too. It may give other
rows; how often it did is in the table of docs/formats.md, which `DAMAGE_TABLE=1` prints.

`DAMAGES` is how many ways are tried for each sample: some in CI, 2,000 in `scripts/test long`.
"""

import io
import os
import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

import fastavro
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from penstock.errors import Poison, Unforeseen
from penstock.formats.reading import decoded
from penstock.formats.registry import claim_of
from penstock.formats.runs import Notices, RowOptions, Run
from tests.formats.support import Row, rows_of

DAMAGES = int(os.environ.get("DAMAGES", "24"))
IS_TOLD = bool(os.environ.get("DAMAGE_TABLE"))
_CHUNK_BYTES = 4_093

# Half-open ranges of bytes.
Span = tuple[int, int]


@dataclass(frozen=True)
class Sample:
    """`proven`: the spans that checksums or other proofs cover; None: the whole object. `units`:
    spans of which each may be lost as a whole. `least_proven`: at least this share of all damages
    in `proven` must have been seen as an error, so that a test cannot pass because nothing is read.
    `flips`: False if only what is lost is proven, and not a flipped bit.
    """

    name: str
    key: str
    data: bytes
    options: RowOptions = field(default_factory=lambda: RowOptions(form="json"))
    proven: Sequence[Span] | None = None
    units: Sequence[Span] = ()
    least_proven: float = 0.9
    by_end: bool = False
    flips: bool = True

    def __str__(self) -> str:
        return self.name


@dataclass
class Tally:
    proven: int = 0
    seen: int = 0
    open: int = 0
    silent: int = 0


def read(sample: Sample, data: bytes) -> tuple[list[Row], set[int], str | None]:
    """The rows of the object, the places of rows that are errors, and why it ended early."""
    object.__setattr__(sample.options, "notices", Notices(lambda text: None))
    runs: list[Run] = []
    failure = None
    try:
        for some in decoded(sample.options, data, _CHUNK_BYTES, claim_of(sample.key)):
            runs += some
    except Unforeseen:
        raise
    except Poison as poison:
        failure = str(poison)
    is_bad = [run.payload is None for run in runs for _ in range(run.rows)]
    return rows_of(runs), {place for place, bad in enumerate(is_bad) if bad}, failure


def is_silent(right: list[Row], rows: list[Row], bad: set[int], failure: str | None) -> bool:
    """True if rows differ from the undamaged rows, and no error says so. `bad`: the places of rows
    that are errors.
    """
    for place, (row, one) in enumerate(zip(rows, right, strict=False)):
        if place not in bad and not _same(row, one):
            return True
    return len(rows) > len(right) or (len(rows) < len(right) and failure is None)


def _same(row: Row, one: Row) -> bool:
    return row == one or repr(row) == repr(one)  # NaN is not equal to itself


def damages(sample: Sample, seed: int) -> Iterator[tuple[int, bool, bytes]]:
    """Where it is damaged; True if that can be proven; and the damaged object."""
    draw, data = random.Random(seed), sample.data
    spans = sample.proven if sample.proven is not None else [(0, len(data))]
    sizes = [stop - start for start, stop in spans]
    for number in range(DAMAGES):
        start, stop = draw.choices(spans, sizes)[0]
        if sample.proven is not None and number % 4 == 3:
            start, stop = 0, len(data)  # anywhere, to learn what nothing covers
        if sample.units and number % 4 == 1:
            first, end = draw.choice(sample.units)
            yield first, True, data[:first] + data[end:]
            continue
        place = draw.randrange(start, stop)
        is_covered = any(start <= place < stop for start, stop in spans)
        if number % 4 == 2:
            yield place, is_covered, data[:place] + data[place + 1 :]
        else:
            flipped = bytes([data[place] ^ 1 << draw.randrange(8)])
            yield place, is_covered and sample.flips, data[:place] + flipped + data[place + 1 :]


def hold(sample: Sample, seed: int = 38) -> Tally:
    """Fail if damage that can be proven gives other rows without an error."""
    right, bad, failure = read(sample, sample.data)
    assert (bad, failure) == (set(), None)
    assert len(right) > 1
    tally = Tally()
    for place, is_proven, data in damages(sample, seed):
        rows, bad, failure = read(sample, data)
        is_seen = failure is not None or bool(bad)
        silent = is_silent(right, rows, bad, failure) and not (sample.by_end and is_seen)
        if is_proven:
            tally.proven += 1
            tally.seen += is_seen
            assert not silent, f"{sample}: damage at byte {place} gave other rows without an error"
        else:
            tally.open += 1
            tally.silent += silent
    assert tally.seen >= sample.least_proven * tally.proven, tally
    if IS_TOLD:
        print(f"| {sample} | {tally.proven} | 0 | {tally.open} | {tally.silent} |")  # noqa: T201
    return tally


TABLE = pa.table(
    {
        "a": np.arange(240),
        "b": np.random.default_rng(1).normal(size=240),
        "s": [f"text {n % 50}" for n in range(240)],
    }
)


def parquet(**options: Any) -> Sample:
    """A file with checksums of pages. The footer, and the heads of pages, have none."""
    out = io.BytesIO()
    pq.write_table(
        TABLE, out, write_page_checksum=True, row_group_size=80, data_page_size=400, **options
    )
    data = out.getvalue()
    name = " ".join(["Parquet with page checksums", *map(str, options.values())])
    return Sample(name, "x.parquet", data, proven=list(pages(data)), units=list(pages(data)))


def pages(data: bytes) -> Iterator[Span]:
    """Where the content of each page is."""
    footer = pq.read_metadata(io.BytesIO(data))
    for number in range(footer.num_row_groups):
        for index in range(footer.num_columns):
            chunk = footer.row_group(number).column(index)
            at = chunk.dictionary_page_offset or chunk.data_page_offset
            stop = at + chunk.total_compressed_size
            while at < stop:
                head, nbytes = page_head(data, at)
                yield head, head + nbytes
                at = head + nbytes


def page_head(data: bytes, at: int) -> Span:
    """Where the page's content begins, and its length: field 3 of a struct in Thrift's compact
    protocol (apache/parquet-format, PageHeader).
    """
    last = nbytes = 0

    def number() -> int:
        nonlocal at
        value = shift = 0
        while True:
            byte = data[at]
            at += 1
            value |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                return value

    def skip(kind: int) -> int:
        nonlocal at
        if kind in (4, 5, 6):
            return (value := number()) >> 1 ^ -(value & 1)
        if kind == 8:
            length = number()
            at += length
        elif kind == 12:
            while byte := data[at]:
                at += 1
                if not byte >> 4:
                    number()
                skip(byte & 15)
            at += 1
        return 0

    while byte := data[at]:
        at += 1
        last = last + (byte >> 4) if byte >> 4 else number() >> 1
        value = skip(byte & 15)
        if last == 3:
            nbytes = value
    return at + 1, nbytes


def avro(codec: str) -> Sample:
    """Snappy, bzip2 and xz have a checksum in each block."""
    schema = {"type": "record", "name": "r", "fields": [
        {"name": "a", "type": "long"}, {"name": "b", "type": "double"},
        {"name": "s", "type": "string"},
    ]}  # fmt: skip
    out = io.BytesIO()
    fastavro.writer(out, schema, TABLE.to_pylist(), codec, sync_interval=1_500)
    data = out.getvalue()
    sync = data[-16:]
    ends = [place for place in range(len(data)) if data.startswith(sync, place)]
    blocks = [(start + 16, stop + 16) for start, stop in pairwise(ends)]
    covered = [(start + 8, stop) for start, stop in blocks]
    proven = covered if codec in ("snappy", "bzip2", "xz") else [(b - 16, b) for _, b in blocks]
    return Sample(f"Avro, {codec}", "x.avro", data, proven=proven)


SAMPLES = [
    parquet(),
    parquet(data_page_version="2.0"),
    parquet(compression="none", use_dictionary=False),
    parquet(compression="gzip"),
    parquet(compression="zstd"),
    *map(avro, ("null", "deflate", "snappy", "bzip2", "xz", "zstandard")),
]


@pytest.mark.parametrize("sample", SAMPLES, ids=str)
def test_damage_that_can_be_proven_never_gives_other_rows(sample: Sample) -> None:
    hold(sample)
