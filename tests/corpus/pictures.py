"""Hostile pictures where their pixels are wanted: cut short, lying, too large, no pictures."""

import io
import struct
from collections.abc import Iterator

from PIL import Image

from penstock.formats.pictures.pixels import PictureOptions, PixelOptions
from penstock.formats.runs import RowOptions
from tests.corpus.cases import Stored
from tests.formats import picture_bodies
from tests.formats.support import tar_of

# A model of JSON takes no pixels.
_NO_PIXELS = "end:bad_format"
_PIXELS = RowOptions(own=(PictureOptions(image=PixelOptions(4, 3), pixels=10_000),))
_KINDS = {
    "JPEG": ".jpg", "PNG": ".png", "WebP": ".webp", "TIFF": ".tif", "BMP": ".bmp", "GIF": ".gif",
}  # fmt: skip


def _drawn(kind: str) -> bytes:
    out = io.BytesIO()
    Image.effect_noise((40, 30), 80).convert("RGB").save(out, kind)
    return out.getvalue()


def _case(name: str, key: str, data: bytes, answer: str = "bad_row") -> Stored:
    return Stored(name, key, data, answer, _NO_PIXELS, _PIXELS)


def _cut_short() -> Iterator[Stored]:
    for kind, ending in _KINDS.items():
        data = _drawn(kind)
        yield _case(f"a whole {kind}", "x" + ending, data, "row")
        for tenth in range(1, 10):
            part = data[: len(data) * tenth // 10]
            yield _case(f"{tenth} tenths of a {kind}", "x" + ending, part)
        yield _case(f"a {kind} of its first 16 bytes", "x" + ending, data[:16])


def _claims(width: int, height: int) -> Iterator[Stored]:
    name = f"of {width} x {height}"
    yield _case(f"a PNG {name}", "x.png", picture_bodies.png(1, 1, said=(width, height)))
    yield _case(f"a BMP {name}", "x.bmp", picture_bodies.bmp(width, height))
    if max(width, height) < 1 << 16:
        yield _case(f"a TIFF {name}", "x.tif", picture_bodies.tiff("<", width, height))
        yield _case(f"a JPEG {name}", "x.jpg", picture_bodies.jpeg(width, height))
        yield _case(f"a GIF {name}", "x.gif", picture_bodies.gif(width, height))


def _odd() -> Iterator[Stored]:
    png = _drawn("PNG")
    bomb = picture_bodies.png(1, 1, said=(9**9, 9**9))
    yield _case("no picture at all", "x.jpg", b"hello, world")
    yield _case("a PNG without its pixels", "x.png", png[:33] + png[-12:])
    yield _case("a PNG with a wrong checksum", "x.png", png[:40] + b"\0\0" + png[42:])
    yield _case("a JPEG of markers", "x.jpg", b"\xff\xd8\xff" + b"\xff\xe0\0\2" * 5000)
    yield _case("a TIFF whose directory is itself", "x.tif",
                b"II*\0" + struct.pack("<IHHHII", 8, 1, 256, 3, 1, 8))  # fmt: skip
    yield _case("a WebP of nothing", "x.webp", b"RIFF\4\0\0\0WEBP")
    yield _case("a PNG named JPEG", "x.jpg", png, "row")
    yield Stored(
        "a bomb among pictures",
        "x.tar",
        tar_of({"1.png": png, "2.png": bomb, "3.png": png}),
        "row bad_row row",
        "end:bad_format",
        _PIXELS,
    )


PICTURES = [
    *_cut_short(),
    *_claims(0, 0), *_claims(0, 5), *_claims(101, 100), *_claims(65_535, 65_535),
    *_claims(2**31 - 1, 2**31 - 1), *_odd(),
]  # fmt: skip
