"""Hostile gzip and tar: damage, tricks with headers, links out, and bombs."""

import gzip
import io
import tarfile
import zlib
from collections.abc import Callable

from penstock.formats.runs import RowOptions
from tests.corpus.cases import Stored

MIB = 1 << 20
_CSV = b"1,2\n3,4\n"
_END = b"\0" * 1024
_ALL = RowOptions(member="*")


def packed(data: bytes) -> bytes:
    return gzip.compress(data, 6, mtime=0)


def zeros(mib: int) -> bytes:
    """So many MiB of zeros, as gzip: a thousandth."""
    return repeated(b"\0" * MIB, mib)


def repeated(part: bytes, times: int) -> bytes:
    packer = zlib.compressobj(9, wbits=31)
    return b"".join(packer.compress(part) for _ in range(times)) + packer.flush()


def header(
    name: bytes = b"a.csv",
    size: bytes | int = 8,
    kind: bytes = b"0",
    *,
    magic: bytes = b"ustar\x0000",
    prefix: bytes = b"",
    checksum: bytes | None = None,
) -> bytes:
    """A header block as given, right or wrong; with a checksum that fits unless one is given."""
    block = bytearray(512)
    block[0 : len(name)] = name
    sized = b"%011o\0" % size if isinstance(size, int) else size
    block[124 : 124 + len(sized)] = sized
    block[156:157] = kind
    block[257 : 257 + len(magic)] = magic
    block[345 : 345 + len(prefix)] = prefix
    block[148:156] = b" " * 8
    block[148:156] = b"%06o\0 " % sum(block) if checksum is None else checksum
    return bytes(block)


def padded(data: bytes) -> bytes:
    return data + b"\0" * (-len(data) % 512)


def member(name: bytes = b"a.csv", data: bytes = _CSV) -> bytes:
    return header(name, len(data)) + padded(data)


def extension(kind: bytes, data: bytes) -> bytes:
    return header(b"ext", len(data), kind) + padded(data)


def pax(*records: tuple[bytes, bytes]) -> bytes:
    return extension(b"x", b"".join(_pax_record(*record) for record in records))


def _pax_record(key: bytes, value: bytes) -> bytes:
    length = len(key) + len(value) + 3
    length += len(b"%d" % (length + len(b"%d" % length)))
    return b"%d %b=%b\n" % (length, key, value)


def links(kind: bytes, target: str) -> bytes:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as archive:
        info = tarfile.TarInfo("link.csv")
        info.type, info.linkname = kind, target
        archive.addfile(info)
    return out.getvalue()[:512] + member() + _END


def archive_of_bombs() -> bytes:
    """200 members of 15 MiB each, all of them below every limit of their own; 240 kB together."""
    bomb = zeros(15)
    return packed(b"".join(member(b"%d.csv.gz" % i, bomb) for i in range(200)) + _END)


