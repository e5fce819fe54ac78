"""Archives as other programs write them: GNU tar, bsdtar, Go; Info-ZIP, 7-Zip, bsdtar, Go, Python.

Each is compared with the files that its writer was given. Programs that are not on this machine are
skipped.
"""

import io
import os
import shutil
import subprocess
import zipfile
from collections.abc import Sequence
from pathlib import Path

import pytest

from penstock.errors import Poison
from penstock.formats.registry import formats
from penstock.formats.runs import RowOptions
from penstock.formats.text.csv_dialect import CsvOptions
from tests.formats.support import Row, by_ranges, decode, rows_of

LONG = "/".join(["a-folder-with-a-long-name"] * 5) + "/file.csv"
FILES = {
    "plain.csv": b"1,2\n3,4\n",
    "sub/name with space.csv": b"5,6\n",
    "sub/\u00fcml\u00e4ut.csv": b"7,8\n",
    LONG: b"9,10\n" * 200,
    "empty.csv": b"",
    "notes.md": b"no rows",
}
ROWS = {
    (name, tuple(map(float, line.split(b","))))
    for name, data in FILES.items() if name.endswith(".csv") for line in data.splitlines()
}  # fmt: skip


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("files")
    for name, data in FILES.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_bytes(data)
    (root / "link.csv").symlink_to("plain.csv")
    os.link(root / "plain.csv", root / "twin.txt")
    return root


def found(rows: Sequence[Row]) -> set[tuple[str | None, object]]:
    return {(member, tuple(row) if isinstance(row, list) else row) for member, row in rows}


