"""Reads tar archives (ustar, pax, GNU).

Rule: only regular files are read; links, devices and folders are passed over, never followed.
Nothing is written anywhere. An archive that stops before its end mark, or whose headers are
damaged, is `bad_archive`, because rows could be missing. If archives were joined, as by `cat`, all
of them are read; anything else behind an end mark is `bad_archive`, too.
"""

from collections.abc import Iterator

from penstock.errors import ErrorCode, Poison
from penstock.formats.archives.tar_header import (
    BLOCK_BYTES,
    Header,
    TypeFlag,
    is_tar,
    over_limit,
    parse_header,
    parse_pax,
    path_text,
)
from penstock.formats.base.parser_chain import (
    EXPANDING_STEP_BYTES,
    ArchiveLimit,
    Member,
    Members,
    Parser,
)
from penstock.formats.base.runs import RowOptions, Run
from penstock.formats.magic import no_such

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
        self._member: Member | None = None
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
            self._member = Member(path, parser, self._of_archive)
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
