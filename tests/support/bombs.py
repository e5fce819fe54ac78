"""Small inputs that would make much: objects, messages and answers of a model, each by its name.

Rule: none is larger than 11 MB, most have a few kilobytes. What bounds each is in the table of
docs/guarantees.md, "What a small input may cost".
"""

import gzip
import io
import struct
import tarfile
import wave
import zlib
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import orjson
import pyarrow as pa
from backports import zstd

from tests.formats.picture_bodies import gif
from tests.formats.recordings import video
from tests.support.bomb_model import FOR_LONG_ANSWERS

_NUMBERS: Mapping[str, str] = {"MODEL__REQUEST": "float32"}
_PIXELS = {**_NUMBERS, "ROWS__IMAGE_SIZE": "224x224"}
_TILE, _TILES = 1_024, 81


class Bomb(NamedTuple):
    """An object under this name, and what else its messages say; or whole messages, where there is
    no object. `changes`: the settings under which it makes most. `times`: how often it is sent;
    once if a million rows are answered. `path`: of the model.
    """

    name: str
    body: Callable[[], bytes] | None = None
    fields: Mapping[str, Any] = {}
    messages: tuple[bytes, ...] = ()
    changes: Mapping[str, str] = {}
    times: int = 3
    path: str = "/rows"


def _column_names() -> bytes:
    out = io.BytesIO()
    batch = pa.RecordBatch.from_arrays([pa.nulls(3_000_000)], ["n" * 20_000])
    with pa.ipc.new_file(out, batch.schema) as writer:
        writer.write_batch(batch)
    return out.getvalue()


def _archive(members: Mapping[str, bytes]) -> bytes:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w:gz") as archive:
        for name, data in members.items():
            member = tarfile.TarInfo(name)
            member.size = len(data)
            archive.addfile(member, io.BytesIO(data))
    return out.getvalue()


def _audio() -> bytes:
    """Of one sample a second."""
    out = io.BytesIO()
    with wave.open(out, "wb") as file:
        file.setparams((1, 1, 1, 0, "NONE", ""))
        file.writeframes(bytes(20_000))
    return out.getvalue()


def tiled() -> bytes:
    """A TIFF of 85 million pixels, of which all tiles are the same bytes."""
    tile, side = zlib.compress(bytes(_TILE * _TILE), 9), int(_TILES**0.5) * _TILE
    at, count = 8, 10
    behind = at + len(tile)
    offsets, lengths = behind, behind + 4 * _TILES
    entries = [(256, side), (257, side), (258, 8), (259, 8), (262, 1), (277, 1)]
    entries += [(322, _TILE), (323, _TILE)]
    text = b"".join(struct.pack("<HHII", tag, 4, 1, value) for tag, value in entries)
    text += struct.pack("<HHII", 324, 4, _TILES, offsets)
    text += struct.pack("<HHII", 325, 4, _TILES, lengths)
    arrays = struct.pack(f"<{_TILES}I", *[at] * _TILES)
    arrays += struct.pack(f"<{_TILES}I", *[len(tile)] * _TILES)
    head = b"II*\0" + struct.pack("<I", behind + len(arrays))
    return head + tile + arrays + struct.pack("<H", count) + text + bytes(4)


def _inline(stream: str, rows: list[Any]) -> bytes:
    return orjson.dumps({"stream": stream, "inline": rows})


BOMBS = [
    Bomb("column names.arrow", _column_names, times=1),
    Bomb("member names.tar.gz", lambda: _archive({"n" * 4_000 + ".ndjson": b"1\n" * 2_000_000}),
         times=1),
    Bomb("attributes.ndjson.gz", lambda: gzip.compress(b"[1]\n" * 500_000),
         {"attributes": {"a": "x" * 64_000}}, times=1),
    Bomb("dead letters.ndjson.gz", lambda: gzip.compress(b"[1]\nx\n" * 250_000),
         {"attributes": {"a": "x" * 64_000}}, times=1),
    Bomb("pictures.tar.gz",
         lambda: _archive({f"{n}.gif": gif(8, 8) for n in range(5_000)}), changes=_PIXELS, times=1),
    Bomb("tiles.tar.gz", lambda: _archive({f"{n}.tiff": tiled() for n in range(10)}),
         changes=_PIXELS, times=1),
    Bomb("film.mp4", lambda: video(5_000, codec="libx264", rate=1000, size=(16, 16), still=True),
         changes=_PIXELS, times=1),
    Bomb("audio.wav", _audio, changes={**_NUMBERS, "ROWS__HOP_MS": "1"}),
    Bomb("zeros.ndjson.gz", lambda: gzip.compress(bytes(200 << 20))),
    Bomb("rows of a byte.ndjson.gz", lambda: gzip.compress(b"1\n" * 4_000_000), times=1),
    Bomb("frames of nothing.ndjson.zst", lambda: zstd.compress(b"") * 200_000),
    Bomb("levels.ndjson", lambda: (b"[" * 1_000 + b"1" + b"]" * 1_000 + b"\n") * 5_000),
    Bomb("streams",
         messages=tuple(_inline(f"{n}" + "x" * 16_000, [[1.0] * 16]) for n in range(2_000))),
    Bomb("references",
         messages=(orjson.dumps({"objects": [{"bucket": "b", "key": "no"}] * 25_000}),), times=1),
    Bomb("answers", messages=(_inline("long", [[FOR_LONG_ANSWERS] * 16] * 4),) * 4, path="/long"),
]  # fmt: skip
