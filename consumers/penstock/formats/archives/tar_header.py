"""Reads one header block of a tar: POSIX ustar, pax records, GNU's long names and base-256 sizes.

Rule: a header whose checksum is wrong, or whose type is unknown, is `bad_archive`; nothing is
guessed. Tar and zip share the checks of a member's path and size, which are here. Pure. Layout:
POSIX.1-2017, pax, "ustar Interchange Format"; GNU tar manual, "Basic Tar Format".
"""

import re
from contextlib import suppress
from enum import Enum
from typing import NamedTuple

from penstock.errors import Poison
from penstock.formats.base.runs import RowOptions

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
    found: dict[str, str] = {}
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
            found["path"] = path_text(value[:-1])
        elif key == b"size":
            if not _DECIMAL.fullmatch(value[:-1]):
                raise Poison("bad_archive", f"a pax header has the size {value[:30]!r}")
            found["size"] = value[:-1].decode()
        at += length
    return found


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
