"""zip: members as rows, by every writer; what is encrypted, damaged, too large or hostile."""

import io
import struct
import tracemalloc
import zipfile
import zlib
from collections.abc import Mapping

import pytest

from penstock.errors import Poison
from penstock.formats.reading import decoded
from penstock.formats.registry import claim_of
from penstock.formats.runs import RowOptions, Run
from tests.formats.picture_bodies import JPEG
from tests.formats.support import gzipped, matrix, rows_of, tar_of

ROWS = b"".join(b"%d,%d\n" % (i, i * i) for i in range(2000))
METHODS = {
    "stored": zipfile.ZIP_STORED,
    "deflated": zipfile.ZIP_DEFLATED,
    "bzip2": zipfile.ZIP_BZIP2,
    "lzma": zipfile.ZIP_LZMA,
}


def zip_of(
    members: Mapping[str, bytes], method: int = zipfile.ZIP_DEFLATED, *, zip64: bool = False
) -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", method) as archive:
        for path, body in members.items():
            with archive.open(path, "w", force_zip64=zip64) as file:
                file.write(body)
    return out.getvalue()


def runs_of(data: bytes, options: RowOptions | None = None, key: str = "x.zip") -> list[Run]:
    return [
        run for runs in decoded(options or RowOptions(), data, 999, claim_of(key)) for run in runs
    ]


def code_of(data: bytes, options: RowOptions | None = None) -> str:
    with pytest.raises(Poison) as caught:
        runs_of(data, options)
    return caught.value.code


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("key", ["x.zip", "x"])
def test_members_are_rows_by_their_own_names(method: str, key: str) -> None:
    members = {"a/1.csv": ROWS, "readme.txt": b"no", "b.csv.gz": gzipped(b"1,2\n"), "c.csv": b""}
    runs = runs_of(zip_of(members, METHODS[method]), key=key)
    assert len(matrix(runs)) == 2001
    assert {run.member for run in runs} == {"a/1.csv", "b.csv.gz"}


def test_a_name_that_would_make_every_record_too_long_is_refused_where_it_has_rows() -> None:
    longest = "\x01" * 4_092 + ".csv"
    assert len(matrix(runs_of(zip_of({longest: b"1,2\n", "x" * 60_000 + ".txt": b"no"})))) == 1
    assert code_of(zip_of({"x" + longest: b"1,2\n"})) == "bad_archive"


def test_zip64_is_read() -> None:
    assert len(matrix(runs_of(zip_of({"a.csv": ROWS}, zip64=True)))) == 2000


def test_images_are_a_row_a_member_and_a_glob_chooses_any() -> None:
    data = zip_of({"1.jpg": JPEG, "1.txt": b"cat", "2.jpg": b""})
    runs = runs_of(data, RowOptions(form="bytes"))
    assert rows_of(runs) == [("1.jpg", JPEG), ("2.jpg", "the file is empty")]
    runs = runs_of(data, RowOptions(form="bytes", member="*.txt"))
    assert rows_of(runs) == [("1.txt", b"cat")]


def test_a_name_that_climbs_out_is_a_name_and_nothing_else() -> None:
    runs = runs_of(zip_of({"../../etc/a.csv": b"1,2\n", "C:\\b.csv": b"3,4\n"}))
    assert [run.member for run in runs] == ["../../etc/a.csv", "C:\\b.csv"]


def test_an_encrypted_member_is_a_bad_row() -> None:
    data = bytearray(zip_of({"a.csv": ROWS, "b.csv": b"1,2\n"}))
    data[6] |= 1
    data[data.index(b"PK\x01\x02") + 8] |= 1
    encrypted = ("a.csv", "it is encrypted, which is not read")
    assert rows_of(runs_of(bytes(data))) == [encrypted, ("b.csv", [1.0, 2.0])]


def test_archives_that_were_joined_are_all_read() -> None:
    parts = [zip_of({"a.csv": b"1,2\n"}), zip_of({}), zip_of({"b.csv": b"3,4\n"}, zip64=True)]
    for data in (b"".join(parts), b"".join(part + bytes(100) for part in parts)):
        assert matrix(runs_of(data)) == [[1, 2], [3, 4]]
    assert code_of(b"".join(parts), RowOptions(members=1)) == "too_large"
    with_program = b"#!/bin/sh\nexec unpack\n" + parts[0]
    assert matrix(runs_of(with_program)) == [[1, 2]]