_GZIP = [
    Stored("a magic and nothing else", "x.csv.gz", b"\x1f\x8b", "end:bad_format"),
    Stored("one byte of the magic", "x.csv.gz", b"\x1f", "end:bad_format"),
    Stored("nothing, packed", "x.csv.gz", packed(b""), "end"),
    Stored("cut in the header", "x.csv.gz", packed(_CSV)[:7], "end:bad_format"),
    Stored("cut in the data", "x.csv.gz", packed(_CSV)[:-12], "row end:bad_format"),
    Stored("cut in the checksum", "x.csv.gz", packed(_CSV)[:-3], "row row end:bad_format"),
    Stored("a wrong checksum", "x.csv.gz", packed(_CSV)[:-8] + bytes(4) + packed(_CSV)[-4:],
           "row row end:bad_format"),
    Stored("a wrong length", "x.csv.gz", packed(_CSV)[:-4] + bytes(4), "row row end:bad_format"),
    Stored("an unknown method", "x.csv.gz", b"\x1f\x8b\x07" + packed(_CSV)[3:], "end:bad_format"),
    Stored("reserved flags", "x.csv.gz", b"\x1f\x8b\x08\xe0" + packed(_CSV)[4:], "end:bad_format"),
    Stored("a name in the header that never ends", "x.csv.gz",
           b"\x1f\x8b\x08\x08\0\0\0\0\0\3" + b"a" * 100_000, "end:bad_format"),
    Stored("an extra field longer than the data", "x.csv.gz",
           b"\x1f\x8b\x08\x04\0\0\0\0\0\3\xff\xff" + b"a" * 100, "end:bad_format"),
    Stored("garbage behind", "x.csv.gz", packed(_CSV) + b"garbage", "row row end:bad_format"),
    Stored("padding behind", "x.csv.gz", packed(_CSV) + bytes(10_000), "row row"),
    Stored("padding, then garbage", "x.csv.gz", packed(_CSV) + bytes(100) + b"x",
           "row row end:bad_format"),
    Stored("two gzip members", "x.csv.gz", packed(_CSV) + packed(_CSV), "row*4"),
    Stored("the second of two cut", "x.csv.gz", packed(_CSV) + packed(_CSV)[:9],
           "row row end:bad_format"),
    Stored("1,000 gzip members of a row", "x.csv.gz", packed(b"1,2\n") * 1000, "row*1000"),
    Stored("2,000 empty gzip members", "x.csv.gz", packed(b"") * 2000 + packed(_CSV), "row row"),
    Stored("gzip in gzip", "x.csv.gz", packed(packed(_CSV)), "end:bad_format"),
    Stored("gzip in gzip, without a name", "x", packed(packed(_CSV)), "end:bad_format"),
    Stored("gzip named CSV", "x.csv", packed(_CSV), "row row"),
    Stored("CSV named gzip", "x.csv.gz", _CSV, "row row"),
    Stored("UTF-16, packed", "x.csv.gz", packed("1,2\n".encode("utf-16")), "end:bad_format"),
    Stored("binary data, packed", "x.gz", packed(bytes(range(256)) * 4), "end:bad_format"),
    Stored("zlib instead of gzip", "x.csv.gz", zlib.compress(_CSV), "end:bad_format"),
]  # fmt: skip

_DAMAGED = [
    Stored("an archive of nothing", "x.tar", _END, "end"),
    Stored("no byte of an archive", "x.tar", b"", "end:bad_format"),
    Stored("half a header", "x.tar", header()[:200], "end:bad_archive"),
    Stored("no end mark", "x.tar", member(), "row row end:bad_archive"),
    Stored("cut in a member", "x.tar", header(size=1000) + _CSV, "row row end:bad_archive"),
    Stored("cut in the padding", "x.tar", header() + _CSV + bytes(9), "row row end:bad_archive"),
    Stored("a wrong checksum in a header", "x.tar", header(checksum=b"000000\0 ") + _END,
           "end:bad_archive"),
    Stored("a checksum of letters", "x.tar", header(checksum=b"abcdef\0 ") + _END,
           "end:bad_archive"),
    Stored("text named tar", "x.tar", b"1,2\n" * 1000, "end:bad_archive"),
    Stored("something behind the end mark", "x.tar", member() + _END + b"garbage" * 100,
           "row row end:bad_archive"),
    Stored("padding behind the end mark", "x.tar", member() + _END + bytes(9_999), "row row"),
    Stored("a second archive behind the first", "x.tar", (member() + _END) * 2, "row*4"),
    Stored("a bad second header", "x.tar", member() + b"x" * 512 + _END,
           "row row end:bad_archive"),
    Stored("a cut tar.gz", "x.tar.gz", packed(member() + _END)[:-20], "row row end:bad_archive"),
    Stored("a tar.gz without an end mark", "x.tgz", packed(member()), "row row end:bad_archive"),
    Stored("a tar.gz of text", "x.tar.gz", packed(_CSV * 200), "end:bad_archive"),
]  # fmt: skip

_SIZES = [
    Stored(f"a member's size is {size!r}", "x.tar", header(size=size) + padded(_CSV) + _END, answer)
    for size, answer in (
        (b"-0000000007\0", "end:bad_archive"),
        (b"+0000000010\0", "end:bad_archive"),
        (b"0000000_010\0", "end:bad_archive"),
        (b"0000000008x\0", "end:bad_archive"),
        (b"0x000000008\0", "end:bad_archive"),
        (b"77777777777\0", "row row end:bad_archive"),
        (b"\x80" + b"\xff" * 11, "row row end:bad_archive"),
        (b"\xff" * 12, "end:bad_archive"),
        (b"\0" * 12, "end:bad_archive"),
    )
]

