"""Knows all formats, ours and those of users' packages, and chooses the parser that reads an
object.

Rule: three things can tell the format. The first is the reference or the configuration, the second
is the extension of the key, and the third is the first bytes. The first of them that tells a format
decides. In an archive, those members are read that the glob `rows.member` selects. If `rows.member`
is not set, those are read whose extension belongs to a format that fits the request. A user's
package adds a format by an entry point `penstock.formats`.
"""

from collections.abc import Callable, Iterator, Mapping
from fnmatch import fnmatchcase
from functools import cache, lru_cache, partial
from typing import Final

from penstock.errors import Poison, usage
from penstock.formats import magic
from penstock.formats.archives.compression import CODECS, GZIP_MAGIC, Expansion, codec_of, is_begun
from penstock.formats.archives.tar import TarParser
from penstock.formats.archives.tar_header import BLOCK_BYTES, is_tar
from penstock.formats.archives.unpacking import GzipParser, PackedParser
from penstock.formats.archives.webdataset import Samples
from penstock.formats.archives.zip import read_zip
from penstock.formats.base.format import KINDS, Format, WantsRanges
from penstock.formats.base.parser_chain import (
    EXPANDING_STEP_BYTES,
    PLAIN_STEP_BYTES,
    Members,
    Parser,
)
from penstock.formats.base.runs import RowOptions, Run, shown
from penstock.formats.base.source import Source, Wanted
from penstock.formats.built_in import ours
from penstock.formats.magic import named_container, no_such
from penstock.formats.pictures.pixels import PictureOptions
from penstock.formats.plugins_checked import guarded
from penstock.formats.sniff import (
    BOM,
    Chosen,
    SniffingParser,
    check_text,
    not_as_stream,
    sniff_text,
)
from penstock.formats.text.json_array import open_json
from penstock.formats.text.text_and_bytes import UnreadParser
from penstock.packages import plugins

GROUP: Final = "penstock.formats"
TAR: Final = "tar"
JSON: Final = "json"


def _read_zip(source: Source, options: RowOptions, wanted: Wanted) -> Iterator[Run]:
    """The rows of a zip, whose members are read by the other formats."""
    expansion = Expansion(options)
    members = _members(options, Expansion(options, outer=expansion), "a zip")
    return read_zip(source, options, members, expansion)


# A reference may name one of these codecs. The data may nevertheless be packed by another one, so
# the first bytes of the data tell by which.
_CODECS: Final = ("gzip", *(codec.name for codec in CODECS))
_COMPRESSIONS: Final = (*_CODECS, "none")
_PACKED: Final = (".gz", *(suffix for codec in CODECS for suffix in codec.suffixes))
# Endings of all packed data, and so also of what is not unpacked here.
_ANY_PACKED: Final = (
    *_PACKED, ".br", ".z", ".lzma", ".lz", ".lzo", ".sz", ".snappy", ".zz", ".deflate"
)  # fmt: skip
# Only this many last characters of a name are searched for an extension.
_EXTENSION_CHARS: Final = 64
# So many kinds of members that are not read are told apart, by so many characters of their names.
_MOST_KINDS: Final = 8
_ENDING_CHARS: Final = 16
_TARS: Final = (".tar", ".tgz", ".tbz", ".tbz2", ".txz", ".tzst")


@cache
def formats() -> Mapping[str, Format]:
    """All formats by name: ours, then those of users' packages."""
    found = {format.name: format for format in ours(_read_zip)}
    for format in plugins(GROUP, Format):
        if format.name in found or format.name in ("auto", TAR):
            raise usage(f"two formats are named {format.name!r}; rename the entry point's")
        found[format.name] = guarded(format)
    return found


@cache
def known_formats() -> tuple[str, ...]:
    return (*formats(), TAR)


def check_options(options: RowOptions, request: str) -> None:
    """Raises `Fatal` if the configured format is unknown, or does not fit `model.request`."""
    if options.format in ("auto", TAR):
        return
    if options.format not in formats():
        raise usage(
            f"rows.format = {options.format!r} is unknown; choose one of auto, "
            f"{', '.join(known_formats())}"
        )
    why = formats()[options.format].misfit(options)
    if why is not None:
        raise usage(
            f"rows.format = {options.format!r} and model.request = {request!r} do not fit: {why}"
        )


def open_parser(
    options: RowOptions, *, key: str, format: str | None = None, compression: str | None = None
) -> Parser:
    """The parser of an object. If `compression` is "none", the parser leaves packed data as it is.
    If the object must be read by ranges, the parser raises `WantsRanges` while it is fed.
    """
    format = _known("format", format, known_formats())
    compression = _known("compression", compression, _COMPRESSIONS)
    expansion = Expansion(options)
    is_packed = compression != "none"
    promised = is_packed and (compression is not None or _is_packed(key))
    return _open(options, format, key, expansion, packed=is_packed, promised=promised)


