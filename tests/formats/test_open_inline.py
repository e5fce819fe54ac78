"""An object that is decoded where it arrives has the rows that a decoder would give it."""

import gzip
from collections.abc import Sequence
from itertools import product

import pytest

from penstock.core.rows.payload import BytesRows, Form
from penstock.errors import Poison
from penstock.formats.pictures.pixels import PictureOptions, PixelOptions
from penstock.formats.reading import decoded, open_inline
from penstock.formats.registry import claim_of
from penstock.formats.runs import RowOptions, Run
from tests.formats.picture_bodies import png

NAMES = ["x", "x.csv", "x.csv.gz", "x.json", "x.ndjson.gz", "x.txt", "x.bin", "x.tar.gz", "x.zst"]
BODIES = [
    b"",
    b"\n",
    b"\x1f",
    b"\x1f\x8b",
    b"1,2\n3,4",
    b"a,b\n1,2\n\n3,x\n",
    b"[[1,2],[3,4]]",
    b"[1,2]\n[3,4]\n",
    b'{"a":1}\n{"a":',
    b"\x28\xb5\x2f\xfd",
    b"\x50\x2a\x4d\x18\x00\x00\x00\x00",
    b"\x00\x01\x02",
    b"\xef\xbb\xbf1,2\n",
    "gr\u00f6\u00dfer\n".encode("latin-1"),
]
PACKED = [gzip.compress(body, mtime=0) for body in BODIES] + [
    gzip.compress(BODIES[4], mtime=0)[:-5],
    gzip.compress(BODIES[4], mtime=0) + b"garbage",
    gzip.compress(BODIES[4], mtime=0) * 2,
]
MOST_BYTES = 1_000


def told(runs: Sequence[Run], failure: Poison | None) -> tuple[list[object], str | None]:
    """Row by row: the bytes of a good one is what a model gets."""
    rows: list[object] = []
    for run in runs:
        for row in range(run.rows):
            good = run.payload.cut(row, row + 1) if run.payload is not None else None
            rows.append(run.error if good is None else repr(good.owned()))
    return rows, None if failure is None else failure.code


def inline(
    options: RowOptions, data: bytes, key: str, compression: str | None
) -> tuple[list[object], str | None] | None:
    runs: list[Run] = []
    try:
        reading = open_inline(options, data, MOST_BYTES, claim_of(key, compression=compression))
        if reading is None:
            return None
        for turn in reading:
            runs += turn.runs
    except Poison as poison:
        return told(runs, poison)
    return told(runs, None)


def by_decoder(
    options: RowOptions, data: bytes, key: str, compression: str | None
) -> tuple[list[object], str | None]:
    runs: list[Run] = []
    try:
        for some in decoded(options, data, 7, claim_of(key, compression=compression)):
            runs += some
    except Poison as poison:
        return told(runs, poison)
    return told(runs, None)


@pytest.mark.parametrize("form", ["matrix", "json", "bytes"])
@pytest.mark.parametrize("format", ["auto", "text", "bytes"])
def test_it_is_read_as_a_decoder_reads_it(form: Form, format: str) -> None:
    options = RowOptions(form=form, format=format)
    inlined = 0
    for key, data, compression in product(NAMES, BODIES + PACKED, (None, "none")):
        reading = inline(options, data, key, compression)
        if reading is not None:
            inlined += 1
            assert reading == by_decoder(options, data, key, compression), (key, data, compression)
    assert inlined


@pytest.mark.parametrize("key", ["x.png", "x"])
def test_a_picture_is_for_a_decoder_where_its_pixels_are_wanted(key: str) -> None:
    picture, pixels = png(2, 1), PictureOptions(image=PixelOptions(2, 1))
    assert open_inline(RowOptions(form="bytes"), picture, MOST_BYTES, claim_of(key)) is not None
    assert open_inline(RowOptions(own=(pixels,)), picture, MOST_BYTES, claim_of(key)) is None
    # Text beside pictures has no pixels.
    assert (
        open_inline(RowOptions(own=(pixels,)), b"1,2\n", MOST_BYTES, claim_of("x.csv")) is not None
    )


