"""Reads tar archives: POSIX ustar, pax records, GNU's long names and base-256 sizes.

Rule: only regular files are read; links, devices and folders are passed over. An archive that stops
before its end mark, or whose header has a wrong checksum or an unknown type, is `bad_archive`,
because rows could be missing. Joined archives are all read; anything else behind an end mark is
`bad_archive`, too. Layout: POSIX.1-2017, pax, "ustar Interchange Format"; GNU tar manual, "Basic
Tar Format".
"""

import re
from collections.abc import Iterator
from contextlib import suppress
from enum import Enum
from typing import NamedTuple

from penstock.errors import ErrorCode, Poison
from penstock.formats.first_bytes import no_such
from penstock.formats.parser_chain import (
    EXPANDING_STEP_BYTES,
    ArchiveLimit,
    ArchiveMember,
    Members,
    Parser,
)
from penstock.formats.runs import RowOptions, Run

BLOCK_BYTES = 512
USTAR_MAGIC, USTAR_AT = b"ustar", 257

_CHECKSUM = slice(148, 156)
_TYPE = slice(156, 157)
_GNU_BASE_256 = 0x80  # first byte of a size that does not fit in octal digits
_OCTAL = re.compile(rb"[0-7]+")  # `int` would take signs and underscores, too
# Such a number fits 63 bits. For a far longer number, `int` would take minutes.
_DECIMAL = re.compile(rb"[0-9]{1,19}")
# Linux's PATH_MAX. Paths are limited, because the path of a member stands in the record of each of
# its rows.
_PATH_CHARS = 4_096


class TypeFlag(Enum):
    FILE = "file"
    LINK = "link"
    PASSED_OVER = "passed over"  # devices, folders, fifos, labels: no data follows
    # A folder of an incremental archive. A list of the folder's files follows.
    LISTED_FOLDER = "listed folder"
    PAX = "pax"
    LONG_NAME = "long name"
    SKIPPED_EXTENSION = "skipped extension"  # it is about all members, or about a link's target


_TYPES = {
    b"0": TypeFlag.FILE,
    b"\0": TypeFlag.FILE,  # the type of a file in archives older than POSIX
    b"7": TypeFlag.FILE,  # contiguous: only a hint to the file system
    **dict.fromkeys((b"1", b"2"), TypeFlag.LINK),
    **dict.fromkeys((b"3", b"4", b"5", b"6", b"V"), TypeFlag.PASSED_OVER),
    b"D": TypeFlag.LISTED_FOLDER,
    b"x": TypeFlag.PAX,
    b"X": TypeFlag.PAX,  # Solaris
    b"L": TypeFlag.LONG_NAME,
    b"g": TypeFlag.SKIPPED_EXTENSION,
    b"K": TypeFlag.SKIPPED_EXTENSION,
    # Solaris: access rights, attributes, and the number of the file in its file system
    **dict.fromkeys((b"A", b"E", b"I"), TypeFlag.SKIPPED_EXTENSION),
}


_REFUSED = {b"S": "sparse files", b"M": "the rest of a file that another volume begins"}


class Header(NamedTuple):
    path: str
    size: int
    type: TypeFlag


def is_tar(head: bytes) -> bool:
    """True if an object begins like a tar. Archives older than POSIX, and a label that GNU tar may
    write first, have no magic, so they are recognised by their checksum.
    """
    if head[USTAR_AT:BLOCK_BYTES].startswith(USTAR_MAGIC):
        return True
    if len(head) >= BLOCK_BYTES and head[BLOCK_BYTES - 1] == 0:
        with suppress(Poison):
            _check_sum(head[:BLOCK_BYTES])
            return True
    return False


def parse_header(block: bytes) -> Header | None:
    """The header in a block of 512 bytes. None: the block is the end mark, which has only zeros."""
    if not block.strip(b"\0"):
        return None
    _check_sum(block)
    flag = block[_TYPE]
    kind = _TYPES.get(flag)
    if kind is None:
        name = _REFUSED.get(flag, f"entries of type {flag.decode('latin-1')!r}")
        raise Poison("bad_archive", f"the tar archive holds {name}, which cannot be read as rows")
    path = path_text(block[0:100])
    # Only POSIX has a prefix here. GNU's own format (magic "ustar ") has times in this place.
    if block[USTAR_AT : USTAR_AT + 6] == USTAR_MAGIC + b"\0":
        prefix = path_text(block[345:500])
        path = f"{prefix}/{path}" if prefix else path
    return Header(path, _number(block[124:136], "size"), kind)


