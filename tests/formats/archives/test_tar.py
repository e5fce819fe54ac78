"""tar: which members are read, in which dialects, and what is refused."""

import io
import tarfile

import pytest

from penstock.errors import Poison
from penstock.formats.runs import Notices, RowOptions
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


def test_a_broken_member_is_one_bad_row_and_the_members_behind_it_are_read() -> None:
    members = {
        "a.json": b"[[1,2],",
        "b.csv.gz": gzipped(CSV)[:-4],
        "c.csv": b"\x89PNG\r\n\x1a\n",
        "d.csv": CSV,
        "e.csv": CSV * 100,
    }
    rows = rows_of(decode(tar_of(members), "x.tar", RowOptions(member_bytes=300)))
    assert [row for row in rows if isinstance(row[1], list)] == [
        ("a.json", [1, 2]),
        ("b.csv.gz", [1, 2]),
        ("d.csv", [1, 2]),
    ]
    wrong = [(path, reason) for path, reason in rows if isinstance(reason, str)]
    words = ("ends early, in row 1", "gzip data ends early", "begins as a PNG", "400 bytes")
    assert [path for path, _ in wrong] == ["a.json", "b.csv.gz", "c.csv", "e.csv"]
    assert all(word in reason for word, (_, reason) in zip(words, wrong, strict=True))


def test_archives_that_were_joined_are_all_read() -> None:
    first, second = tar_of({"a.csv": CSV}), tar_of({"b.csv": b"3,4\n"})
    joined = (first + second, first.rstrip(b"\0") + bytes(-len(first.rstrip(b"\0")) % 512 + 512))
    for data in (joined[0], joined[1] + second, gzipped(first) + gzipped(second)):
        for cuts in ((), range(0, len(data), 99)):
            assert matrix(decode(data, "x.tar", cuts=cuts)) == [[1, 2], [3, 4]]


@pytest.mark.parametrize("behind", [b"x", b"x" * 5000, bytes(700) + b"x", gzipped(CSV)])
def test_something_else_behind_the_end_is_bad_after_the_rows(behind: bytes) -> None:
    for cuts in ((), range(0, 20_000, 99)):
        data = tar_of({"a.csv": CSV}) + behind
        runs, failure = decode_until_failure(data, "x.tar", cuts=[c for c in cuts if c < len(data)])
        assert matrix(runs) == [[1, 2]]
        assert failure is not None
        assert failure.code == "bad_archive"
        assert "follows the end" in str(failure)


def test_a_joined_archive_that_breaks_off_is_bad() -> None:
    data = tar_of({"a.csv": CSV}) + tar_of({"b.csv": CSV})[:1024]
    with pytest.raises(Poison, match="stops early"):
        decode(data, "x.tar")


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (RowOptions(), "no member of the archive can be read: 2 *.txt, 1 *.dcm, 1 links"),
        (RowOptions(form="bytes"), "the first is a.txt; model.request takes opaque bytes"),
        (RowOptions(member="*.csv"), "rows.member = '*.csv'"),
    ],
)
def test_an_archive_of_which_nothing_is_read_says_what_it_holds(
    options: RowOptions, words: str
) -> None:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as archive:
        for name in ("a.txt", "b.txt", "c.dcm", "d.csv"):
            info = tarfile.TarInfo(name)
            info.type = tarfile.SYMTYPE if name == "d.csv" else tarfile.REGTYPE
            archive.addfile(info)
    with pytest.raises(Poison) as failure:
        decode(out.getvalue(), "x.tar", options)
    assert words in str(failure.value)
    assert failure.value.code == "bad_format"


def test_members_that_are_passed_over_are_told_once_for_each_of_their_kinds() -> None:
    said: list[str] = []
    options = RowOptions(notices=Notices(said.append))
    for _ in range(2):
        members = {"a.csv": CSV, "b.txt": b"x", "c/.hidden": b"x", "d": b"x", "e.txt": b"x"}
        decode(tar_of(members), "x.tar", options)
    assert len(said) == 1
    assert (
        "x.tar: these members of the archive are passed over: 2 *.txt, 1 without extension"
        in said[0]
    )
    decode(tar_of({"a.csv": CSV, "._a.csv": b"x", "__MACOSX/a.csv": b"x"}), "x.tar", options)
    assert len(said) == 1


def test_members_that_do_not_fit_the_request_are_passed_over_one_by_one() -> None:
    members = {"shots/1.txt": b"A", "shots/labels.json": b"[1]", "shots/2.txt": b"B"}
    rows = rows_of(decode(tar_of(members), "x.tar", RowOptions(form="bytes", member="shots/*")))
    assert rows == [("shots/1.txt", b"A"), ("shots/2.txt", b"B")]


def test_a_number_ends_at_its_first_nul_as_in_gnu_tar() -> None:
    archive = tar_of({"a.csv": CSV, "b.csv": CSV}, format=tarfile.GNU_FORMAT)
    for size, expected in ((b"\0\0\0\0\0\0\0" + b"0004\0", 1), (b"\0" + b"0000000004\0", 2)):
        empty = with_checksum(archive[:124] + size + archive[136:512])
        data = empty + archive[1024 if expected == 1 else 512 :]
        assert matrix(decode(data, "x.tar")) == [[1, 2]] * expected


@pytest.mark.parametrize("kind", [b"A", b"E", b"I"])
def test_what_solaris_writes_before_a_file_is_passed_over(kind: bytes) -> None:
    entry = tar_of({"acl": b"user::rw-,group::r--"})[:1024]
    entry = with_checksum(entry[:156] + kind + entry[157:512]) + entry[512:]
    assert members(entry + tar_of({"a.csv": CSV})) == ["a.csv"]


def test_an_archive_older_than_posix_is_known_by_its_checksum() -> None:
    archive = tar_of({"a.csv": CSV}, format=tarfile.USTAR_FORMAT)
    header = with_checksum(archive[:257] + bytes(255))
    assert matrix(decode(header + archive[512:], "x")) == [[1, 2]]


def test_an_empty_pax_value_takes_nothing_from_the_header() -> None:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w", format=tarfile.PAX_FORMAT) as archive:
        info = tarfile.TarInfo("a.csv")
        info.size = len(CSV)
        info.pax_headers = {"comment": "x"}
        archive.addfile(info, io.BytesIO(CSV))
    data = out.getvalue().replace(b"13 comment=x\n", b"8 path=\n" + b"5 a=\n", 1)
    assert members(data) == ["a.csv"]


def test_each_member_has_its_own_header_and_width() -> None:
    archive = tar_of({"a.csv": b"x,y\n1,2\n", "b.csv": b"3,4,5\n"})
    assert matrix(decode(archive, "x.tar")) == [[1, 2], [3, 4, 5]]
