"""Archives and packed data as other tools write them."""

import os
import zipfile
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from tests.writers.support import Bad, Cell, File, Refused, Way, float32, hold, named, run

MEMBERS = {"a.csv": b"1.5,2\n3,4\n", "sub/b.ndjson": b"[5, 6]\n", "sub/ü c.csv": b"7,8\n"}
ROWS = [[1.5, 2], [3, 4], [5, 6], [7, 8]]
FIRST, SECOND = {"a.csv": MEMBERS["a.csv"]}, {"b.csv": b"9,10\n"}
LINES = b"".join(b"%d,%d.5\n" % (row, row) for row in range(3_000))
LINE_ROWS = [[row, row + 0.5] for row in range(3_000)]
NO_HEADER = {"header": "no"}
WAYS: tuple[Way, ...] = ("plain", "decoder")
PACKED_WAYS: tuple[Way, ...] = ("plain", "decoder", "tar", "zip")

Right = Sequence[object] | Refused


def put(folder: Path, members: Mapping[str, bytes] = MEMBERS) -> list[str]:
    for name, data in members.items():
        (folder / "in" / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / "in" / name).write_bytes(data)
    return list(members)


def right(rows: Right) -> Mapping[Any, Right]:
    if isinstance(rows, Refused):
        return {"json": rows, "float32": rows}
    numbers = [row for row in rows if isinstance(row, list)]
    return {"json": rows, **({"float32": float32(numbers)} if numbers == rows else {})}


def by(key: str, *command: str, rows: Right = ROWS, also: Sequence[str] = ()) -> Any:
    """What a command writes of the members into a file, `{}`, or to its standard output."""

    def write(folder: Path) -> File:
        names = put(folder)
        path = folder / key
        out = run(*(part.format(path) for part in command), *also, *names, cwd=folder / "in")
        return File(key, path.read_bytes() if path.exists() else out, right(rows))

    return write


def joined(*command: str, key: str) -> Any:
    def write(folder: Path) -> File:
        parts = []
        for number, members in enumerate((FIRST, SECOND)):
            names = put(folder, members)
            path = folder / f"{number}-{key}"
            run(*(part.format(path) for part in command), *names, cwd=folder / "in")
            parts.append(path.read_bytes())
        return File(key, b"".join(parts), right([[1.5, 2], [3, 4], [9, 10]]))

    return write


def behind(key: str, *command: str, garbage: bytes = b"GARBAGE" * 300) -> Any:
    def write(folder: Path) -> File:
        file: File = by(key, *command)(folder)
        return File(key, file.data + garbage, {"json": Refused("follows the end", ROWS)})

    return write


def packed(key: str, *command: str, rows: Right = LINE_ROWS, times: int = 1) -> Any:
    """What a command makes of its standard input. `times`: so many outputs are joined."""

    def write(_: Path) -> File:
        out = run(*command, stdin=LINES)
        return File(key, out * times, right(rows if isinstance(rows, Refused) else [*rows] * times))

    return write


def macos_tar(folder: Path) -> File:
    """As the tar of macOS writes it: beside each file one of its attributes (AppleDouble)."""
    double = b"\0\5\x16\7\0\2\0\0Mac OS X        " + bytes(100)
    members = {f"sub/._{name}": double for name in ("b.ndjson", "ü c.csv")}
    names = put(folder, {"._a.csv": double, **members, **MEMBERS})
    return File("x.tar", run("tar", "-cf", "-", *names, cwd=folder / "in"), right(ROWS))


def macos_zip(folder: Path) -> File:
    """As Finder writes it: the attributes in a folder of their own."""
    names = put(
        folder, {**MEMBERS, "__MACOSX/._a.csv": b"\0\5\x16\7", ".DS_Store": b"\0\0\0\1Bud1"}
    )
    run("zip", "-q", folder / "x.zip", *names, cwd=folder / "in")
    return File("x.zip", (folder / "x.zip").read_bytes(), right(ROWS))


