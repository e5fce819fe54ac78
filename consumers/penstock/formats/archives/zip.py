"""Reads zip archives by their central directory.

Rule: only regular files are read, in the order in which they lie. Nothing is written anywhere, so
any name is harmless. A member that is encrypted, damaged, or has a wrong checksum is a bad row; a
damaged directory is `bad_archive`. The sizes in the directory are not trusted: unpacked bytes are
counted. If archives were joined, as by `cat`, all of them are read; anything else behind an end is
`bad_archive`. Office files, Java's and Python's packages and others are zips, too, but no archives
of data: they are refused by their names.
"""

import bz2
import lzma
import re
import stat
import struct
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import suppress
from copy import copy
from typing import IO, Any, Final

from penstock.errors import Poison
from penstock.formats.archives.tar import check_path, over_limit
from penstock.formats.archives.unpacking import PIECE_BYTES, WINDOW_BYTES, Expansion, Unpacker
from penstock.formats.first_bytes import no_such
from penstock.formats.parser_chain import ArchiveLimit, ArchiveMember, Members
from penstock.formats.runs import RowOptions, Run, bad_row
from penstock.formats.source import ObjectSource, SourceFile

MAGIC: Final = (b"PK\x03\x04", b"PK\x05\x06")
# The whole directory is read at once, so it may have at most this many bytes. 100,000 entries of
# 100 bytes are 10 MB.
MOST_READ_BYTES: Final = 64 << 20
_READ_BYTES: Final = 128 << 10
_HEAD_BYTES: Final = 128
_ENCRYPTED: Final = 0x1
_UTF8: Final = 0x800
_UNIX: Final = 3
_UNIXES: Final = (_UNIX, 19)  # 19: macOS
# The first bytes of an entry of the directory, and of the record at the end. This record has 22
# bytes, of which the last two are the length of the comment that follows.
_ENTRY: Final = b"PK\x01\x02"
_END: Final = b"PK\x05\x06"
_END_BYTES: Final = 22
_MOST_COMMENT_BYTES: Final = 0xFFFF
# For each kind of file that is a zip, a member that all files of this kind have.
_PACKAGES: Final = {
    re.compile(r"(?m)^xl/workbook\."): "an Excel workbook",
    re.compile(r"(?m)^word/document\."): "a Word document",
    re.compile(r"(?m)^ppt/presentation\."): "a PowerPoint presentation",
    re.compile(r"(?m)^\[Content_Types\]\.xml$"): "an Office document or another package",
    re.compile(r"(?m)^META-INF/container\.xml$"): "an EPUB book",
    re.compile(r"(?m)^META-INF/manifest\.xml$"): "an OpenDocument file, as LibreOffice writes",
    re.compile(r"(?m)^AndroidManifest\.xml$"): "an Android package (APK)",
    re.compile(r"(?m)^META-INF/MANIFEST\.MF$"): "a Java archive (jar)",
    re.compile(r"(?m)^[^/\n]+\.dist-info/WHEEL$"): "a Python package (wheel)",
    re.compile(r"(?m)^(?:[^/\n]+/)?data\.pkl$"): "a file of PyTorch",
    re.compile(r"(?m)^model\.weights\.h5$"): "a Keras model",
    re.compile(r"(?m)^doc\.kml$"): "a KMZ",
    re.compile(r"(?m)^Payload/[^/\n]+\.app/"): "an iOS app",
}
_DAMAGE: Final = (
    *(zipfile.BadZipFile, zlib.error, lzma.LZMAError),
    *(EOFError, OSError, ValueError, KeyError, struct.error),
)
# In a zip, data of LZMA has two bytes of a version, the length of the properties, and these. In a
# file of its own, it has the properties and the length of what it unpacks to; this one stands for
# any.
_LZMA_HEAD: Final = struct.Struct("<2xH")
_ANY_LENGTH: Final = b"\xff" * 8


def looks(head: bytes) -> bool:
    return head.startswith(MAGIC)


class _BoundedFile(SourceFile):
    """The file from which `zipfile` reads an archive. A read raises `Poison` if the archive's
    central directory is too long for memory, or has too many entries.
    """

    def __init__(self, ranges: ObjectSource, members: int) -> None:
        super().__init__(ranges)
        self._members = members

    def read(self, size: int | None = -1) -> bytes:
        if size is not None and size > MOST_READ_BYTES:
            raise Poison(
                "too_large",
                f"the zip's directory has {size} bytes, at most {MOST_READ_BYTES} are read",
            )
        data = super().read(size)
        if data.startswith(_ENTRY) and data.count(_ENTRY) > self._members:
            raise _too_many(self._members)
        return data


