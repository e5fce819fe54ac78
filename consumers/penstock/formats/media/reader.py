"""The readers of recordings and videos, and the check whether their libraries are installed.

Rule: the libraries are an extra. They are loaded when an object needs them, and only in a decoder,
which may crash. Owner: one reading of one object.
"""

from collections.abc import Iterator
from importlib.util import find_spec
from typing import Final, Literal

from penstock.core.rows.payload import Form
from penstock.errors import Poison
from penstock.formats.base.parser_chain import Parser
from penstock.formats.base.runs import RowOptions, Run, bad_row, too_long
from penstock.formats.base.source import Read, Source, Wanted
from penstock.formats.media.audio import read_audio
from penstock.formats.media.rows_into_runs import Gathered
from penstock.formats.media.video import read_video
from penstock.formats.text.opaque import opaque, open_bytes
from penstock.packages import missing_extra

Kind = Literal["audio", "video"]

_LIBRARIES: Final[dict[Kind, tuple[str, ...]]] = {
    "audio": ("soundfile",),
    "video": ("av", "PIL"),
}


def need_media(format: str, form: Form) -> None:
    """Raises `Fatal` if the format needs the extra for these rows and it is not installed."""
    is_decoded = format == "video" or (format == "audio" and form != "bytes")
    if is_decoded and _is_missing(format):
        raise missing_extra(format, "media")


def _is_missing(kind: str) -> bool:
    return not all(find_spec(name) for name in _LIBRARIES["audio" if kind == "audio" else "video"])


def reader(kind: Kind) -> Read:
    """The reader of objects of one kind."""
    decode = read_audio if kind == "audio" else read_video

    def read(source: Source, options: RowOptions, wanted: Wanted) -> Iterator[Run]:
        if kind == "audio" and options.form == "bytes":
            yield _whole(source, options)
            return
        if _is_missing(kind):
            raise Poison("bad_format", str(missing_extra(kind, "media")))
        gathered = Gathered(options, wanted)
        try:
            yield from decode(source, options, gathered)
        except Poison:
            yield from gathered.rest()
            raise

    return read


def open_audio(options: RowOptions) -> Parser | None:
    """The parser of a recording in an archive, as opaque bytes. None: the options want other rows,
    which need the whole object.
    """
    return open_bytes(options) if options.form == "bytes" else None


def _whole(source: Source, options: RowOptions) -> Run:
    """The whole recording as one opaque row."""
    if source.size > options.row_bytes:
        return bad_row(too_long(options.row_bytes))
    return Run(1, opaque(source.read(0, source.size)))