@pytest.mark.parametrize("behind", [b"x", b"x" * 5000, tar_of({"b.csv": b"3,4\n"})])
def test_something_else_behind_the_end_is_bad_after_the_rows(behind: bytes) -> None:
    steps = decoded(RowOptions(), zip_of({"a.csv": b"1,2\n"}) + behind, 999, claim_of("x.zip"))
    assert matrix(next(steps)) == [[1, 2]]
    with pytest.raises(Poison, match="follows the end") as caught:
        list(steps)
    assert caught.value.code == "bad_archive"


def test_members_that_were_replaced_and_left_are_not_passed_over() -> None:
    assert code_of(zip_of({"a.csv": b"1,2\n"})[:50] + zip_of({"b.csv": b"3,4\n"})) == "bad_archive"


@pytest.mark.parametrize(
    ("members", "what"),
    [
        (["[Content_Types].xml", "xl/workbook.xml", "xl/media/image1.png"], "an Excel workbook"),
        (["[Content_Types].xml", "word/document.xml"], "a Word document"),
        (["[Content_Types].xml", "visio/document.xml"], "an Office document"),
        (["META-INF/MANIFEST.MF", "data.csv"], "a Java archive"),
        (["classes.dex", "META-INF/MANIFEST.MF", "AndroidManifest.xml"], "an Android package"),
        (["mimetype", "content.xml", "META-INF/manifest.xml"], "an OpenDocument file"),
        (["mimetype", "META-INF/container.xml"], "an EPUB"),
        (["x/__init__.py", "x-1.0.dist-info/WHEEL"], "a Python package"),
        (["archive/data.pkl", "archive/data/0"], "a file of PyTorch"),
    ],
)
def test_what_is_a_zip_but_no_archive_of_rows_is_refused_by_its_name(
    members: list[str], what: str
) -> None:
    data = zip_of(dict.fromkeys(members, b"1,2\n"))
    for form in ("matrix", "bytes"):
        with pytest.raises(Poison, match=f"this is {what}") as caught:
            runs_of(data, RowOptions(form=form), key="x")
        assert caught.value.code == "bad_format"
    chosen = decoded(RowOptions(form="bytes", member="*"), data, 999, claim_of("x"))
    assert rows_of(next(chosen))[0] == (members[0], b"1,2\n")