def check_nothing(
    options: RowOptions, *, key: str, format: str | None = None, compression: str | None = None
) -> None:
    """Raises `Poison` if an object of no bytes cannot be of the format or the packing that its
    reference or name says.
    """
    named = _known("format", format, known_formats()) or _format_of(key)
    found = formats().get(named or "")
    what = named
    if compression != "none" and (compression in _CODECS or _is_packed(key)):
        what = "packed data"
    elif named is None or (found is not None and found.may_be_empty):
        return
    raise Poison("bad_format", f"the object is empty, which {what} never is; write it again")


def ranged_format(
    options: RowOptions, *, key: str, format: str | None = None, compression: str | None = None
) -> Format | None:
    """The format of the object, if its name shows that it is read by ranges; else None. Raises
    `Poison` if the rows of that format do not fit the request.
    """
    named = _known("format", format, known_formats()) or _format_of(key, packed=False)
    found = formats().get(named or "")
    if found is None or found.ranged is None or compression in _CODECS:
        return None
    found.check_fits(options)
    return found


def told_format(
    options: RowOptions, head: bytes, *, key: str, format: str | None = None
) -> Format | None:
    """The format of an object that is not packed, by the object's name or its first bytes. None:
    the object is a tar.
    """
    named = _known("format", format, known_formats()) or _format_of(key)
    return formats().get(named or sniff_format(head.removeprefix(BOM), options))


def _known(what: str, asked: str | None, known: tuple[str, ...]) -> str | None:
    if asked is None or asked == "auto":
        return None
    if asked not in known:
        raise Poison("bad_format", f'unknown {what} "{asked}"; known: auto, {", ".join(known)}')
    return asked


# This type has a name, because without one Python would build the type anew for each object.
_Unpacked = Callable[[Parser], Parser] | None


def _open(
    options: RowOptions,
    format: str | None,
    key: str,
    expansion: Expansion,
    *,
    packed: bool,
    promised: bool,
    member: bool = False,
) -> Parser:
    """`promised`: True if the reference or the name says that the data is packed."""
    named = format or _format_of(key)
    # True if the data should be packed, but nothing was unpacked yet. Some clients unpack on the
    # way; then the bytes themselves must prove what they are.
    is_bare = promised

    def choose(head: bytes) -> Chosen:
        chosen = named or sniff_format(head, options)
        if chosen == TAR:
            if member:
                return Chosen(UnreadParser("an archive in an archive is not read"))
            of_members = Expansion(options, outer=expansion)
            return Chosen(TarParser(options, _members(options, of_members, key)))
        found = formats()[chosen]
        if is_bare:
            is_text = found.is_text and named is not None and _is_plain_text(head)
            if not (is_text or found.looks(head)):
                raise no_such(f"data of {', '.join(_CODECS)}, as it should be", head)
        if found.is_text and not packed and codec_of(head) is not None:
            raise no_such(f"text, as {chosen} is", head)
        found.check_fits(options)
        if found.is_text:
            check_text(chosen, head)
        make = found.open
        if chosen == JSON and named is None:
            make = partial(open_json, None)
        parser = make(options) if make is not None else None
        if parser is not None:
            return Chosen(parser, is_text=found.is_text)
        if member:
            return Chosen(UnreadParser(str(not_as_stream(chosen))))
        raise WantsRanges(found)

    limit_bytes = options.member_bytes if member else None

    def unpack(head: bytes) -> _Unpacked:
        nonlocal is_bare
        is_gzip = head.startswith(GZIP_MAGIC)
        codec = None if is_gzip else codec_of(head)
        if codec is None and not is_gzip:
            return None
        is_bare = False
        wrap: Callable[..., Parser] = partial(PackedParser, codec) if codec else GzipParser
        return lambda inside: wrap(inside, expansion, limit_bytes=limit_bytes)

    plain = named in formats() and not promised

    def check_empty(inside_packed: bool) -> None:
        if not member:
            is_none = not packed or inside_packed
            check_nothing(options, key=key, format=format, compression="none" if is_none else None)

    return SniffingParser(
        choose,
        head_bytes=BLOCK_BYTES if named is None or promised else 0,
        inside_bytes=BLOCK_BYTES if named is None else 0,
        unpack=unpack if packed else None,
        step_bytes=PLAIN_STEP_BYTES if plain else EXPANDING_STEP_BYTES,
        damage="bad_archive" if named == TAR else "bad_format",
        check_empty=check_empty,
        empty_is_settled=member,
    )


def _is_plain_text(head: bytes) -> bool:
    return magic.is_text(head) and not (is_begun(head) or head.startswith(b"BZh"))


def _is_packed(key: str) -> bool:
    return key.lower().endswith(_ANY_PACKED)


def sniff_format(head: bytes, options: RowOptions) -> str:
    """The format of an object by its first bytes, if the object's name does not tell the format."""
    if is_tar(head):
        return TAR
    for format in formats().values():
        if format.looks(head):
            return format.name
    if options.form != "bytes":
        return sniff_text(head)
    # A model that takes bytes takes any object, but for archives and packed data.
    container = named_container(head)
    if container is not None:
        raise Poison("bad_format", container)
    return "bytes"