def workbook(folder: Path) -> File:
    path = folder / "x.xlsx"
    run("writers-python", "-c", f"import openpyxl; openpyxl.Workbook().save({str(path)!r})")
    return File("x.xlsx", path.read_bytes(), right(Refused("an Excel workbook")))


def damaged(folder: Path) -> File:
    names = put(folder, {"a.csv": b"1,2\n", "b.csv": b"3,4\n", "c.csv": b"5,6\n"})
    run("zip", "-q0", folder / "x.zip", *names, cwd=folder / "in")
    data = (folder / "x.zip").read_bytes().replace(b"3,4\n", b"3,9\n")
    return File("x.zip", data, {"json": [[1, 2], Bad("Bad CRC-32"), [5, 6]]})


def of_a_pipe(folder: Path) -> File:
    """What another program writes into a named pipe: `zip` calls the member a pipe, with data."""
    os.mkfifo(folder / "a.csv")
    with ThreadPoolExecutor(1) as pool:
        pool.submit((folder / "a.csv").write_bytes, FIRST["a.csv"])
        run("zip", "-q", "-FI", "x.zip", "a.csv", cwd=folder)
    return File("x.zip", (folder / "x.zip").read_bytes(), right([[1.5, 2], [3, 4]]))


def split_zip(folder: Path) -> File:
    data = zipfile.ZipFile.__module__.encode()
    names = put(folder, {"a.bin": (data + bytes(range(256))) * 2_000})
    run("zip", "-q", "-0", "-s", "64k", folder / "x.zip", *names, cwd=folder / "in")
    return File("x.zip", (folder / "x.z01").read_bytes(), right(Refused("split")))


GO = """package main
import ("archive/tar"; "archive/zip"; "os")
func main() {
	t, z := tar.NewWriter(os.Stdout), zip.NewWriter(os.Stdout)
	for _, name := range os.Args[2:] {
		body, _ := os.ReadFile(name)
		if os.Args[1] == "zip" { w, _ := z.Create(name); w.Write(body); continue }
		f := map[string]tar.Format{"pax": tar.FormatPAX, "gnu": tar.FormatGNU}[os.Args[1]]
		t.WriteHeader(&tar.Header{Name: name, Size: int64(len(body)), Mode: 0600, Format: f})
		t.Write(body)
	}
	if os.Args[1] == "zip" { z.Close() } else { t.Close() }
}
"""


def go(form: str, key: str) -> Any:
    def write(folder: Path) -> File:
        names = put(folder)
        (folder / "main.go").write_text(GO)
        run("go", "build", "-o", folder / "write", folder / "main.go", cwd=folder)
        return File(key, run(folder / "write", form, *names, cwd=folder / "in"), right(ROWS))

    return write


PERL = "use Archive::Tar; Archive::Tar->create_archive(shift, 0, @ARGV)"
PHP_ZIP = "$z = new ZipArchive; $z->open($argv[1], 1); foreach (array_slice($argv, 2) as $f) "
PHP_ZIP += "$z->addFile($f); $z->close();"
PYTHON = "import sys, tarfile; t = tarfile.open(sys.argv[1], 'w', format={}); "
PYTHON += "[t.add(n) for n in sys.argv[2:]]; t.close()"


def tar(writer: str, option: str, *command: str, key: str = "x.tar", is_long: bool = False) -> Cell:
    ways: tuple[Way, ...] = ("plain", "decoder") if key != "x.tar" else ("plain", "decoder", "gzip")
    write: Callable[[Path], File] = by(key, *command)
    return Cell(writer, option, write, [command[0]], NO_HEADER, ways, is_long)


def codec(writer: str, key: str, *command: str, option: str = "", times: int = 1) -> Cell:
    option = option or (" ".join(command[1:]) + (", joined" if times > 1 else "")).strip() or key
    return Cell(
        writer, option, packed(key, *command, times=times), [command[0]], NO_HEADER, PACKED_WAYS
    )