@pytest.mark.parametrize("tenth", range(1, 10))
def test_an_archive_that_breaks_off_is_bad(tenth: int) -> None:
    data = zip_of({f"{n}.csv": ROWS for n in range(5)})
    assert code_of(data[: len(data) * tenth // 10]) == "bad_archive"


def test_a_member_without_its_checksum_is_bad_and_its_neighbours_are_read() -> None:
    members = {"a.csv": b"1,2\n", "b.csv": b"3,4\n", "c.csv": b"5,6\n"}
    data = bytearray(zip_of(members, zipfile.ZIP_STORED))
    data[data.index(b"3,4")] = ord("9")
    first, (member, reason), last = rows_of(runs_of(bytes(data)))
    assert (first, member, last) == (("a.csv", [1.0, 2.0]), "b.csv", ("c.csv", [5.0, 6.0]))
    assert "Bad CRC-32" in str(reason)


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("tenth", range(1, 10))
def test_a_damaged_member_is_bad_and_its_neighbours_are_read(method: str, tenth: int) -> None:
    data = bytearray(zip_of({"a.csv": ROWS, "b.csv": b"1,2\n", "c.csv": b"3,4\n"}, METHODS[method]))
    start, stop = data.index(b"a.csv") + 5, data.index(b"b.csv") - 30
    at = start + (stop - start) * tenth // 10
    data[at : at + 4] = bytes(byte ^ 0x55 for byte in data[at : at + 4])
    runs = runs_of(bytes(data))
    assert [(run.member, run.error is None) for run in runs[-3:]] == [
        ("a.csv", False), ("b.csv", True), ("c.csv", True)
    ]  # fmt: skip


@pytest.mark.parametrize("method", METHODS)
def test_a_member_is_never_unpacked_at_once(method: str) -> None:
    data = zip_of({"a.csv": bytes(64 << 20), "b.csv": b"1,2\n"}, METHODS[method])
    tracemalloc.start()
    runs = runs_of(data)
    peak_bytes = tracemalloc.get_traced_memory()[1] - (len(data) if method == "stored" else 0)
    tracemalloc.stop()
    assert [(run.member, run.error is None) for run in runs] == [("a.csv", False), ("b.csv", True)]
    assert peak_bytes < 20 << 20  # LZMA has a window of 8 MiB


def test_a_bomb_stops_at_the_expansion_ratio() -> None:
    data = zip_of({f"{n}.csv": b"1,2\n" * (1 << 20) for n in range(12)})
    assert code_of(data, RowOptions(expansion_ratio=100)) == "too_large"


def test_limits_of_members_hold() -> None:
    data = zip_of({"a.csv": ROWS, "b.csv": ROWS})
    assert code_of(data, RowOptions(members=1)) == "too_large"
    assert code_of(data, RowOptions(member_bytes=100)) == "bad_archive"
    small = zip_of({"a.csv": ROWS, "b.csv": b"1,2\n"})
    (_, reason), row = rows_of(runs_of(small, RowOptions(member_bytes=100)))
    assert "limits.member_bytes" in str(reason)
    assert row == ("b.csv", [1.0, 2.0])


def test_a_directory_that_claims_to_be_huge_is_not_read() -> None:
    data = bytearray(zip_of({"a.csv": ROWS}))
    struct.pack_into("<I", data, len(data) - 10, 0xFFFFFFF0)
    assert code_of(bytes(data)) in ("bad_archive", "too_large")


@pytest.mark.parametrize(
    "data", [zip_of({"in.zip": zip_of({"a.csv": ROWS})}), tar_of({"in.zip": zip_of({})})]
)
def test_an_archive_in_an_archive_is_not_read(data: bytes) -> None:
    (run,) = runs_of(data, key="x.zip" if data.startswith(b"PK") else "x.tar")
    assert (run.member, run.rows) == ("in.zip", 1)
    assert "by its parts" in str(run.error)


def test_an_empty_archive_has_no_rows() -> None:
    assert runs_of(zip_of({})) == []


def raw_zip(entries: list[tuple[bytes, bytes, int, int]]) -> bytes:
    """Name, data, system and attributes of each, stored."""
    files, directory = bytearray(), bytearray()
    for name, data, system, attributes in entries:
        at, sizes = len(files), (zlib.crc32(data), len(data), len(data))
        files += b"PK\3\4" + struct.pack("<HHHHHIIIHH", 20, 0, 0, 0, 33, *sizes, len(name), 0)
        files += name + data
        head = struct.pack("<HHHHHHIII", system << 8 | 20, 20, 0, 0, 0, 33, *sizes)
        rest = struct.pack("<HHHHHII", len(name), 0, 0, 0, 0, attributes, at)
        directory += b"PK\1\2" + head + rest + name
    counts = struct.pack(
        "<HHHHIIH", 0, 0, *[len(entries) % 65536] * 2, len(directory), len(files), 0
    )
    return bytes(files + directory + b"PK\5\6" + counts)


DOS, UNIX, DARWIN = 0, 3, 19


@pytest.mark.parametrize(
    ("system", "attributes", "is_read"),
    [
        (DOS, 0xDEADBEEF, True),
        (DOS, 0o120777 << 16, True),
        (UNIX, 0o100644 << 16, True),
        (UNIX, 0, True),
        (UNIX, 0o120777 << 16, False),
        (DARWIN, 0o120777 << 16, False),
    ],
)
def test_a_member_is_no_file_only_where_its_system_says_so(
    system: int, attributes: int, is_read: bool
) -> None:
    data = raw_zip([(b"a.csv", b"1\n", system, attributes), (b"b.csv", b"2\n", UNIX, 0)])
    assert matrix(runs_of(data)) == ([[1], [2]] if is_read else [[2]])


def test_a_member_without_a_name_is_one_bad_row_and_the_others_are_read() -> None:
    data = raw_zip([(b"a.csv", b"1\n", UNIX, 0), (b"", b"x", UNIX, 0), (b"b.csv", b"2\n", UNIX, 0)])
    no_name = ("", "a member of the zip has no name")
    assert rows_of(runs_of(data)) == [("a.csv", [1.0]), no_name, ("b.csv", [2.0])]


@pytest.mark.parametrize("said", [100_000, 1])
def test_entries_are_counted_before_they_are_made_objects(said: int) -> None:
    entry = raw_zip([(b"a", b"", UNIX, 0)])[31:-22]
    directory = entry * 100_000
    end = struct.pack("<HHHHIIH", 0, 0, *[min(said, 65535)] * 2, len(directory), 0, 0)
    data = directory + b"PK\5\6" + end
    tracemalloc.start()
    try:
        assert code_of(data, RowOptions(members=99_999)) == "too_large"
        assert tracemalloc.get_traced_memory()[1] < 4 * len(data)
    finally:
        tracemalloc.stop()
