"""Decides what an object is, and opens it; knows all formats, also those of users' packages.

Rule: the first that tells decides: reference or configuration, the key's extension, the first
bytes. Of an archive, `rows.member` selects the members; else those are read whose extension belongs
to a format that fits the request.
"""

from collections.abc import Iterator, Mapping
from fnmatch import fnmatchcase
from functools import cache, lru_cache
from typing import Final, Literal, NamedTuple

from penstock.errors import Poison, usage
from penstock.formats.archives.tar import BLOCK_BYTES, TarParser, is_tar
from penstock.formats.archives.unpacking import CODECS, Expansion, unpacking
from penstock.formats.archives.webdataset import WebDatasetSamples
from penstock.formats.archives.zip import read_zip
from penstock.formats.built_in import ours
from penstock.formats.first_bytes import (
    BOM,
    TEXT_BYTES,
    check_text,
    is_open,
    is_text,
    may_be_packed,
    named_container,
    no_such,
    not_as_stream,
    packed_by,
    sniff_text,
)
from penstock.formats.format import KINDS, Format, WantsRanges
from penstock.formats.parser_chain import (
    EXPANDING_STEP_BYTES,
    PLAIN_STEP_BYTES,
    Members,
    Parser,
)
from penstock.formats.pictures.pixels import PictureOptions
from penstock.formats.plugins_checked import guarded
from penstock.formats.runs import RowOptions, Run, shown
from penstock.formats.source import ObjectSource, Wanted
from penstock.formats.text.json_layout import open_json
from penstock.formats.text.text_and_bytes import UnreadParser
from penstock.packages import plugins

GROUP: Final = "penstock.formats"
TAR: Final = "tar"
JSON: Final = "json"
Packing = Literal["none", "any", "sure"]


def _read_zip(source: ObjectSource, options: RowOptions, wanted: Wanted) -> Iterator[Run]:
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
    built_in = {format.name: format for format in ours(_read_zip)}
    for format in plugins(GROUP, Format):
        if format.name in built_in or format.name in ("auto", TAR):
            raise usage(f"two formats are named {format.name!r}; rename the entry point's")
        built_in[format.name] = guarded(format)
    return built_in


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


class Claim(NamedTuple):
    """What an object is, as far as its reference, the configuration and its name tell. `format`:
    None if its first bytes decide. `packing`: "none" if packed data is left as it is, "any" if the
    first bytes tell whether it is packed, "sure" if it should be packed.
    """

    key: str
    format: str | None
    packing: Packing

    def ranged(self, options: RowOptions) -> Format | None:
        """The format, if it is known to be read by ranges. Raises `Poison` if the rows of that
        format do not fit the request.
        """
        known = formats().get(self.format or "")
        if known is None or known.ranged is None or self.packing == "sure":
            return None
        known.check_fits(options)
        return known

    def is_for_decoders(self, options: RowOptions) -> bool:
        """True if the format is known, and the worker itself reads no object of it."""
        if self.format is None:
            return False
        known = formats().get(self.format)
        return known is None or not options.has_plain(known)

    def format_of(self, head: bytes, options: RowOptions) -> Format | None:
        """The format of data that is not packed and begins like this. None: it is a tar."""
        return formats().get(self.format or sniff_format(head.removeprefix(BOM), options))

    def check_nothing(self) -> None:
        """Raises `Poison` if an object of no bytes cannot be this."""
        known = formats().get(self.format or "")
        if self.packing == "sure":
            what = "packed data"
        elif self.format is None or (known is not None and known.may_be_empty):
            return
        else:
            what = self.format
        raise Poison("bad_format", f"the object is empty, which {what} never is; write it again")


def claim_of(key: str, format: str | None = None, compression: str | None = None) -> Claim:
    """`format` and `compression` are those of the reference or the configuration; None: they are
    not set. Raises `Poison` if they are unknown.
    """
    # To compare the text behind the first dot with all extensions takes 2 us. Most names have the
    # same text there, so what this text tells is remembered.
    dot = key.find(".", max(key.rfind("/") + 1, len(key) - _EXTENSION_CHARS))
    return Claim(key, *_claimed("" if dot < 0 else key[dot:], format, compression))


@lru_cache(maxsize=256)
def _claimed(
    extension: str, format: str | None, compression: str | None
) -> tuple[str | None, Packing]:
    format = _known("format", format, known_formats())
    compression = _known("compression", compression, _COMPRESSIONS)
    plain = extension = extension.lower()
    for ending in _ANY_PACKED:
        if extension.endswith(ending):
            plain = extension.removesuffix(ending)
            break
    packing: Packing = "none"
    if compression != "none":
        packing = "any" if compression is None and plain == extension else "sure"
    if format is None and plain.endswith(_TARS):
        format = TAR
    for known in formats().values():
        if format is None and known.extensions and plain.endswith(known.extensions):
            format = known.name
    return format, packing


def _known(what: str, asked: str | None, known: tuple[str, ...]) -> str | None:
    if asked is None or asked == "auto":
        return None
    if asked not in known:
        raise Poison("bad_format", f'unknown {what} "{asked}"; known: auto, {", ".join(known)}')
    return asked


def open_parser(options: RowOptions, claim: Claim) -> Parser:
    """The parser of an object. If the object must be read by ranges, the parser raises
    `WantsRanges` while it is fed.
    """
    return _Opening(options, claim, Expansion(options))