_PAX = [
    Stored("a size of 5,000 digits", "x.tar", pax((b"size", b"9" * 5000)) + member() + _END,
           "end:bad_archive"),
    Stored("a negative size in pax", "x.tar", pax((b"size", b"-8")) + member() + _END,
           "end:bad_archive"),
    Stored("a size of other digits", "x.tar", pax((b"size", "\u0668".encode())) + member() + _END,
           "end:bad_archive"),
    Stored("a path of 5,000 characters", "x.tar",
           pax((b"path", b"a" * 5000 + b".csv")) + member() + _END, "end:bad_archive"),
    Stored("a GNU path of 5,000 characters", "x.tar",
           extension(b"L", b"a" * 5000 + b".csv") + member() + _END, "end:bad_archive"),
    Stored("a pax record without a length", "x.tar", extension(b"x", b"path=a\n") + member() + _END,
           "end:bad_archive"),
    Stored("a pax record of length 0", "x.tar", extension(b"x", b"0 path=a\n") + member() + _END,
           "end:bad_archive"),
    Stored("a pax record longer than its header", "x.tar",
           extension(b"x", b"99 path=a\n") + member() + _END, "end:bad_archive"),
    Stored("a pax header of 2 MiB", "x.tar", lambda: extension(b"x", bytes(2 * MIB)) + _END,
           "end:bad_archive"),
    Stored("a pax header that says 8 GiB", "x.tar", header(b"x", b"77777777777\0", b"x") + _END,
           "end:bad_archive"),
    Stored("a pax header before nothing", "x.tar", pax((b"path", b"b.csv")) + _END, "end"),
    Stored("a hundred pax headers", "x.tar", pax((b"path", b"b.csv")) * 100 + member() + _END,
           "row row"),
    Stored("access rights of Solaris", "x.tar", extension(b"A", b"user") + member() + _END,
           "row row"),
    Stored("a sparse file", "x.tar", header(kind=b"S") + padded(_CSV) + _END, "end:bad_archive"),
    Stored("a sparse file in pax", "x.tar", pax((b"GNU.sparse.major", b"1")) + member() + _END,
           "end:bad_archive"),
    Stored("an unknown type of entry", "x.tar", header(kind=b"Z") + padded(_CSV) + _END,
           "end:bad_archive"),
    Stored("a global header", "x.tar", extension(b"g", b"hello") + member() + _END, "row row"),
]  # fmt: skip

_LINKS = [
    Stored(f"a {what}", "x.tar", links(kind, target), "row row")
    for what, kind, target in (
        ("symbolic link out", tarfile.SYMTYPE, "../../../../etc/passwd"),
        ("symbolic link to a file", tarfile.SYMTYPE, "/etc/passwd"),
        ("hard link", tarfile.LNKTYPE, "/etc/passwd"),
        ("character device", tarfile.CHRTYPE, ""),
        ("block device", tarfile.BLKTYPE, ""),
        ("pipe", tarfile.FIFOTYPE, ""),
        ("folder", tarfile.DIRTYPE, ""),
    )
]

_NAMES = [
    Stored(f"a member named {name.decode('latin-1')!r}", "x.tar", member(name) + _END, "row row")
    for name in (
        b"/etc/cron.d/x.csv", b"../../x.csv", b"./x.csv", b"C:\\x.csv", b"\\\\host\\x.csv",
        b"a\x01\x1b[2J.csv", b"\xff\xfe.csv", b"con.csv", b"x.csv ",
    )[:8]
] + [
    Stored("a member without a name", "x.tar", member(b"") + _END, "end:bad_format"),
    Stored("a member of an unknown name", "x.tar", member(b"x.exe") + _END, "end:bad_format"),
    Stored("a member named like a folder", "x.tar", member(b"x.csv/") + _END, "end:bad_archive"),
    Stored("two members of one name", "x.tar", member() * 2 + _END, "row*4"),
]  # fmt: skip