def test_a_wide_line_of_a_csv_is_for_a_decoder() -> None:
    wide = b",".join([b"1"] * 3_000) + b"\n"
    options = RowOptions()
    assert open_inline(options, wide, 1 << 20, claim_of("x.csv")) is None
    assert open_inline(options, b"1,2\n" * 9_000, 1 << 20, claim_of("x.csv")) is not None
    assert open_inline(options, b"1,2\n" * 9_000 + wide, 1 << 20, claim_of("x.csv")) is None
    assert open_inline(options, b"[%b]" % wide.strip(), 1 << 20, claim_of("x.json")) is not None
    few = b",".join([b"1234567"] * 2_000) + b"\n"
    assert open_inline(options, few * 3, 1 << 20, claim_of("x.csv")) is not None


@pytest.mark.parametrize(
    ("key", "line", "lines", "is_read"),
    [
        ("x.csv", b"1234567890," * 9 + b"1\n", 8_000, True),
        ("x.ndjson", b"[%b1]\n" % (b"1234567890," * 9), 8_000, True),
        ("x.txt", b"word " * 20 + b"\n", 8_000, True),
        ("x.csv", b"123456789,123456789\n", 20_000, False),
        ("x.ndjson", b"[123456789,1234567]\n", 20_000, False),
        # Its elements may be many though its lines are few.
        ("x.json", b"[%b1]," % (b"1234567890," * 9), 8_000, False),
    ],
)
def test_a_large_object_of_few_lines_is_read_here_and_no_other(
    key: str, line: bytes, lines: int, is_read: bool
) -> None:
    options = RowOptions(form="json")
    data = line * lines
    if key == "x.json":
        data = b"[\n" + b"\n".join(line for _ in range(lines))[:-1] + b"]"
    assert 256 << 10 < len(data) < 1 << 20
    assert (open_inline(options, data, 1 << 20, claim_of(key)) is not None) == is_read
    packed = gzip.compress(data)
    assert open_inline(options, packed, 1 << 20, claim_of(f"{key}.gz")) is None
    # The rows of a message have a bound of their own.
    assert open_inline(options, data, None, claim_of(key)) is not None


@pytest.mark.parametrize("key", ["x.bin", "x.png"])
def test_a_large_object_that_is_one_row_as_it_is_is_read_here(key: str) -> None:
    options = RowOptions(form="bytes")
    data = png(4, 4) + bytes(600_000)
    reading = open_inline(options, data, 1 << 20, claim_of(key))
    assert reading is not None
    (run,) = [run for turn in reading for run in turn.runs]
    assert isinstance(run.payload, BytesRows)
    assert (run.rows, bytes(run.payload.row(0))) == (1, data)
    assert open_inline(options, data, 500_000, claim_of(key)) is None


@pytest.mark.parametrize("key", ["x.csv", "x.ndjson", "x.json"])
def test_a_long_line_is_for_a_decoder_where_it_is_taken_apart(key: str) -> None:
    data = b'["%b"]\n' % (b"x" * 70_000)
    options = RowOptions(form="json")
    assert open_inline(options, data, 1 << 20, claim_of(key)) is None
    assert open_inline(options, data, 1 << 20, claim_of("x", "text")) is not None


@pytest.mark.parametrize(
    ("key", "data"),
    [("x.json", b"[" + b"[]," * 20_000 + b"[]]"), ("x.ndjson", b"{}\n" * 20_000)],
)
def test_rows_that_are_read_one_by_one_come_in_portions(key: str, data: bytes) -> None:
    reading = open_inline(RowOptions(form="json"), data, 1 << 20, claim_of(key))
    assert reading is not None
    rows = [sum(run.rows for run in turn.runs) for turn in reading]
    assert sum(rows) in (20_000, 20_001)
    assert max(rows) <= 2 * 512