def refused(writer: str, key: str, *command: str, words: str) -> Cell:
    write: Callable[[Path], File] = packed(key, *command, rows=Refused(words))
    return Cell(writer, " ".join(command[1:]) or key, write, [command[0]], NO_HEADER, WAYS)


CELLS: list[Cell] = [
    *(
        tar("GNU tar", f"--format={form}", "tar", f"--format={form}", "-cf", "-")
        for form in ("v7", "oldgnu", "gnu", "ustar", "pax")
    ),
    tar("GNU tar", "-czf", "tar", "-czf", "-", key="x.tgz"),
    tar("GNU tar", "--use-compress-program=zstd", "tar", "-I", "zstd", "-cf", "-", key="x.tar.zst"),
    tar("GNU tar", "-Jcf, without a name", "tar", "-Jcf", "-", key="x"),
    Cell("GNU tar", "cat a.tar b.tar", joined("tar", "-cf", "{}", key="x.tar"), ["tar"], NO_HEADER,
         ("plain", "decoder", "gzip")),
    Cell("GNU tar", "cat a.tgz b.tgz", joined("tar", "-czf", "{}", key="x.tgz"), ["tar"], NO_HEADER,
         WAYS),
    Cell("GNU tar", "garbage behind the end", behind("x.tar", "tar", "-cf", "-"), ["tar"],
         NO_HEADER, WAYS),
    *(
        tar("bsdtar", f"--format={form}", "bsdtar", f"--format={form}", "-cf", "-")
        for form in ("v7tar", "gnutar", "ustar", "pax")
    ),
    Cell("bsdtar", "--format=zip", by("x.zip", "bsdtar", "--format=zip", "-cf", "-"), ["bsdtar"],
         NO_HEADER, WAYS),
    Cell("bsdtar", "--format=cpio", by("x", "bsdtar", "--format=odc", "-cf", "-",
         rows=Refused("this is cpio")), ["bsdtar"], NO_HEADER, WAYS),
    Cell("bsdtar", "--format=7zip", by("x", "bsdtar", "--format=7zip", "-cf", "-",
         rows=Refused("this is 7-Zip")), ["bsdtar"], NO_HEADER, WAYS),
    tar("busybox", "tar", "busybox", "tar", "-cf", "-"),
    tar("7-Zip", "-ttar", "7z", "a", "-ttar", "-bso0", "{}"),
    tar("Perl", "Archive::Tar", "perl", "-e", PERL, "{}"),
    *(
        tar("Python", f"tarfile, {form}", "python3", "-c", PYTHON.format(number), "{}")
        for form, number in (("ustar", 0), ("GNU", 1), ("pax", 2))
    ),
    Cell("Go", "archive/tar, pax", go("pax", "x.tar"), ["go"], NO_HEADER, WAYS),
    Cell("Go", "archive/tar, GNU", go("gnu", "x.tar"), ["go"], NO_HEADER, WAYS, is_long=True),
    Cell("Go", "archive/zip", go("zip", "x.zip"), ["go"], NO_HEADER, WAYS, is_long=True),
    Cell("macOS", "tar with ._ files", macos_tar, ["tar"], NO_HEADER, ("plain", "decoder", "gzip")),
    Cell("macOS", "zip with __MACOSX", macos_zip, ["zip"], NO_HEADER, WAYS),
    Cell("Info-ZIP", "-q", by("x.zip", "zip", "-q", "{}"), ["zip"], NO_HEADER, WAYS),
    Cell("Info-ZIP", "-0", by("x.zip", "zip", "-q0", "{}"), ["zip"], NO_HEADER, WAYS),
    Cell("Info-ZIP", "-Z bzip2", by("x.zip", "zip", "-qZ", "bzip2", "{}"), ["zip"],
         NO_HEADER, WAYS),
    Cell("Info-ZIP", "to a pipe", by("x.zip", "zip", "-q", "-"), ["zip"], NO_HEADER, WAYS),
    Cell("Info-ZIP", "-FI, a named pipe", of_a_pipe, ["zip"], NO_HEADER, WAYS),
    Cell("Info-ZIP", "cat a.zip b.zip", joined("zip", "-q", "{}", key="x.zip"), ["zip"], NO_HEADER,
         WAYS),
    Cell("Info-ZIP", "garbage behind the end", behind("x.zip", "zip", "-q", "{}"), ["zip"],
         NO_HEADER, WAYS),
    Cell("Info-ZIP", "a damaged member", damaged, ["zip"], NO_HEADER, WAYS),
    Cell("Info-ZIP", "the first part of -s", split_zip, ["zip"], NO_HEADER, WAYS),
    *(
        Cell("7-Zip", f"-mm={method}", by("x.zip", "7z", "a", "-tzip", f"-mm={method}", "-bso0",
             "{}"), ["7z"], NO_HEADER, WAYS)
        for method in ("Copy", "Deflate", "BZip2", "LZMA")
    ),
    Cell("7-Zip", "-t7z", by("x.7z", "7z", "a", "-bso0", "{}", rows=Refused("this is 7-Zip")),
         ["7z"], NO_HEADER, WAYS),
    Cell("Java", "jar -cMf", by("x.zip", "jar", "-cMf", "{}"), ["jar"], NO_HEADER, WAYS),
    Cell("Java", "jar -cf", by("x.jar", "jar", "-cf", "{}", rows=Refused("a Java archive")),
         ["jar"], NO_HEADER, WAYS),
    Cell("PHP", "ZipArchive", by("x.zip", "php", "-r", PHP_ZIP, "--", "{}"), ["php"], NO_HEADER,
         WAYS, is_long=True),
    Cell("openpyxl", "a workbook", workbook, ["writers-python"], {}, WAYS),
    codec("gzip", "x.csv.gz", "gzip", "-9"),
    codec("gzip", "x.csv.gz", "gzip", times=3),
    codec("pigz", "x.csv.gz", "pigz", "-p2", "-b128"),
    codec("pigz", "x.csv.gz", "pigz", "-i", "-b128"),
    codec("bgzip", "x.csv.gz", "bgzip", "-c", option="BGZF"),
    codec("bzip2", "x.csv.bz2", "bzip2", times=2),
    codec("pbzip2", "x.csv.bz2", "pbzip2", "-c", "-p2", "-b1"),
    codec("xz", "x.csv.xz", "xz", "-T2", "--block-size=8KiB"),
    codec("xz", "x.csv.xz", "xz", "-C", "crc32", times=2),
    codec("pixz", "x.csv.xz", "pixz", "-t"),
    codec("zstd", "x.csv.zst", "zstd", "-q", "-19", "--long=27"),
    codec("zstd", "x.csv.zst", "zstd", "-q", "-T2", "--no-check", times=2),
    codec("pzstd", "x.csv.zst", "pzstd", "-q", "-p2"),
    codec("lz4", "x.csv.lz4", "lz4", "-q9", "-B4", "-BD", "--content-size"),
    codec("lz4", "x.csv.lz4", "lz4", "-q", "--no-frame-crc", "-BX", times=2),
    refused("lz4", "x.csv.lz4", "lz4", "-ql", words="an old lz4"),
    refused("xz", "x.csv.lzma", "xz", "--format=lzma", words="packed by lzma"),
    refused("lzip", "x.csv.lz", "lzip", words="packed by lzip"),
    refused("compress", "x.csv.Z", "compress", "-c", words="packed by compress"),
    refused("brotli", "x.csv.br", "brotli", "-c", words="no data of gzip"),
]  # fmt: skip


@pytest.mark.parametrize("cell", named(CELLS))
def test_rows_are_what_was_written(cell: Cell, tmp_path: Path) -> None:
    hold(cell, tmp_path)