_INSIDE = [
    Stored("an archive in an archive", "x.tar", member(b"in.tar", member() + _END) + _END,
           "end:bad_format"),
    Stored("an archive in an archive, asked for", "x.tar",
           member(b"in.tar", member() + _END) + _END, "bad_row", None, _ALL),
    Stored("a packed archive in an archive, asked for", "x.tar",
           member(b"in.tgz", packed(member() + _END)) + _END, "bad_row", None, _ALL),
    Stored("a packed member", "x.tar", member(b"a.csv.gz", packed(_CSV)) + _END, "row row"),
    Stored("a cut packed member", "x.tar",
           member(b"a.csv.gz", packed(_CSV)[:-3]) + member() + _END, "row row bad_row row row"),
    Stored("gzip in a packed member", "x.tar", member(b"a.csv.gz", packed(packed(_CSV))) + _END,
           "bad_row end:bad_archive"),
    Stored("a bad row in a member", "x.tar", member(b"a.csv", b"1,2\nx\n") + member() + _END,
           "row bad_row row row"),
    Stored("a member of NULs", "x.tar", member(b"a.csv", bytes(600)) + _END,
           "bad_row end:bad_archive"),
    Stored("members of other widths", "x.tar",
           member(b"a.csv", b"1,2\n") + member(b"b.csv", b"1,2,3\n") + _END, "row row"),
    Stored("JSON that breaks off in a member", "x.tar", member(b"a.json", b"[[1,2],") + _END,
           "row bad_row"),
]  # fmt: skip

_LIMITS = [
    Stored("more members than allowed", "x.tar", member() * 3 + _END, "row*4 end:too_large", None,
           RowOptions(members=2)),
    Stored("more links than allowed", "x.tar", links(tarfile.SYMTYPE, "a"), "end:too_large", None,
           RowOptions(members=1)),
    Stored("a member larger than allowed", "x.tar", member() + member(b"b.csv", _CSV * 9) + _END,
           "row row bad_row", None, RowOptions(member_bytes=20)),
    Stored("a member that says it is larger than allowed", "x.tar",
           header(size=b"77777777777\0") + padded(_CSV) + _END, "bad_row end:bad_archive", None,
           RowOptions(member_bytes=20)),
]  # fmt: skip

_NOT_ALL = RowOptions(row_bytes=100_000)
_TWO_MIB = RowOptions(member_bytes=2 * MIB, row_bytes=100_000)
_SMALL = RowOptions(expanded_bytes=2 * MIB, row_bytes=100_000)


def _bomb(name: str, key: str, data: Callable[[], bytes], answer: str,
          options: RowOptions = _NOT_ALL) -> Stored:  # fmt: skip
    return Stored(name, key, data, answer, None, options)


BOMBS = [
    _bomb("42 kB of zeros", "x.ndjson.gz", lambda: zeros(42), "bad_row end:too_large"),
    _bomb("200 MiB of zeros", "x.ndjson.gz", lambda: zeros(200), "bad_row end:too_large"),
    _bomb("zeros for a CSV", "x.csv.gz", lambda: zeros(42), "end:too_large"),
    _bomb("zeros for a JSON array", "x.json.gz", lambda: zeros(42), "end:bad_format"),
    _bomb("zeros for a tar", "x.tar.gz", lambda: zeros(42), "end:too_large"),
    _bomb("an array without an end", "x.json.gz", lambda: repeated(b"[" * MIB, 42),
          "end:too_large"),
    _bomb("commas without an end", "x.csv.gz", lambda: repeated(b"," * MIB, 42), "end:too_large"),
    _bomb("quotes without an end", "x.csv.gz", lambda: packed(b"1,2\n") + repeated(b'"' * MIB, 42),
          "row bad_row end:too_large"),
    _bomb("an archive of a large member", "x.tar.gz",
          lambda: packed(header(b"a.ndjson", 42 * MIB)) + zeros(42), "bad_row end:too_large"),
    _bomb("an archive of a large member of no rows", "x.tar.gz",
          lambda: packed(header(b"a.exe", 42 * MIB)) + zeros(42), "end:too_large"),
    _bomb("a packed bomb in an archive", "x.tar",
          lambda: member(b"a.ndjson.gz", zeros(42)) + _END, "bad_row end:too_large"),
    _bomb("many bombs, each below the limits, in a packed archive", "x.tar.gz", archive_of_bombs,
          "bad_row*67 end:too_large"),
    _bomb("a packed member larger than allowed", "x.tar",
          lambda: member(b"a.ndjson.gz", zeros(4)) + _END, "bad_row*2 end:bad_archive", _TWO_MIB),
    _bomb("more bytes than allowed", "x.ndjson.gz", lambda: zeros(4), "bad_row end:too_large",
          _SMALL),
]  # fmt: skip

ARCHIVES = [
    *_GZIP, *_DAMAGED, *_SIZES, *_PAX, *_LINKS, *_NAMES, *_INSIDE, *_LIMITS,
]  # fmt: skip