def parse_pax(body: bytes) -> dict[str, str]:
    """The values of `path` and `size` in pax records. A record is `<length> <key>=<value>\\n`; its
    length includes the digits of the length itself.
    """
    fields: dict[str, str] = {}
    at = 0
    while at < len(body):
        digits, space, _ = body[at : at + 20].partition(b" ")
        length = int(digits) if space and _DECIMAL.fullmatch(digits) else 0
        key, equals, value = body[at + len(digits) + 1 : at + length].partition(b"=")
        if length <= len(digits) + 1 or at + length > len(body) or not (equals and value):
            raise Poison("bad_archive", "a pax header of the tar archive is damaged")
        if key.startswith(b"GNU.sparse."):
            raise Poison("bad_archive", "the tar archive holds sparse files, as pax records")
        if value == b"\n":
            pass  # an empty value takes nothing from the header
        elif key == b"path":
            fields["path"] = path_text(value[:-1])
        elif key == b"size":
            if not _DECIMAL.fullmatch(value[:-1]):
                raise Poison("bad_archive", f"a pax header has the size {value[:30]!r}")
            fields["size"] = value[:-1].decode()
        at += length
    return fields


def _check_sum(block: bytes) -> None:
    """Raises `Poison` if the checksum is wrong. The checksum is the sum of all bytes of the block;
    the bytes of the checksum's own field count as spaces. Some old writers took bytes above 127 for
    negative numbers. The sum by that rule is accepted, too.
    """
    expected = _number(block[_CHECKSUM], "checksum")
    rest = block[:148] + b" " * 8 + block[156:]
    unsigned = sum(rest)
    if expected != unsigned and expected != unsigned - 256 * sum(byte > 127 for byte in rest):
        raise Poison("bad_archive", "a tar header does not match its checksum")


def _number(field: bytes, name: str) -> int:
    if field[0] == _GNU_BASE_256:
        return int.from_bytes(field[1:], "big")
    # A number ends at the first NUL. Before it, GNU tar passes over one NUL, and so do we.
    digits = field.removeprefix(b"\0").partition(b"\0")[0].strip(b" ")
    if not digits:
        return 0
    if not _OCTAL.fullmatch(digits):
        raise Poison("bad_archive", f"a tar header has the {name} {digits!r}")
    return int(digits, 8)


def path_text(field: bytes) -> str:
    """The text of a path, which ends before the first NUL. Raises `Poison` if no system allows such
    a path.
    """
    path = field.partition(b"\0")[0].decode(errors="replace")
    check_path(path)
    return path


def over_limit(nbytes: int, options: RowOptions) -> Poison | None:
    """The error for a member that is larger than allowed."""
    limit_bytes = options.member_bytes
    if limit_bytes is None or nbytes <= limit_bytes:
        return None
    return Poison("too_large", f"it has {nbytes} bytes, limits.member_bytes is {limit_bytes}")


def check_path(path: str) -> None:
    """Raises `Poison` for a path that would make every record of the member's rows too long."""
    if len(path) > _PATH_CHARS:
        raise Poison(
            "bad_archive",
            f"a path in the archive has {len(path)} characters, at most {_PATH_CHARS} are "
            f'read: "{path[:40]}…"',
        )


# A long name, or the pax records of a member, may have at most this many bytes. GNU tar and Python
# write a few kB.
_EXTENSION_BYTES = 1 << 20