class _Beginning:
    """The first `size` bytes of an object."""

    def __init__(self, source: ObjectSource, size: int) -> None:
        self.size = size
        self._source = source

    def read(self, start: int, stop: int) -> bytes:
        return self._source.read(start, min(stop, self.size))


def read_zip(
    ranges: ObjectSource, options: RowOptions, members: Members, expansion: Expansion
) -> Iterator[Run]:
    """The rows of all selected members, in the order in which they lie in the archive."""
    try:
        for archive, source in _archives(ranges, options.members):
            yield from _rows(archive, options, members, expansion)
            _check_end(source)
    except Poison:
        yield from members.rest()
        raise
    yield from members.end()


def _archives(
    source: ObjectSource, most_members: int
) -> list[tuple[zipfile.ZipFile, ObjectSource]]:
    """The archives that were joined, in their order, each with the bytes up to its end. Only the
    last one is found by its end; so each tells where the one before it ends.
    """
    archives: list[tuple[zipfile.ZipFile, ObjectSource]] = []
    left, begin = most_members, source.size
    # Programs that unpack themselves are no archive, but an archive follows them.
    while begin and (not archives or looks(source.read(0, _HEAD_BYTES))):
        part = _Beginning(source, begin)
        archive = _opened(part, left)
        entries = archive.infolist()
        begin = min((entry.header_offset for entry in entries), default=archive.start_dir)
        archives.insert(0, (archive, part))
        left -= max(1, len(entries))
        if left < 0:
            raise _too_many(most_members)
        if not 0 <= begin < part.size:
            raise Poison("bad_archive", "the zip's directory names places outside of the zip")
    return archives


def _too_many(most_members: int) -> Poison:
    message = f"the archive has more than {most_members} members (limits.members)"
    return ArchiveLimit("too_large", message)


def _opened(part: ObjectSource, most_members: int) -> zipfile.ZipFile:
    try:
        return zipfile.ZipFile(_BoundedFile(part, most_members))
    except NotImplementedError as error:
        raise Poison("bad_archive", f"the zip cannot be read: {error}") from None
    except _DAMAGE as error:
        head = part.read(0, _HEAD_BYTES)
        if not looks(head):
            raise no_such("zip", head, "bad_archive") from error
        raise Poison("bad_archive", f"the zip is damaged: {error}; write it again") from error


def _check_end(part: ObjectSource) -> None:
    """Raises `Poison` if an archive's comment breaks off, or if something follows the archive."""
    tail = part.read(max(0, part.size - _END_BYTES - _MOST_COMMENT_BYTES), part.size)
    end = tail.rfind(_END)
    (comment_bytes,) = struct.unpack_from("<H", tail, end + _END_BYTES - 2)
    stop = end + _END_BYTES + comment_bytes
    if stop > len(tail) or tail[stop:].strip(b"\0"):
        raise Poison("bad_archive", "something that is no zip follows the end of the zip")


def _rows(
    archive: zipfile.ZipFile, options: RowOptions, members: Members, expansion: Expansion
) -> Iterator[Run]:
    entries = sorted(archive.infolist(), key=lambda entry: entry.header_offset)
    if options.member is None:
        _check_package("\n".join(entry.filename for entry in entries))
    for entry in entries:
        if entry.filename:
            yield from _member_rows(archive, entry, options, members, expansion)
        else:
            yield bad_row("a member of the zip has no name")._replace(member="")


def _check_package(names: str) -> None:
    for name, what in _PACKAGES.items():
        if name.search(names):
            raise Poison(
                "bad_format",
                f"this is {what}, which is a zip, but no archive of rows; write its rows as csv, "
                "ndjson or parquet, or choose members by rows.member",
            )


