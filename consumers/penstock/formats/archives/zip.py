"""Reads zip archives by their central directory. The name of each selected member tells by which
format it is read.

Rule: only regular files are read, in the order in which they lie. Nothing is written anywhere, so
any name is harmless. Encrypted or damaged data, and a wrong checksum, are `bad_archive`. The sizes
in the directory are not trusted: unpacked bytes are counted. Owner: the reading of one object.
"""

import stat
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import suppress
from typing import Final

from penstock.errors import Poison
from penstock.formats.archives.compression import Expansion
from penstock.formats.archives.tar_header import check_path, check_size
from penstock.formats.archives.unpacking import PIECE_BYTES
from penstock.formats.base.parser_chain import Members, Parser, of_member
from penstock.formats.base.runs import RowOptions, Run, bad_row
from penstock.formats.base.source import Source, SourceFile
from penstock.formats.magic import no_such

MAGIC: Final = (b"PK\x03\x04", b"PK\x05\x06")
# The whole directory is read at once, so it may have at most this many bytes. 100,000 entries of
# 100 bytes are 10 MB.
MOST_READ_BYTES: Final = 64 << 20
_READ_BYTES: Final = 128 << 10
_HEAD_BYTES: Final = 16
_ENCRYPTED: Final = 0x1
_UTF8: Final = 0x800
_UNIX: Final = 3
_UNIXES: Final = (_UNIX, 19)  # 19: macOS
# The first bytes of an entry of the directory.
_ENTRY: Final = b"PK\x01\x02"
_DAMAGE: Final = (zipfile.BadZipFile, zlib.error, EOFError, OSError, ValueError, KeyError)


def looks(head: bytes) -> bool:
    return head.startswith(MAGIC)


class _BoundedFile(SourceFile):
    """The file from which `zipfile` reads an archive. A read raises `Poison` if the archive's
    central directory is too long for memory, or has too many entries.
    """

    def __init__(self, ranges: Source, members: int) -> None:
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
            raise Poison(
                "too_large",
                f"the archive has more than {self._members} members (limits.members)",
            )
        return data


def read_zip(
    ranges: Source, options: RowOptions, members: Members, expansion: Expansion
) -> Iterator[Run]:
    """The rows of all selected members, in the order in which they lie in the archive."""
    try:
        yield from _rows(ranges, options, members, expansion)
    except Poison:
        yield from members.rest()
        raise
    yield from members.rest()


def _rows(
    ranges: Source, options: RowOptions, members: Members, expansion: Expansion
) -> Iterator[Run]:
    try:
        with zipfile.ZipFile(_BoundedFile(ranges, options.members)) as archive:
            for entry in sorted(archive.infolist(), key=lambda entry: entry.header_offset):
                if not entry.filename:
                    yield bad_row("a member of the zip has no name")._replace(member="")
                    continue
                parser = _parser_of(entry, options, members)
                if parser is not None:
                    runs = _read(archive, entry, parser, expansion)
                    yield from of_member(_path(entry), runs)
    except NotImplementedError as error:
        raise Poison("bad_archive", f"the zip cannot be read: {error}") from None
    except _DAMAGE as error:
        head = ranges.read(0, _HEAD_BYTES)
        if not looks(head):
            raise no_such("zip", head, "bad_archive") from error
        raise Poison("bad_archive", f"the zip is damaged: {error}; write it again") from error


def _parser_of(entry: zipfile.ZipInfo, options: RowOptions, members: Members) -> Parser | None:
    """The parser of a member; None: the member is passed over. Raises `Poison` for a wanted member
    that cannot be read.
    """
    path = _path(entry)
    if not _is_file(entry):
        return None
    parser = members.open(path)
    if parser is None:
        return None
    check_path(path)
    if entry.flag_bits & _ENCRYPTED:
        raise Poison("bad_archive", f'member "{path}" is encrypted, which is not read')
    check_size(path, entry.file_size, options)
    return parser


def _is_file(entry: zipfile.ZipInfo) -> bool:
    """True if the entry is a regular file. A link is not a regular file: its data is the name of
    its target.
    """
    if entry.is_dir():
        return False
    # Only systems like Unix write the mode of a file into these bits. In an entry of another
    # system, they mean something else.
    mode = entry.external_attr >> 16 if entry.create_system in _UNIXES else 0
    return stat.S_IFMT(mode) in (0, stat.S_IFREG)


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


def _read(
    archive: zipfile.ZipFile,
    entry: zipfile.ZipInfo,
    parser: Parser,
    expansion: Expansion,
) -> Iterator[Run]:
    expansion.add(entry.compress_size, 0)
    made_bytes = 0
    with archive.open(entry) as file:
        while piece := file.read(_READ_BYTES):
            made_bytes += len(piece)
            expansion.add(0, len(piece))
            if made_bytes % PIECE_BYTES < len(piece):
                expansion.check()
            for start in range(0, len(piece), parser.step_bytes):
                yield from parser.feed(piece[start : start + parser.step_bytes])
    yield from parser.close()
