"""Pictures as other tools write them.

The known content is a scene of four colours with a black corner, so that each turn of it differs.
A tool that keeps every pixel must give it back exactly, the others nearly.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pillow_heif
import pytest
from PIL import Image

from tests.formats.picture_bodies import rgb_png
from tests.writers.support import (
    WAYS,
    Bad,
    Cell,
    File,
    Near,
    Refused,
    Way,
    compare,
    files,
    named,
    read,
    run,
)

pillow_heif.register_heif_opener()
PLAIN: Sequence[Way] = ("plain", "decoder")
Pixels = npt.NDArray[np.uint8]
WIDTH, HEIGHT = 64, 48
# The mean distance of a lossy writer's numbers, of 255. A picture that is turned has above 25.
LOSSY = 4.0


def scene() -> Pixels:
    pixels = np.zeros((HEIGHT, WIDTH, 3), np.uint8)
    half_height, half_width = HEIGHT // 2, WIDTH // 2
    pixels[:half_height, :half_width] = (200, 30, 40)
    pixels[:half_height, half_width:] = (40, 180, 60)
    pixels[half_height:, :half_width] = (30, 60, 220)
    pixels[half_height:, half_width:] = (240, 240, 230)
    pixels[:8, :8] = 0
    return pixels


SCENE = scene()
GREY = np.asarray(Image.fromarray(SCENE).convert("L"))
GREY_AS_RGB: Pixels = np.dstack([GREY] * 3)
LARGE: Pixels = SCENE.repeat(8, 0).repeat(8, 1)
# What each of EXIF's orientations says of the stored picture (Exif 2.32, 4.6.4): how it is shown.
SHOWN: dict[int, Callable[[Pixels], Pixels]] = {
    1: lambda stored: stored,
    2: lambda stored: stored[:, ::-1],
    3: lambda stored: stored[::-1, ::-1],
    4: lambda stored: stored[::-1],
    5: lambda stored: stored.transpose(1, 0, 2),
    6: lambda stored: np.rot90(stored, -1),
    7: lambda stored: stored[::-1, ::-1].transpose(1, 0, 2),
    8: np.rot90,
}


def rows_of(pixels: Pixels) -> dict[str, str]:
    height, width, _ = pixels.shape
    return {"image_size": f"{width}x{height}", "image_layout": "nhwc"}


def right(pixels: Pixels, lossy: float) -> list[object]:
    numbers: list[float] = pixels.astype(float).ravel().tolist()
    return [Near(numbers, lossy) if lossy else numbers]


def inputs(folder: Path) -> None:
    """The scene, in files that every tool reads."""
    (folder / "x.png").write_bytes(rgb_png(SCENE, 8))
    (folder / "frame1.png").write_bytes(rgb_png(SCENE, 8))
    (folder / "frame2.png").write_bytes(rgb_png(GREY_AS_RGB, 8))
    (folder / "x16.png").write_bytes(rgb_png(SCENE.astype(np.uint16) * 257, 16))
    (folder / "large.png").write_bytes(rgb_png(LARGE, 8))
    (folder / "x.ppm").write_bytes(b"P6 %d %d 255\n" % (WIDTH, HEIGHT) + SCENE.tobytes())
    (folder / "grey.pgm").write_bytes(b"P5 %d %d 255\n" % (WIDTH, HEIGHT) + GREY.tobytes())
    Image.fromarray(GREY).save(folder / "grey.png")
    alpha = np.full((HEIGHT, WIDTH, 1), 255, np.uint8)
    alpha[10:20, 30:50] = 100
    Image.fromarray(np.dstack([SCENE, alpha])).save(folder / "alpha.png")


def by(
    writer: str,
    command: str,
    name: str,
    shown: Pixels = SCENE,
    *,
    lossy: float = 0,
    refused: str | None = None,
    foreign: str | None = None,
) -> Cell:
    """A cell of commands, joined by `&&`. `>` names the file for the output of a command.
    `refused`: why the picture is a bad row; `foreign`: why the file is not read.
    """

    def write(folder: Path) -> File:
        inputs(folder)
        for one in command.split(" && "):
            words, _, out = one.partition(" > ")
            output = run(*words.split(), cwd=folder)
            if out:
                (folder / out).write_bytes(output)
        rows = [Bad(refused)] if refused is not None else right(shown, lossy)
        wanted = Refused(foreign) if foreign is not None else rows
        return File(name, (folder / name).read_bytes(), {"float32": wanted})

    ways = WAYS if foreign is None else PLAIN
    tools = sorted({one.split()[0] for one in command.split(" && ")})
    return Cell(writer, command, write, tools, rows_of(shown), ways)


def by_pillow(
    kind: str,
    option: str,
    make: Callable[[], Image.Image],
    shown: Pixels = SCENE,
    *,
    lossy: float = 0,
    refused: str | None = None,
    **settings: Any,
) -> Cell:
    def write(folder: Path) -> File:
        path = folder / f"x.{kind.lower()}"
        make().save(path, kind, **settings)
        rows = [Bad(refused)] if refused is not None else right(shown, lossy)
        return File(path.name, path.read_bytes(), {"float32": rows})

    return Cell("Pillow", f"{kind}, {option}", write, [], rows_of(shown))


def turned(orientation: int) -> list[Cell]:
    shown = SHOWN[orientation](SCENE)
    exif = Image.Exif()
    exif[0x0112] = orientation
    message = f"EXIF orientation {orientation}"
    kinds: Mapping[str, Mapping[str, Any]] = {
        "PNG": {}, "TIFF": {}, "WEBP": {"lossless": True}, "JPEG": {"quality": 95},
        "AVIF": {"quality": 95}, "HEIF": {"quality": 95},
    }  # fmt: skip
    lossy = {"JPEG": LOSSY, "AVIF": LOSSY, "HEIF": LOSSY}
    pillows = [
        by_pillow(
            kind, message, plain, shown, lossy=lossy.get(kind, 0), exif=exif.tobytes(), **settings
        )
        for kind, settings in kinds.items()
    ]
    tool = f"exiftool -q -overwrite_original -n -Orientation={orientation}"
    by_tools = [
        by("exiftool", f"cjpeg -quality 95 -sample 1x1 -outfile a.jpg x.ppm && {tool} a.jpg",
           "a.jpg", shown, lossy=LOSSY),
        by("avifenc", f"{tool} x.png && avifenc x.png a.avif", "a.avif", shown, lossy=LOSSY),
    ]  # fmt: skip
    return [*pillows, *(replace(cell, is_long=orientation != 5) for cell in by_tools)]


def plain() -> Image.Image:
    return Image.fromarray(SCENE)


def irots() -> Sequence[Cell]:
    """How a HEIF turns (anticlockwise) and then mirrors."""
    mirrors: dict[str, Callable[[Pixels], Pixels]] = {
        "": SHOWN[1], " --imir 0": SHOWN[4], " --imir 1": SHOWN[2],
    }  # fmt: skip
    cells = [
        by("avifenc", f"avifenc -l --irot {turns}{option} x.png a.avif", "a.avif",
           mirror(np.rot90(SCENE, turns)))
        for turns in range(4) for option, mirror in mirrors.items()
    ]  # fmt: skip
    return [replace(cell, is_long="--irot 1" not in cell.option) for cell in cells]


IM = "convert-im6.q16"
NOT_READ = "which is not read here; write JPEG or PNG"
FORM = "Pillow does not read; write it with 8 bits a channel"
CELLS: list[Cell] = [
    # HEIC
    by("heif-enc", "heif-enc -q 95 x.png -o a.heic", "a.heic", lossy=LOSSY),
    by("heif-enc", "heif-enc -L -p chroma=444 --matrix_coefficients=0 x.png -o a.heic", "a.heic",
       lossy=1),
    by("heif-enc", "heif-enc -q 95 alpha.png -o a.heic", "a.heic", lossy=LOSSY),
    by("heif-enc", "heif-enc -q 95 -t 16 x.png -o a.heic", "a.heic", lossy=LOSSY),
    by("heif-enc", "heif-enc -q 95 -b 10 x16.png -o a.heic", "a.heic", lossy=LOSSY),
    by("heif-enc", "heif-enc -q 95 -b 12 x16.png -o a.heic", "a.heic", lossy=LOSSY),
    by("heif-enc", "heif-enc grey.png -o a.heic", "a.heic", GREY_AS_RGB, lossy=LOSSY),
    by("heif-enc", "heif-enc x.png grey.png -o a.heic", "a.heic", lossy=LOSSY),
    by("heif-enc", "heif-enc x.png -o a.heif", "a.heif", lossy=LOSSY),
    by_pillow("HEIF", "in tiles", lambda: Image.fromarray(LARGE), LARGE, lossy=LOSSY,
              quality=95, tile_size=128),
    by("ImageMagick", f"{IM} x.png -quality 95 a.heic", "a.heic", lossy=LOSSY),
    by("libvips", "vips heifsave x.png a.heic --Q 95", "a.heic", lossy=LOSSY),
    # AVIF
    by("avifenc", "avifenc -l x.png a.avif", "a.avif"),
    by("avifenc", "avifenc x.png a.avif", "a.avif", lossy=LOSSY),
    by("avifenc", "avifenc -d 10 x16.png a.avif", "a.avif", lossy=LOSSY),
    by("avifenc", "avifenc -d 12 -y 422 x16.png a.avif", "a.avif", lossy=LOSSY),
    by("avifenc", "avifenc -r limited x.png a.avif", "a.avif", lossy=LOSSY),
    by("avifenc", "avifenc -l alpha.png a.avif", "a.avif"),
    by("avifenc", "avifenc -l -p alpha.png a.avif", "a.avif", lossy=1),
    by("avifenc", "avifenc -l --grid 2x2 large.png a.avif", "a.avif", LARGE),
    by("avifenc", "avifenc -l x.png grey.png a.avif", "a.avif"),
    by("avifenc", "avifenc -l --crop 16,8,32,24 x.png a.avif", "a.avif", refused="cropped (clap)"),
    *irots(),
    by("heif-enc", "heif-enc -A -q 95 x.png -o a.avif", "a.avif", lossy=LOSSY),
    by("ffmpeg", "ffmpeg -v error -i x.png -c:v libaom-av1 -still-picture 1 a.avif", "a.avif",
       lossy=LOSSY),
    by("libvips", "vips heifsave x.png a.avif --compression av1", "a.avif", lossy=LOSSY),
    # EXIF
    *[cell for orientation in SHOWN for cell in turned(orientation)],
    # JPEG
    by("cjpeg", "cjpeg -quality 95 -sample 1x1 -outfile a.jpg x.ppm", "a.jpg", lossy=LOSSY),
    by("cjpeg", "cjpeg -progressive -outfile a.jpg x.ppm", "a.jpg", lossy=LOSSY),
    by("cjpeg", "cjpeg -arithmetic -outfile a.jpg x.ppm", "a.jpg", lossy=LOSSY),
    by("cjpeg", "cjpeg -restart 1B -outfile a.jpg x.ppm", "a.jpg", lossy=LOSSY),
    by("cjpeg", "cjpeg -restart 1 -progressive -outfile a.jpg x.ppm", "a.jpg", lossy=LOSSY),
    by("cjpeg", "cjpeg -grayscale -outfile a.jpg x.ppm", "a.jpg", GREY_AS_RGB, lossy=LOSSY),
    by("cjpeg", "cjpeg -rgb -outfile a.jpg x.ppm", "a.jpg", lossy=LOSSY),
    by("jpegtran", "cjpeg -quality 95 -outfile a.jpg x.ppm && jpegtran -rotate 90 a.jpg > b.jpg",
       "b.jpg", np.rot90(SCENE, -1), lossy=LOSSY),
    by("ImageMagick", f"{IM} x.png -colorspace CMYK -quality 95 a.jpg", "a.jpg", lossy=LOSSY),
    by("ImageMagick", f"{IM} x.png -interlace Plane -quality 95 a.jpg", "a.jpg", lossy=LOSSY),
    by("libvips", "vips jpegsave x.png a.jpg --Q 95 --interlace", "a.jpg", lossy=LOSSY),
    by("GraphicsMagick", "gm convert x.png -quality 95 a.jpg", "a.jpg", lossy=LOSSY),
    by("ffmpeg", "ffmpeg -v error -i x.png -q:v 1 a.jpg", "a.jpg", lossy=LOSSY),
    by("netpbm", "pnmtojpeg --quality=95 x.ppm > a.jpg", "a.jpg", lossy=LOSSY),
    by_pillow("MPO", "two pictures", plain, lossy=LOSSY, quality=95, save_all=True,
              append_images=[Image.fromarray(GREY_AS_RGB)]),
    # PNG
    by("netpbm", "pnmtopng x.ppm > a.png", "a.png"),
    by("netpbm", "pnmtopng -interlace x.ppm > a.png", "a.png"),
    by("netpbm", "pnmtopng -force -compression=0 x.ppm > a.png", "a.png"),
    by("netpbm", "pnmtopng grey.pgm > a.png", "a.png", GREY_AS_RGB),
    by("ImageMagick", f"{IM} x.png png8:a.png", "a.png"),
    by("ImageMagick", f"{IM} alpha.png png64:a.png", "a.png"),
    by("ImageMagick", f"{IM} x16.png png48:a.png", "a.png"),
    by("ImageMagick", f"{IM} x.png -interlace PNG a.png", "a.png"),
    by("libvips", "vips pngsave x.png a.png --palette", "a.png"),
    by("GraphicsMagick", "gm convert x.png a.png", "a.png"),
    by("ffmpeg", "ffmpeg -v error -i x.png -pix_fmt rgb48be a.png", "a.png", lossy=1),
    by("apngasm", "apngasm a.png frame1.png frame2.png 1 10", "a.png"),
    by_pillow("PNG", "an animation", plain, save_all=True,
              append_images=[Image.fromarray(GREY_AS_RGB)]),
    by_pillow("PNG", "grey and alpha", lambda: Image.fromarray(GREY).convert("LA"), GREY_AS_RGB),
    by_pillow("PNG", "16 bit grey", lambda: Image.fromarray(GREY.astype(np.uint16) * 257),
              GREY_AS_RGB),
    # WebP
    by("cwebp", "cwebp -quiet -lossless x.png -o a.webp", "a.webp"),
    by("cwebp", "cwebp -quiet -q 95 x.png -o a.webp", "a.webp", lossy=LOSSY),
    by("cwebp", "cwebp -quiet -lossless -exact alpha.png -o a.webp", "a.webp"),
    by("img2webp", "img2webp -lossless x.png grey.png -o a.webp", "a.webp"),
    by("gif2webp", f"{IM} x.png grey.png a.gif && gif2webp -quiet a.gif -o a.webp", "a.webp"),
    by("ffmpeg", "ffmpeg -v error -i x.png -c:v libwebp -lossless 1 a.webp", "a.webp"),
    by("libvips", "vips webpsave x.png a.webp --lossless", "a.webp"),
    # GIF and BMP
    by("ImageMagick", f"{IM} x.png grey.png a.gif", "a.gif"),
    by("netpbm", "pamtogif -interlace x.ppm > a.gif", "a.gif"),
    by("ImageMagick", f"{IM} x.png bmp2:a.bmp", "a.bmp"),
    by("ImageMagick", f"{IM} x.png bmp3:a.bmp", "a.bmp"),
    by("ImageMagick", f"{IM} alpha.png a.bmp", "a.bmp"),
    by("GraphicsMagick", "gm convert x.png -type palette a.bmp", "a.bmp"),
    by("netpbm", "ppmtobmp -os2 x.ppm > a.bmp", "a.bmp"),
    by("netpbm", "ppmtobmp -windows x.ppm > a.bmp", "a.bmp"),
    by("ffmpeg", "ffmpeg -v error -i x.png a.bmp", "a.bmp"),
    # TIFF
    *[
        by("tiffcp", f"pamtotiff -truecolor -output=x.tif x.ppm && tiffcp {option} x.tif a.tif",
           "a.tif")
        for option in ("-8", "-8 -t -w 16 -l 16", "-8 -p separate", "-c lzw:2",
                       "-c zip:2", "-c packbits", "-c lzma", "-c zstd", "-p separate", "-B",
                       "-t -w 16 -l 16", "-r 5")
    ],
    by("tiffcp", "pamtotiff -truecolor -output=x.tif x.ppm && tiffcp -8 x.tif x.tif a.tif",
       "a.tif"),
    by("tiffcp", "pamtotiff -truecolor -output=x.tif x.ppm && tiffcp -8 -B x.tif a.tif",
       "a.tif", refused="write it with the low byte first"),
    by("ImageMagick", f"{IM} x.png grey.png a.tif", "a.tif"),
    by("ImageMagick", f"{IM} x.png tiff64:a.tif", "a.tif"),
    by("ImageMagick", f"{IM} x16.png -depth 16 a.tif", "a.tif"),
    by("ImageMagick", f"{IM} x.png -colorspace CMYK a.tif", "a.tif", lossy=LOSSY),
    by("ImageMagick", f"{IM} x.png -depth 32 a.tif", "a.tif", refused=FORM),
    by("libvips", "vips tiffsave x.png a.tif --bigtiff --tile --pyramid --subifd", "a.tif"),
    by("libvips", "vips tiffsave x.png a.tif --compression deflate --predictor horizontal",
       "a.tif"),
    by("GraphicsMagick", "gm convert x.png bigtiff:a.tif", "a.tif"),
    by("ImageMagick", f"{IM} grey.png -depth 12 a.tif", "a.tif", GREY_AS_RGB),
    by("netpbm", "pamtotiff -miniswhite -output=a.tif grey.pgm", "a.tif", GREY_AS_RGB),
    by("netpbm", "pamdepth 65535 grey.pgm > b.pgm && pamtotiff -miniswhite -output=a.tif b.pgm",
       "a.tif", GREY_AS_RGB),
    by("ffmpeg", "ffmpeg -v error -i x.png -c:v tiff -compression_algo deflate a.tif", "a.tif"),
    by_pillow("TIFF", "CMYK", lambda: plain().convert("CMYK")),
    by_pillow("TIFF", "floats", lambda: Image.fromarray(GREY).convert("F"),
              refused="floating-point pixels"),
    # What is not read
    *[
        by("ImageMagick", f"{IM} x.png {name}", name, foreign=NOT_READ)
        for name in ("a.ico", "a.psd", "a.pgm", "a.dds", "a.fits")
    ],
    by("ffmpeg", "ffmpeg -v error -i x.png a.jp2", "a.jp2", foreign="JPEG 2000"),
    by("ffmpeg", "ffmpeg -v error -i x.png -c:v libjxl a.jxl", "a.jxl", foreign="JPEG XL"),
]  # fmt: skip

CELLS.sort(key=lambda cell: cell.writer)  # the table has a line for each writer


@pytest.mark.parametrize("cell", named(CELLS))
def test_pixels_are_what_was_drawn(cell: Cell, tmp_path: Path) -> None:
    """And a model that takes pictures gets the bytes of the file."""
    for file in files(cell, tmp_path):
        for way in cell.ways:
            where = f"{cell}, {way}"
            seen = read(way, file.key, file.data, "float32", cell.rows)
            compare(seen, file.right["float32"], where)
            if way in PLAIN:
                compare(read(way, file.key, file.data, "bytes", {}), [file.data], where)
