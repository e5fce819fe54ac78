"""Which parser reads an object. A new row format is one file and one line in `ROW_FORMATS`.

Rule: the format is the one asked for, else the one the key's extension names, else what the first
bytes look like, else CSV. In an archive only members with a known extension are rows, unless the
`member` glob selects others.
"""

from collections.abc import Callable
from typing import NamedTuple

from consumers.errors import Poison
from consumers.formats.base import Decoder, RowOptions
from consumers.formats.compression import Expansion, GzipParser
from consumers.formats.csv import CsvParser
from consumers.formats.json import JsonArrayParser
from consumers.formats.ndjson import NdjsonParser
from consumers.formats.push import (
    EXPANDING_STEP_BYTES,
    PLAIN_STEP_BYTES,
    Parser,
    PushDecoder,
)
from consumers.formats.sniff import SniffingParser, check_text, sniff_format, sniff_json
from consumers.formats.tar import TarParser
from consumers.formats.tar_header import BLOCK_BYTES


class RowFormat(NamedTuple):
    extensions: tuple[str, ...]
    open: Callable[[RowOptions], Parser]


ROW_FORMATS = {
    "csv": RowFormat((".csv", ".tsv"), CsvParser),
    "ndjson": RowFormat((".ndjson", ".jsonl"), NdjsonParser),
    "json": RowFormat((".json",), JsonArrayParser),
}
_TAR = "tar"
_LONGEST_MAGIC_BYTES = 3  # of gzip and of the UTF-8 byte order mark


def open_decoder(
    options: RowOptions, *, key: str, format: str | None = None, compression: str | None = None
) -> Decoder:
    """The decoder of one object. `compression` "none" leaves gzip data as it is."""
    format = _known("format", format, (*ROW_FORMATS, _TAR))
    compression = _known("compression", compression, ("gzip", "none"))
    expansion = Expansion(options)
    parser = _open(options, format, key, expansion, gzip=compression != "none", member=False)
    return PushDecoder(parser, fail_on_bad_row=options.fail_on_bad_row)


def _known(what: str, asked: str | None, known: tuple[str, ...]) -> str | None:
    if asked is None or asked == "auto":
        return None
    if asked not in known:
        raise Poison("bad_format", f'unknown {what} "{asked}"; known: auto, {", ".join(known)}')
    return asked


def _open(
    options: RowOptions,
    format: str | None,
    key: str,
    expansion: Expansion,
    *,
    gzip: bool,
    member: bool,
) -> Parser:
    named = format or _format_of(key)

    def choose(head: bytes) -> Parser:
        chosen = named or sniff_format(head)
        if format is None and chosen == "json":
            chosen = sniff_json(head)  # `.json` is as often one object per line
        if chosen != _TAR:
            check_text(head)
            return ROW_FORMATS[chosen].open(options)
        if member:
            raise Poison("bad_format", "an archive in an archive is not read")
        of_members = Expansion(options, outer=expansion)
        return TarParser(options, lambda path: _open_member(options, path, of_members))

    def inflate(inside: Parser) -> Parser:
        limit_bytes = options.member_bytes if member else None
        return GzipParser(inside, expansion, limit_bytes=limit_bytes)

    settled = named is not None and (format is not None or named != "json")
    head_bytes = _LONGEST_MAGIC_BYTES if settled else BLOCK_BYTES
    plain = named in ROW_FORMATS and not key.lower().endswith(".gz")
    return SniffingParser(
        options,
        choose,
        head_bytes=head_bytes,
        inflate=inflate if gzip else None,
        step_bytes=PLAIN_STEP_BYTES if plain else EXPANDING_STEP_BYTES,
        damage="bad_archive" if named == _TAR else "bad_format",
    )


def _open_member(options: RowOptions, path: str, expansion: Expansion) -> Parser | None:
    """By its name; a member of another name only if a `member` glob let it through."""
    if options.member is None:
        # macOS' tar adds a "._name" of attributes beside each file.
        hidden = path.rpartition("/")[2].startswith("._")
        if hidden or _format_of(path) not in ROW_FORMATS:
            return None
    return _open(options, None, path, expansion, gzip=True, member=True)


def _format_of(key: str) -> str | None:
    name = key.lower()
    if name.endswith((".tar", ".tar.gz", ".tgz")):
        return _TAR
    name = name.removesuffix(".gz")
    for format, row_format in ROW_FORMATS.items():
        if name.endswith(row_format.extensions):
            return format
    return None