def run(command: Sequence[object], folder: Path) -> bytes:
    program = str(command[0])
    if shutil.which(program) is None:
        pytest.skip(f"{program} is not on this machine")
    done = subprocess.run(
        [str(part) for part in command], cwd=folder, capture_output=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


TARS: dict[str, Sequence[str]] = {
    **{f"GNU tar, {kind}": ("tar", f"--format={kind}", "-cf", "-", ".") for kind in ("gnu", "pax")},
    "GNU tar, names without a dot": ("tar", "--format=gnu", "-cf", "-", *FILES),
    "GNU tar, ustar": ("tar", "--format=ustar", "-cf", "-", "."),
    "GNU tar, blocks of 1": ("tar", "-b1", "-cf", "-", "."),
    **{
        f"bsdtar, {kind}": ("bsdtar", f"--format={kind}", "-cf", "-", ".")
        for kind in ("pax", "gnutar", "ustar")
    },
    **{
        f"bsdtar, {kind}": ("bsdtar", f"--{kind}", "-cf", "-", ".")
        for kind in ("gzip", "bzip2", "xz", "zstd", "lz4")
    },
}
EXTENSIONS = {"gzip": ".gz", "bzip2": ".bz2", "xz": ".xz", "zstd": ".zst", "lz4": ".lz4"}


@pytest.mark.parametrize("writer", TARS)
def test_a_tar_has_the_rows_that_were_written(writer: str, folder: Path) -> None:
    data = run(TARS[writer], folder)
    key = "a.tar" + EXTENSIONS.get(writer.split(", ")[1], "")
    options = RowOptions(own=(CsvOptions(header="no"),))
    cuts = range(0, len(data), 700)
    assert found(rows_of(decode(data, key, options, cuts=cuts))) == ROWS


def test_a_sparse_member_of_gnu_tar_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "holes.csv"
    with file.open("wb") as holes:
        holes.seek(1 << 20)
        holes.write(b"1,2\n")
    data = run(("tar", "--format=gnu", "-S", "-cf", "-", file.name), tmp_path)
    if len(data) > 1 << 19:
        pytest.skip("this file system keeps no holes")
    with pytest.raises(Poison) as caught:
        decode(data, "a.tar")
    assert caught.value.code == "bad_archive"


@pytest.mark.parametrize(
    "option",
    [("-V", "a label"), ("--listed-incremental=snapshot", "--exclude=snapshot")],
    ids=["label", "incremental"],
)
def test_labels_and_lists_of_folders_in_gnu_tar_are_passed_over(
    option: tuple[str, ...], folder: Path
) -> None:
    data = run(("tar", "--format=gnu", *option, "-cf", "-", "."), folder)
    cuts = range(0, len(data), 700)
    assert (
        found(rows_of(decode(data, "a", RowOptions(own=(CsvOptions(header="no"),)), cuts=cuts)))
        == ROWS
    )


GO = """package main

import ("archive/tar"; "archive/zip"; "os"; "path/filepath"; "time")

func main() {
	format := map[string]tar.Format{"pax": tar.FormatPAX, "gnu": tar.FormatGNU}[os.Args[1]]
	t, z := tar.NewWriter(os.Stdout), zip.NewWriter(os.Stdout)
	filepath.Walk(".", func(path string, info os.FileInfo, err error) error {
		if !info.Mode().IsRegular() { return nil }
		body, _ := os.ReadFile(path)
		if os.Args[1] == "zip" {
			w, _ := z.Create(path)
			w.Write(body)
			return nil
		}
		t.WriteHeader(&tar.Header{Name: path, Size: info.Size(), Mode: 0600, Format: format,
			ModTime: time.Now().Round(time.Second)})
		t.Write(body)
		return nil
	})
	if os.Args[1] == "zip" { z.Close() } else { t.Close() }
}
"""


@pytest.fixture(scope="module")
def go_writer(tmp_path_factory: pytest.TempPathFactory) -> Path:
    if shutil.which("go") is None:
        pytest.skip("go is not on this machine")
    place = tmp_path_factory.mktemp("go")
    (place / "main.go").write_text(GO)
    run(("go", "build", "-o", place / "write", place / "main.go"), place)
    return place / "write"


@pytest.mark.parametrize("kind", ["pax", "gnu"])
def test_a_tar_of_go_has_the_rows_that_were_written(
    kind: str, go_writer: Path, folder: Path
) -> None:
    data = run((go_writer, kind), folder)
    assert found(rows_of(decode(data, "a.tar", RowOptions(own=(CsvOptions(header="no"),))))) == ROWS


def rows_of_zip(data: bytes) -> set[tuple[str | None, object]]:
    steps = by_ranges(RowOptions(own=(CsvOptions(header="no"),)), formats()["zip"], data)
    return found(rows_of([one for some in steps for one in some]))


def code_of_zip(data: bytes) -> str:
    with pytest.raises(Poison) as caught:
        rows_of_zip(data)
    return caught.value.code


# {} is where the archive is to be.
ZIPS: dict[str, Sequence[str]] = {
    "Info-ZIP": ("zip", "-qry", "{}", "."),
    "Info-ZIP, stored": ("zip", "-qry0", "{}", "."),
    "Info-ZIP, bzip2": ("zip", "-qry", "-Z", "bzip2", "{}", "."),
    "Info-ZIP, zip64": ("zip", "-qry", "-fz", "{}", "."),
    "7-Zip": ("7z", "a", "-tzip", "-snl", "-bd", "{}", "."),
    **{
        f"7-Zip, {method}": ("7z", "a", "-tzip", "-snl", f"-mm={method}", "-bd", "{}", ".")
        for method in ("Copy", "BZip2", "LZMA")
    },
    "bsdtar": ("bsdtar", "--format=zip", "-cf", "{}", "."),
    "bsdtar, stored": (
        "bsdtar",
        "--format=zip",
        "--options=zip:compression=store",
        "-cf",
        "{}",
        ".",
    ),
}


@pytest.mark.parametrize("writer", ZIPS)
def test_a_zip_has_the_rows_that_were_written(writer: str, folder: Path, tmp_path: Path) -> None:
    archive = tmp_path / "a.zip"
    run([part.format(archive) for part in ZIPS[writer]], folder)
    assert rows_of_zip(archive.read_bytes()) == ROWS


def test_a_zip_that_was_streamed_has_its_sizes_behind_the_members(folder: Path) -> None:
    # The link would be stored, which zip does not do into a pipe.
    data = run(("zip", "-q", "-", *FILES), folder)
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        assert any(entry.flag_bits & 8 for entry in archive.infolist())
    assert rows_of_zip(data) == ROWS


def test_a_zip_of_go_has_the_rows_that_were_written(go_writer: Path, folder: Path) -> None:
    assert rows_of_zip(run((go_writer, "zip"), folder)) == ROWS


def by_python(method: int, *, zip64: bool) -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", method) as archive:
        for name, data in FILES.items():
            with archive.open(zipfile.ZipInfo(name), "w", force_zip64=zip64) as member:
                member.write(data)
    return out.getvalue()


@pytest.mark.parametrize("method", [zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED, zipfile.ZIP_LZMA])
@pytest.mark.parametrize("zip64", [False, True])
def test_a_zip_of_python_has_the_rows_that_were_written(method: int, zip64: bool) -> None:
    assert rows_of_zip(by_python(method, zip64=zip64)) == ROWS


ENCRYPTED: dict[str, Sequence[str]] = {
    "Info-ZIP": ("zip", "-qr", "-P", "secret", "{}", "."),
    "7-Zip, ZipCrypto": ("7z", "a", "-tzip", "-psecret", "-mem=ZipCrypto", "-bd", "{}", "."),
    "7-Zip, AES": ("7z", "a", "-tzip", "-psecret", "-mem=AES256", "-bd", "{}", "."),
}


@pytest.mark.parametrize("writer", ENCRYPTED)
def test_an_encrypted_zip_is_refused(writer: str, folder: Path, tmp_path: Path) -> None:
    archive = tmp_path / "a.zip"
    run([part.format(archive) for part in ENCRYPTED[writer]], folder)
    assert code_of_zip(archive.read_bytes()) == "bad_archive"


@pytest.mark.parametrize("method", ["Deflate64", "PPMd"])
def test_a_member_of_a_method_that_is_not_read_is_a_bad_row(
    method: str, folder: Path, tmp_path: Path
) -> None:
    archive = tmp_path / "a.zip"
    run(("7z", "a", "-tzip", f"-mm={method}", "-bd", str(archive), "."), folder)
    rows = rows_of_zip(archive.read_bytes())
    assert rows & ROWS == {row for row in ROWS if row[0] != LONG}  # too short to be packed
    [(member, reason)] = rows - ROWS
    assert member == LONG
    assert "cannot be read" in str(reason)