class TarParser(Parser):
    step_bytes = EXPANDING_STEP_BYTES
    damage: ErrorCode = "bad_archive"

    def __init__(self, options: RowOptions, members: Members) -> None:
        self._options = options
        self._of_archive = members
        self._block = bytearray()  # an unfinished header
        self._members = 0
        self._ended = self._started = False
        # the path and the size that an extension states for the next member
        self._overrides: dict[str, str] = {}
        self._extension: tuple[TypeFlag, bytearray] | None = None
        self._member: ArchiveMember | None = None
        self._data_bytes = 0  # how many bytes of the current member are still to come
        self._padding_bytes = 0

    def feed(self, data: bytes) -> Iterator[Run]:
        try:
            yield from self._read(data)
        except Poison:
            yield from self._of_archive.rest()
            raise

    def _read(self, data: bytes) -> Iterator[Run]:
        at = 0
        while at < len(data):
            if self._data_bytes:
                part = data[at : at + self._data_bytes]
                at += len(part)
                self._data_bytes -= len(part)
                yield from self._take(part)
            elif self._padding_bytes:
                skipped = min(self._padding_bytes, len(data) - at)
                at += skipped
                self._padding_bytes -= skipped
            else:
                if self._ended and not self._block:
                    zeros = len(data) - at - len(data[at:].lstrip(b"\0"))
                    at += zeros // BLOCK_BYTES * BLOCK_BYTES
                part = data[at : at + BLOCK_BYTES - len(self._block)]
                at += len(part)
                self._block += part
                if len(self._block) == BLOCK_BYTES:
                    block = bytes(self._block)
                    self._block.clear()
                    yield from self._begin(block)

    def close(self) -> Iterator[Run]:
        if self._ended and not self._block.strip(b"\0"):
            yield from self._of_archive.end()
            return
        yield from self._of_archive.rest()
        if self._ended:
            raise _behind_the_end()
        # In a header, names are filled up with NUL, so even the beginning of a header has a NUL.
        if not self._started and b"\0" not in self._block:
            raise no_such("tar archive", bytes(self._block), "bad_archive")
        where = f' in member "{self._member.path}"' if self._member is not None else ""
        raise Poison("bad_archive", f"the tar archive stops early{where}: no end mark")

    def _begin(self, block: bytes) -> Iterator[Run]:
        """Read a header, and prepare for the data that follows it."""
        try:
            header = parse_header(block)
        except Poison as poison:
            if self._ended:
                raise _behind_the_end() from poison
            if self._started or is_tar(block):
                raise
            raise no_such("tar archive", block, "bad_archive") from poison
        self._started = True
        self._ended = header is None
        if header is None:
            return
        if header.type in (TypeFlag.PAX, TypeFlag.LONG_NAME, TypeFlag.SKIPPED_EXTENSION):
            if header.size > _EXTENSION_BYTES:
                raise Poison("bad_archive", f"a tar extension header holds {header.size} bytes")
            self._extension = (header.type, bytearray())
            self._expect(header.size)
        else:
            yield from self._begin_member(header)
        if not self._data_bytes:
            yield from self._end()

    def _begin_member(self, header: Header) -> Iterator[Run]:
        self._members += 1
        if self._members > self._options.members:
            raise ArchiveLimit(
                "too_large",
                f"the archive has more than {self._options.members} members (limits.members)",
            )
        path = self._overrides.get("path", header.path).removeprefix("./")
        size = int(self._overrides.get("size", header.size))
        self._overrides = {}
        if header.type is TypeFlag.LISTED_FOLDER:
            self._expect(size)
        if header.type is TypeFlag.LINK:
            self._of_archive.pass_over(path, "links")
        if header.type is not TypeFlag.FILE or path.endswith("/"):
            return
        self._expect(size)
        parser = self._of_archive.open(path)
        if parser is not None:
            self._member = ArchiveMember(path, parser, self._of_archive)
            if (why := over_limit(size, self._options)) is not None:
                yield from self._member.fail(why)

    def _expect(self, size: int) -> None:
        self._data_bytes = size
        self._padding_bytes = -size % BLOCK_BYTES

    def _take(self, part: bytes) -> Iterator[Run]:
        if self._extension is not None:
            self._extension[1].extend(part)
        elif self._member is not None:
            yield from self._member.feed(part)
        if not self._data_bytes:
            yield from self._end()

    def _end(self) -> Iterator[Run]:
        """Call this when all bytes of a member or an extension were read."""
        if self._extension is not None:
            kind, body = self._extension
            self._extension = None
            if kind is TypeFlag.LONG_NAME:
                self._overrides["path"] = path_text(bytes(body))
            elif kind is TypeFlag.PAX:
                self._overrides |= parse_pax(bytes(body))
        elif self._member is not None:
            yield from self._member.close()
            self._member = None


def _behind_the_end() -> Poison:
    return Poison("bad_archive", "something that is no tar follows the end of the tar archive")