def _members(options: RowOptions, expansion: Expansion, key: str) -> Members:
    members = _Members(options, expansion, key)
    # If a member is one row, its kept values come from other members, which lie beside it. If a
    # member is a table, its kept values come from its own columns.
    is_file_a_row = options.form == "bytes" or options.of(PictureOptions).image is not None
    return Samples(options, members) if options.keep and is_file_a_row else members


class _Members(Members):
    """The members of an archive. The name of a member tells its format, and no rows are held back.
    A member whose name tells no format is read only if `rows.member` selects it. `key`: the name of
    the archive.
    """

    def __init__(self, options: RowOptions, expansion: Expansion, key: str) -> None:
        self._options = options
        self._expansion = expansion
        self._key = key
        self._opened = self._lost = 0
        self._passed = _Passed()

    def open(self, path: str) -> Parser | None:
        glob = self._options.member
        format = formats().get(_format_of(path) or "")
        fits = format is not None and format.fits(self._options)
        # The tar and the zip of macOS add a file of attributes, "._name", beside each file.
        is_side = path.rpartition("/")[2].startswith("._") or path.startswith("__MACOSX/")
        if glob is None:
            is_read = fits and not is_side
        else:
            is_read = fnmatchcase(path, glob) and (fits or format is None)
        if not is_read:
            # Without `rows.member`, members whose names begin with a dot are nobody's rows.
            is_hidden = is_side or path.rpartition("/")[2].startswith(".")
            told = not is_hidden if glob is None else fnmatchcase(path, glob)
            self.pass_over(path, told=told)
            return None
        self._opened += 1
        return _open(
            self._options,
            None,
            path,
            self._expansion,
            packed=True,
            promised=_is_packed(path),
            member=True,
        )

    def pass_over(self, path: str, kind: str = "", *, told: bool = True) -> None:
        self._passed.add(path, kind, told=told)

    def lose(self, path: str) -> None:
        self._lost += 1
        self.pass_over(path)

    def end(self) -> Iterator[Run]:
        passed, glob = self._passed, self._options.member
        chosen = "" if glob is None else f" and rows.member = {glob!r}"
        why = f"model.request takes {KINDS[self._options.form]}{chosen}"
        if self._opened == self._lost and passed.members:
            raise Poison(
                "bad_archive" if self._lost else "bad_format",
                f"none of the archive's {passed.members} members can be read: {passed.shown()}; "
                f"{why}; choose members by rows.member, or correct their names",
            )
        if passed.told:
            self._options.notices.once(
                f"{self._key}: {passed.told} members of the archive are passed over: "
                f"{passed.shown()}; {why}",
                about=f"members passed over: {', '.join(sorted(passed.kinds))}",
            )
        return iter(())


class _Passed:
    """The members of an archive that are not read. `told`: how many of them one might expect to be
    read. The other attributes count only these, or all if there are none.
    """

    def __init__(self) -> None:
        self.members = self.told = 0
        self.kinds: dict[str, int] = {}
        self._first = ""

    def add(self, path: str, kind: str, *, told: bool) -> None:
        self.members += 1
        if told and not self.told:
            self.kinds.clear()
            self._first = ""
        self.told += told
        if told or not self.told:
            kind = kind or _ending(path)
            kind = kind if kind in self.kinds or len(self.kinds) < _MOST_KINDS else "others"
            self.kinds[kind] = self.kinds.get(kind, 0) + 1
            self._first = self._first or path

    def shown(self) -> str:
        kinds = ", ".join(f"{count} {kind}" for kind, count in self.kinds.items())
        return f"{kinds}; the first is {shown(self._first.encode())}"


def _ending(path: str) -> str:
    """The kind of a file by its name: `*.txt`."""
    dot = path.rfind(".", path.rfind("/") + 2, len(path))
    return f"*{path[dot : dot + _ENDING_CHARS]}" if dot > 0 else "without extension"


def _format_of(key: str, *, packed: bool = True) -> str | None:
    """The name of the format that the extension tells. `packed`: True if an ending like `.gz` is
    taken off first.
    """
    # To compare the text behind the first dot with all extensions takes 2 us. Most names have the
    # same text there, so the format that belongs to this text is remembered.
    dot = key.find(".", max(key.rfind("/") + 1, len(key) - _EXTENSION_CHARS))
    return None if dot < 0 else _format_of_extension(key[dot:], packed)


@lru_cache(maxsize=256)
def _format_of_extension(extension: str, packed: bool) -> str | None:
    name = extension.lower()
    if packed:
        name = next((name.removesuffix(end) for end in _ANY_PACKED if name.endswith(end)), name)
    if name.endswith(_TARS):
        return TAR
    for format in formats().values():
        if format.extensions and name.endswith(format.extensions):
            return format.name
    return None
