"""tar: which members are read, in which dialects, and what is refused."""

import io
import tarfile

import pytest

from penstock.errors import Poison
from penstock.formats.base.runs import RowOptions
from tests.formats.support import decode, decode_until_failure, gzipped, matrix, rows_of, tar_of

CSV = b"1,2\n"
DIALECTS = [tarfile.USTAR_FORMAT, tarfile.GNU_FORMAT, tarfile.PAX_FORMAT]


def with_entry(kind: bytes) -> bytes:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as archive:
        info = tarfile.TarInfo("entry.csv")
        info.type = kind
        info.linkname = "../../etc/passwd"
        archive.addfile(info)
        info = tarfile.TarInfo("a.csv")
        info.size = len(CSV)
        archive.addfile(info, io.BytesIO(CSV))
    return out.getvalue()


def with_checksum(header: bytes) -> bytes:
    total = sum(header[:148]) + sum(header[156:512]) + 8 * ord(" ")
    return header[:148] + b"%06o\0 " % total + header[156:]


def members(data: bytes, options: RowOptions | None = None) -> list[str | None]:
    return [run.member for run in decode(data, "x.tar", options)]


@pytest.mark.parametrize("format", DIALECTS)
def test_members_are_read_by_their_own_names_in_archive_order(format: int) -> None:
    deep = "/".join(["folder"] * 15) + "/b.ndjson"
    archive = tar_of(
        {"a.csv": CSV, deep: b"[3,4]\n[5,6]", "c.json.gz": gzipped(b"[[7,8]]"), "d.csv": b""},
        format=format,
    )
    assert rows_of(decode(archive, "x.tar")) == [
        ("a.csv", [1, 2]),
        (deep, [3, 4]),
        (deep, [5, 6]),
        ("c.json.gz", [7, 8]),
    ]


@pytest.mark.parametrize("format", [tarfile.GNU_FORMAT, tarfile.PAX_FORMAT])
def test_long_and_foreign_names_are_whole(format: int) -> None:
    name = "ü" * 130 + ".csv"
    assert members(tar_of({name: CSV, "b.csv": CSV}, format=format)) == [name, "b.csv"]


def test_a_size_may_be_written_in_base_256() -> None:
    archive = tar_of({"a.csv": CSV}, format=tarfile.USTAR_FORMAT)
    header = archive[:124] + b"\x80" + len(CSV).to_bytes(11, "big") + archive[136:512]
    assert matrix(decode(with_checksum(header) + archive[512:], "x.tar")) == [[1, 2]]


def test_a_leading_dot_folder_is_no_part_of_the_name() -> None:
    assert members(tar_of({"./a.csv": CSV})) == ["a.csv"]


def test_what_is_not_rows_by_name_is_passed_over() -> None:
    archive = tar_of(
        {"README": b"x", "n.txt": b"y", "d/._a.csv": b"\0", "in.tar": b"", "a.csv": CSV}
    )
    assert members(archive) == ["a.csv"]


def test_a_glob_selects_members_whatever_their_names() -> None:
    archive = tar_of({"x/a.csv": CSV, "x/b.dat": CSV, "y/b.dat": b"[5,6]\n"})
    assert members(archive, RowOptions(member="x/*")) == ["x/a.csv", "x/b.dat"]
    assert members(archive, RowOptions(member="*.dat")) == ["x/b.dat", "y/b.dat"]


@pytest.mark.parametrize(
    "kind", [tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.CHRTYPE, tarfile.FIFOTYPE, tarfile.DIRTYPE]
)
def test_links_devices_and_folders_are_passed_over(kind: bytes) -> None:
    assert members(with_entry(kind)) == ["a.csv"]


@pytest.mark.parametrize(("kind", "named"), [(b"S", "sparse files"), (b"M", "another volume")])
def test_what_cannot_be_read_is_refused_by_name(kind: bytes, named: str) -> None:
    header = tar_of({"a.csv": CSV})
    with pytest.raises(Poison, match=named) as failure:
        decode(with_checksum(header[:156] + kind + header[157:512]) + header[512:], "x.tar")
    assert failure.value.code == "bad_archive"


@pytest.mark.parametrize("length", [100, 512, 514, 700, 1024])
def test_an_archive_cut_short_is_bad(length: int) -> None:
    with pytest.raises(Poison, match="stops early") as failure:
        decode(tar_of({"a.csv": CSV})[:length], "x.tar")
    assert failure.value.code == "bad_archive"


def test_a_wrong_checksum_is_bad_but_the_members_before_it_are_read() -> None:
    archive = bytearray(tar_of({"a.csv": CSV, "b.csv": CSV}))
    archive[1024 + 5] ^= 1
    runs, failure = decode_until_failure(bytes(archive), "x.tar")
    assert matrix(runs) == [[1, 2]]
    assert failure is not None
    assert failure.code == "bad_archive"
    assert "checksum" in str(failure)


def test_an_archive_without_members_has_no_rows() -> None:
    assert decode(tar_of({}), "x.tar") == []


def test_more_members_than_the_limit_is_too_large() -> None:
    archive = tar_of({f"{i}.csv": CSV for i in range(4)})
    assert len(members(archive, RowOptions(members=4))) == 4
    with pytest.raises(Poison, match=r"limits\.members") as failure:
        decode(archive, "x.tar", RowOptions(members=3))
    assert failure.value.code == "too_large"


def test_a_broken_member_is_named() -> None:
    with pytest.raises(Poison, match=r'member "a\.json": the JSON array ends early') as failure:
        decode(tar_of({"a.json": b"[[1,2],"}), "x.tar")
    assert failure.value.code == "bad_format"


def test_each_member_has_its_own_header_and_width() -> None:
    archive = tar_of({"a.csv": b"x,y\n1,2\n", "b.csv": b"3,4,5\n"})
    assert matrix(decode(archive, "x.tar")) == [[1, 2], [3, 4, 5]]
