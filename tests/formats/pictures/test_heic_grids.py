"""A HEIC may say that its picture is a grid of one small tile, any number of times."""

import io
import struct

import pillow_heif
import pytest
from PIL import Image

from tests.formats.pictures.test_pixels import options
from tests.formats.support import decode, gzipped, matrix, tar_of

pillow_heif.register_heif_opener()

TILE = 64


def box(kind: bytes, *parts: bytes) -> bytes:
    body = b"".join(parts)
    return struct.pack(">I4s", 8 + len(body), kind) + body


def full(kind: bytes, version: int, *parts: bytes) -> bytes:
    return box(kind, struct.pack(">I", version << 24), *parts)


def content(data: bytes, *way: bytes) -> bytes:
    """The content of the box at the end of this way."""
    for kind in way:
        at = 0
        while data[at + 4 : at + 8] != kind:
            at += struct.unpack_from(">I", data, at)[0]
        begin = at + 8 + 4 * (kind == b"meta")
        data = data[begin : at + struct.unpack_from(">I", data, at)[0]]
    return data


def grid(columns: int, rows: int, said: tuple[int, int] | None = None) -> bytes:
    """A HEIC (ISO 23008-12, 6.6.2.3). `said`: the size that its head tells, else that of all."""
    written = io.BytesIO()
    Image.new("RGB", (TILE, TILE), (200, 10, 10)).save(written, "HEIF")
    coded = content(written.getvalue(), b"meta", b"iprp", b"ipco", b"hvcC")
    pixels = content(written.getvalue(), b"mdat")
    size = TILE * columns, TILE * rows
    layout = struct.pack(">BBBBII", 0, 1, rows - 1, columns - 1, *size)
    tiles = columns * rows
    reference = box(b"dimg", struct.pack(f">HH{tiles}H", 2, tiles, *[1] * tiles))
    properties = box(
        b"ipco",
        box(b"hvcC", coded),
        full(b"ispe", 0, struct.pack(">II", TILE, TILE)),
        full(b"ispe", 0, struct.pack(">II", *(said or size))),
    )
    uses = struct.pack(">IHBBBHBB", 2, 1, 2, 0x81, 2, 2, 1, 3)
    items = [full(b"infe", 2, struct.pack(">HH4sx", *item)) for item in ITEMS]

    def head(at: int) -> bytes:
        places = struct.pack(">HHHHII", 1, 0, 0, 1, at, len(pixels))
        places += struct.pack(">HHHHII", 2, 1, 0, 1, 0, len(layout))
        return box(b"ftyp", b"heic", bytes(4), b"mif1heic") + full(
            b"meta",
            0,
            full(b"hdlr", 0, bytes(4), b"pict", bytes(13)),
            full(b"pitm", 0, struct.pack(">H", 2)),
            full(b"iloc", 1, b"\x44\0", struct.pack(">H", 2), places),
            full(b"iinf", 0, struct.pack(">H", 2), *items),
            full(b"iref", 0, reference),
            box(b"iprp", properties, full(b"ipma", 0, uses)),
            box(b"idat", layout),
        )

    return head(len(head(0)) + 8) + box(b"mdat", pixels)


ITEMS = ((1, 0, b"hvc1"), (2, 0, b"grid"))


def test_a_grid_of_a_few_tiles_is_read() -> None:
    (row,) = matrix(decode(grid(2, 2), "x.heic", options()))
    assert row


@pytest.mark.parametrize(
    ("bomb", "why"),
    [
        (grid(64, 64), "Security limit exceeded"),
        (grid(250, 250), "16000 x 16000 pixels"),
        (grid(250, 250, said=(100, 100)), "Security limit exceeded"),
    ],
    ids=["tiles", "pixels", "a head that lies"],
)
def test_a_grid_of_thousands_of_tiles_is_a_bad_row_and_its_neighbours_are_read(
    bomb: bytes, why: str
) -> None:
    good = grid(2, 1)
    archive = tar_of({"1.heic": good, "2.heic": bomb, "3.heic": good})
    assert len(bomb) < 150_000
    first, bad, last = decode(gzipped(archive), "x.tgz", options())
    assert (first.error, last.error) == (None, None)
    assert bad.error is not None
    assert why in bad.error
