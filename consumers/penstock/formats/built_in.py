"""Our own formats. A new one is one file and one entry here; first bytes are shown to them in this
order.
"""

from functools import partial

from penstock.formats.archives import zip
from penstock.formats.format import Format, always, makes
from penstock.formats.media import audio, video
from penstock.formats.pictures import image
from penstock.formats.pictures.image import open_image
from penstock.formats.source import Read
from penstock.formats.tables import arrow, avro, npy, parquet
from penstock.formats.tables.arrow import read_arrow
from penstock.formats.tables.avro import AvroParser
from penstock.formats.tables.npy import NpyParser, read_npy
from penstock.formats.tables.parquet import read_parquet
from penstock.formats.text.csv import CsvParser
from penstock.formats.text.json_layout import open_json
from penstock.formats.text.text_and_bytes import open_bytes, open_text

_NUMBERS_OR_JSON = makes("matrix", "json", "columns")
_text = partial(Format, is_plain=always, is_text=True, may_be_empty=True)


def ours(read_zip: Read) -> tuple[Format, ...]:
    """All our formats. `read_zip` comes from the registry, because any format may read a zip's
    members.
    """
    return (
        _text("csv", _NUMBERS_OR_JSON, CsvParser, extensions=(".csv", ".tsv")),
        _text(
            "ndjson",
            _NUMBERS_OR_JSON,
            partial(open_json, "ndjson"),
            extensions=(".ndjson", ".jsonl", ".geojsonl"),
        ),
        _text(
            "json",
            _NUMBERS_OR_JSON,
            partial(open_json, "json"),
            extensions=(".json", ".geojson"),
        ),
        Format(
            "parquet",
            _NUMBERS_OR_JSON,
            ranged=read_parquet,
            extensions=(".parquet", ".pq"),
            looks=parquet.looks,
        ),
        Format(
            "arrow",
            _NUMBERS_OR_JSON,
            ranged=read_arrow,
            extensions=(".arrow", ".arrows", ".feather", ".ipc"),
            looks=arrow.looks,
        ),
        Format("avro", _NUMBERS_OR_JSON, AvroParser, extensions=(".avro",), looks=avro.looks),
        Format(
            "npy",
            _NUMBERS_OR_JSON,
            NpyParser,
            ranged=read_npy,
            extensions=(".npy",),
            looks=npy.looks,
        ),
        Format(
            "zip",
            makes("matrix", "json", "bytes", "columns"),
            ranged=read_zip,
            extensions=(".zip", ".npz"),
            looks=zip.looks,
        ),
        Format(
            "image",
            image.makes_pixels,
            open_image,
            is_plain=image.stays_whole,
            extensions=image.EXTENSIONS,
            looks=image.looks,
        ),
        Format(
            "audio",
            makes("matrix", "bytes"),
            audio.open_audio,
            ranged=audio.read_audio,
            extensions=audio.EXTENSIONS,
            looks=audio.looks,
        ),
        Format(
            "video",
            image.makes_pixels,
            ranged=video.read_video,
            extensions=video.EXTENSIONS,
            looks=video.looks,
        ),
        _text("text", makes("bytes", "json"), open_text),
        Format("bytes", makes("bytes"), open_bytes, is_plain=always, may_be_empty=True),
    )
