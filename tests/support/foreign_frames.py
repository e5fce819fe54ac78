"""Frames as other programs write them: Pillow, ImageMagick, ffmpeg and libvips, JPEG and PNG.

Rule: each writer is given the same pictures and writes files of its own. A program that is not on
the machine writes none; Pillow always does.
"""

import shutil
import subprocess
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
from PIL import Image

SIZE = (160, 120)
KINDS = ("jpg", "png")


def scene(number: int) -> Image.Image:
    """A picture that differs from its neighbours: a bright square on the move, over noise."""
    random = np.random.default_rng(number)
    pixels = random.integers(0, 60, (SIZE[1], SIZE[0], 3), np.uint8)
    left, top = 7 * number % (SIZE[0] - 50), 5 * number % (SIZE[1] - 40)
    pixels[top : top + 40, left : left + 50] = random.integers(80, 256, 3, np.uint8)
    return Image.fromarray(pixels)


def sources(folder: Path, count: int, first: int) -> list[Path]:
    paths = [folder / f"s{number:05}.png" for number in range(first, first + count)]
    for number, path in enumerate(paths, first):
        scene(number).save(path, compress_level=1)
    return paths


def pillow(sources: Sequence[Path], folder: Path, kind: str) -> None:
    for source in sources:
        Image.open(source).save(folder / f"{source.stem}.{kind}")


def imagemagick(sources: Sequence[Path], folder: Path, kind: str) -> None:
    _run(["mogrify", "-path", folder, "-format", kind, *sources])


def ffmpeg(sources: Sequence[Path], folder: Path, kind: str) -> None:
    first = int(sources[0].stem[1:])
    numbers = ["-start_number", first]
    pattern = sources[0].parent / "s%05d.png"
    _run(
        ["ffmpeg", "-v", "error", *numbers, "-i", pattern, "-frames:v", len(sources), "-q:v", 3,
         *numbers, folder / f"s%05d.{kind}"]
    )  # fmt: skip


def libvips(sources: Sequence[Path], folder: Path, kind: str) -> None:
    _run(["vipsthumbnail", "--size", f"{SIZE[0]}x", "-o", folder / f"%s.{kind}", *sources])


_WRITERS: tuple[tuple[str, Callable[[Sequence[Path], Path, str], None]], ...] = (
    ("mogrify", imagemagick),
    ("ffmpeg", ffmpeg),
    ("vipsthumbnail", libvips),
)


def cameras(folder: Path, frames: int) -> dict[str, list[Path]]:
    """Eight cameras with so many frames each, named by who wrote them: two for each writer here."""
    writers = [pillow, *(write for program, write in _WRITERS if shutil.which(program))]
    found: dict[str, list[Path]] = {}
    for number in range(8):
        write, kind = writers[number // 2 % len(writers)], KINDS[number % 2]
        name = f"{number}-{write.__name__}-{kind}"
        raw, own = folder / f"{name}.sources", folder / name
        raw.mkdir()
        own.mkdir()
        pictures = sources(raw, frames, number * frames)
        write(pictures, own, kind)
        found[name] = [own / f"{picture.stem}.{kind}" for picture in pictures]
    return found


def _run(command: Sequence[object]) -> None:
    subprocess.run([str(part) for part in command], check=True, capture_output=True)