class _Opening(Parser):
    """Waits for the first bytes of an object, and then hands all bytes to the parser that they
    need. At most 512 bytes are held, which are a block of a tar. `is_member`: the object is a
    member of an archive. `is_inside`: the bytes were unpacked.
    """

    def __init__(
        self,
        options: RowOptions,
        claim: Claim,
        expansion: Expansion,
        *,
        is_member: bool = False,
        is_inside: bool = False,
    ) -> None:
        self._options = options
        self._claim = claim
        self._expansion = expansion
        self._is_member = is_member
        self._is_inside = is_inside
        # Some clients unpack on the way; then the bytes themselves must prove what they are.
        self._needs_proof = claim.packing == "sure" and not is_inside
        # If this is 0, the parser is chosen as soon as the bytes tell whether they are packed.
        self._head_bytes = BLOCK_BYTES if claim.format is None or self._needs_proof else 0
        is_plain = claim.format in formats() and not self._needs_proof
        self.step_bytes = PLAIN_STEP_BYTES if is_plain else EXPANDING_STEP_BYTES
        self.damage = "bad_archive" if claim.format == TAR else "bad_format"
        self._head = b""
        self._parser: Parser | None = None

    def feed(self, data: bytes) -> Iterator[Run]:
        parser = self._parser
        if parser is None:
            data = self._head + data
            most_bytes = self._head_bytes or TEXT_BYTES
            if len(data) < most_bytes and (self._head_bytes or is_open(data)):
                self._head = data
                return
            parser, data = self._settle(data)
        yield from parser.feed(data)

    def whole(self, data: bytes) -> Iterator[Run]:
        if data:
            parser, data = self._settle(data)
            yield from parser.whole(data)

    def close(self) -> Iterator[Run]:
        parser = self._parser
        if parser is None:
            if not self._head and not self._is_member:
                claim = self._claim
                (claim._replace(packing="none") if self._is_inside else claim).check_nothing()
                return
            parser, data = self._settle(self._head)
            yield from parser.feed(data)
        yield from parser.close()

    def _settle(self, data: bytes) -> tuple[Parser, bytes]:
        """Chooses the parser. Returns the parser, and the bytes to feed it."""
        parser = self._unpacking(data) if self._claim.packing != "none" else None
        if parser is None:
            # Whatever the size of the chunks, the choice is made by the same first bytes.
            head = data[: self._head_bytes or TEXT_BYTES].removeprefix(BOM)
            parser, is_text = self._chosen(head)
            data = data.removeprefix(BOM) if is_text else data
        self._parser = parser
        self.step_bytes, self.damage = parser.step_bytes, parser.damage
        return parser, data

    def _unpacking(self, head: bytes) -> Parser | None:
        """The parser of packed data; None: the data is not packed."""
        codec = packed_by(head)
        if codec is None:
            return None
        if self._is_inside:
            raise Poison(self.damage, "packed data in packed data is not read; pack it once")
        options, expansion, is_member = self._options, self._expansion, self._is_member
        inside = _Opening(options, self._claim, expansion, is_member=is_member, is_inside=True)
        limit_bytes = options.member_bytes if is_member else None
        return unpacking(codec, inside, expansion, limit_bytes)

    def _chosen(self, head: bytes) -> tuple[Parser, bool]:
        """The parser of the content, and whether the content is a text."""
        options, claim = self._options, self._claim
        chosen = claim.format or sniff_format(head, options)
        if chosen == TAR:
            if self._is_member:
                return UnreadParser("an archive in an archive is not read"), False
            of_members = Expansion(options, outer=self._expansion)
            return TarParser(options, _members(options, of_members, claim.key)), False
        known = formats()[chosen]
        parser = parser_of(known, claim, head, options, needs_proof=self._needs_proof)
        if parser is not None:
            return parser, known.is_text
        if self._is_member:
            return UnreadParser(str(not_as_stream(chosen))), False
        if self._is_inside:
            raise not_as_stream(chosen)
        raise WantsRanges(known)


def parser_of(
    format: Format, claim: Claim, head: bytes, options: RowOptions, *, needs_proof: bool
) -> Parser | None:
    """The parser of data that is not packed, of this format. None: it must be read by ranges.
    `head`: its first bytes, without a byte order mark. `needs_proof`: True if they must show that
    the data is of this format. Raises `Poison` if they show that it is not, or if the rows do not
    fit the request.
    """
    if needs_proof:
        is_plain = format.is_text and claim.format is not None and _is_plain_text(head)
        if not (is_plain or format.looks(head)):
            raise no_such(f"data of {', '.join(_CODECS)}, as it should be", head)
    if format.is_text and claim.packing == "none" and packed_by(head) not in (None, "gzip"):
        raise no_such(f"text, as {format.name} is", head)
    # What a format makes of the options is decided once, and not for each object.
    if format.name not in options.fitting:
        format.check_fits(options)
        options.fitting[format.name] = format.is_plain(options)
    if format.is_text:
        check_text(format.name, head)
    if format.name == JSON and claim.format is None:
        return open_json(None, options)
    return format.open(options) if format.open is not None else None


def _is_plain_text(head: bytes) -> bool:
    return is_text(head) and not (may_be_packed(head) or head.startswith(b"BZh"))


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
    return WebDatasetSamples(options, members) if options.keep and is_file_a_row else members


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
        glob, claim = self._options.member, claim_of(path)
        format = formats().get(claim.format or "")
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
        return _Opening(self._options, claim, self._expansion, is_member=True)

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
                f"no member of the archive can be read: {passed.shown()}; "
                f"{why}; choose members by rows.member, or correct their names",
            )
        if passed.told:
            self._options.notices.once(
                f"{self._key}: these members of the archive are passed over: "
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