def _member_rows(
    archive: zipfile.ZipFile,
    entry: zipfile.ZipInfo,
    options: RowOptions,
    members: Members,
    expansion: Expansion,
) -> Iterator[Run]:
    path = _path(entry)
    if not _is_file(entry):
        if not entry.is_dir():
            members.pass_over(path, "links")
        return
    parser = members.open(path)
    if parser is None:
        return
    check_path(path)
    member = ArchiveMember(path, parser, members)
    why = over_limit(entry.file_size, options)
    if entry.flag_bits & _ENCRYPTED:
        why = Poison("bad_archive", "it is encrypted, which is not read")
    if why is not None:
        yield from member.fail(why)
        return
    try:
        for piece in _pieces(archive, entry, expansion):
            for start in range(0, len(piece), member.step_bytes):
                yield from member.feed(piece[start : start + member.step_bytes])
            if member.is_broken:
                return
    except Poison as poison:
        if member.is_broken:
            raise  # a limit of the archive, with the member's name
        yield from member.fail(poison)
    yield from member.close()


def _pieces(
    archive: zipfile.ZipFile, entry: zipfile.ZipInfo, expansion: Expansion
) -> Iterator[bytes]:
    """The unpacked data of a member."""
    expansion.add(entry.compress_size, 0)
    made_bytes = 0
    try:
        for piece in _unpacked(archive, entry):
            made_bytes += len(piece)
            expansion.add(0, len(piece))
            if made_bytes % PIECE_BYTES < len(piece):
                expansion.check()
            yield piece
    except NotImplementedError as error:
        raise Poison("bad_archive", f"it cannot be read: {error}") from error
    except _DAMAGE as error:
        raise Poison("bad_archive", f"it is damaged: {error}; write it again") from error


def _unpacked(archive: zipfile.ZipFile, entry: zipfile.ZipInfo) -> Iterator[bytes]:
    """The data of a member in bounded pieces. Of `zipfile` only deflated data comes in such: a
    kilobyte of bzip2 may be a gigabyte, which it would unpack at once.
    """
    if entry.compress_type in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
        with archive.open(entry) as file:
            while piece := file.read(_READ_BYTES):
                yield piece
        return
    packed: Any = copy(entry)
    packed.compress_type, packed.file_size, packed.CRC = (
        zipfile.ZIP_STORED,
        entry.compress_size,
        None,
    )
    left_bytes, checksum = entry.file_size, 0
    with archive.open(packed) as file:
        unpacker, data = _unpacker(entry, file)
        while left_bytes and not unpacker.eof and (data or not unpacker.needs_input):
            piece = unpacker.decompress(data, min(left_bytes, _READ_BYTES))
            left_bytes -= len(piece)
            checksum = zlib.crc32(piece, checksum)
            yield piece
            data = file.read(_READ_BYTES) if unpacker.needs_input else b""
    if left_bytes or checksum != entry.CRC:
        raise zipfile.BadZipFile(f"Bad CRC-32 for file {entry.filename!r}")


def _unpacker(entry: zipfile.ZipInfo, file: IO[bytes]) -> tuple[Unpacker, bytes]:
    """With the first bytes to unpack."""
    if entry.compress_type == zipfile.ZIP_BZIP2:
        return bz2.BZ2Decompressor(), file.read(_READ_BYTES)
    if entry.compress_type == zipfile.ZIP_LZMA:
        (nbytes,) = _LZMA_HEAD.unpack(file.read(_LZMA_HEAD.size))
        unpacker = lzma.LZMADecompressor(lzma.FORMAT_ALONE, memlimit=WINDOW_BYTES)
        return unpacker, file.read(nbytes) + _ANY_LENGTH
    raise NotImplementedError(f"compression type {entry.compress_type}")


def _is_file(entry: zipfile.ZipInfo) -> bool:
    """True if the data of the entry is a file's. The data of a link is the name of its target. What
    `zip` reads from its standard input, it calls a pipe.
    """
    if entry.is_dir():
        return False
    # Only systems like Unix write the mode of a file into these bits. In an entry of another
    # system, they mean something else.
    mode = entry.external_attr >> 16 if entry.create_system in _UNIXES else 0
    return stat.S_IFMT(mode) in (0, stat.S_IFREG, stat.S_IFIFO)


def _path(entry: zipfile.ZipInfo) -> str:
    """The path of an entry, without a leading `./`, as in tar. If an entry of Unix does not state
    the encoding of its path, it was written by Info-ZIP. Info-ZIP takes the bytes of the path from
    the file system, where they are UTF-8, but zipfile has decoded them by cp437, an encoding of
    DOS.
    """
    path = entry.filename
    if not entry.flag_bits & _UTF8 and entry.create_system == _UNIX:
        with suppress(UnicodeError):
            path = path.encode("cp437").decode()
    return path.removeprefix("./")
