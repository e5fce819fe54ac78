"""WebDataset: files that stay with the rows of their sample."""

import io
import tarfile
import zipfile
from collections.abc import Callable, Sequence

import orjson
import pytest

from penstock.errors import Poison
from penstock.formats.reading import decoded
from penstock.formats.registry import claim_of
from penstock.formats.runs import RowOptions, Run
from tests.formats.picture_bodies import JPEG, PNG
from tests.formats.support import decode_until_failure

OPTIONS = RowOptions(form="bytes", keep=("cls", "json"))
Files = Sequence[tuple[str, bytes]]


def tar(files: Files) -> bytes:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as archive:
        for name, data in files:
            info = tarfile.TarInfo(name)
            info.size = len(data)
            archive.addfile(info, io.BytesIO(data))
    return out.getvalue()


def zipped(files: Files) -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as archive:
        for name, data in files:
            archive.writestr(name, data)
    return out.getvalue()


ARCHIVES: dict[str, Callable[[Files], bytes]] = {"x.tar": tar, "x.zip": zipped}
every_archive = pytest.mark.parametrize("key", ARCHIVES)


def by_sample(runs: Sequence[Run]) -> list[tuple[str | None, object]]:
    """Of each row its member, and what stays with it or why it is bad."""
    found: list[tuple[str | None, object]] = []
    for run in runs:
        kept: object = run.error
        if run.kept is not None and run.kept.columns is not None:
            kept = orjson.loads(bytes(run.kept.columns.cut(0, 1).body))
        found.append((run.member, kept))
    return found


def rows_of(
    key: str, files: Files, options: RowOptions = OPTIONS
) -> list[tuple[str | None, object]]:
    data = ARCHIVES[key](files)
    return by_sample([run for some in decoded(options, data, 100, claim_of(key)) for run in some])


@every_archive
def test_files_before_and_behind_a_picture_stay_with_its_row(key: str) -> None:
    files = [
        ("train/1.cls", b"7\n"), ("train/1.jpg", JPEG), ("train/1.json", b'{"box": [1, 2]}'),
        ("train/2.png", PNG), ("train/2.cls", b"a cat"),
        ("train/3.json", b"{broken"), ("train/3.cls", b"\xff"), ("train/3.jpg", JPEG),
        ("train/4.jpg", JPEG),
    ]  # fmt: skip
    assert rows_of(key, files) == [
        ("train/1.jpg", {"cls": 7, "json": {"box": [1, 2]}}),
        ("train/2.png", {"cls": "a cat", "json": None}),
        ("train/3.jpg", {"cls": None, "json": "{broken"}),
        ("train/4.jpg", {"cls": None, "json": None}),
    ]


@every_archive
def test_a_sample_may_have_several_pictures_and_a_bad_one(key: str) -> None:
    files = [("1.left.jpg", JPEG), ("1.right.jpg", b"none"), ("1.cls", b"1"), ("2.jpg", JPEG)]
    left, (path, reason), right = rows_of(key, files)
    assert (left, right) == (
        ("1.left.jpg", {"cls": 1, "json": None}),
        ("2.jpg", {"cls": None, "json": None}),
    )
    assert path == "1.right.jpg"
    assert str(reason).startswith("this is no JPEG, PNG, WebP, TIFF, BMP, GIF, HEIC or AVIF: ")
    chosen = RowOptions(form="bytes", keep=("cls",), member="*.left.jpg")
    assert rows_of(key, files, chosen) == [("1.left.jpg", {"cls": 1})]


@every_archive
def test_a_file_that_is_too_long_for_a_record_is_null(key: str) -> None:
    files = [("1.jpg", JPEG), ("1.cls", b"x" * 65_537), ("2.jpg", JPEG), ("2.cls", b"x" * 65_536)]
    rows = rows_of(key, files)
    assert rows[0] == ("1.jpg", {"cls": None, "json": None})
    assert rows[1] == ("2.jpg", {"cls": "x" * 65_536, "json": None})


def test_a_kept_file_of_json_stays_as_it_is_but_on_one_line() -> None:
    label = b'{"id": 18446744073709551617,\r\n "x": 1.50, "x": "a\\nb"}\n'
    data = tar([("1.json", label), ("1.jpg", JPEG)])
    ((run,),) = decoded(
        RowOptions(form="bytes", keep=("json",)), data, len(data), claim_of("x.tar")
    )
    assert run.kept is not None
    assert run.kept.columns is not None
    body = bytes(run.kept.columns.body)
    assert body == b'{"json":{"id": 18446744073709551617,   "x": 1.50, "x": "a\\nb"}}'


@every_archive
def test_the_extension_tells_what_a_kept_file_is_and_not_its_text(key: str) -> None:
    """As in WebDataset's own reader: `txt` is text, `cls` a whole number, `json` is JSON."""
    texts = ["2012", "null", "true", "1e5", "[1]", '"a cat"', "007"]
    files = [
        (f"{number}.{name}", data)
        for number, text in enumerate(texts)
        for name, data in (
            ("JPG", JPEG), ("txt", text.encode()), ("CLS", text.encode()), ("b.Json", b" 5\n")
        )
    ]  # fmt: skip
    rows = rows_of(key, files, RowOptions(form="bytes", keep=("txt", "cls", "B.json")))
    assert [kept for _, kept in rows] == [
        {"txt": text, "cls": label, "B.json": 5}
        for text, label in zip(
            texts, [2012, "null", "true", "1e5", "[1]", '"a cat"', 7], strict=True
        )
    ]


def test_what_is_held_is_bounded() -> None:
    options = RowOptions(form="bytes", keep=("cls",), row_bytes=len(JPEG))
    files = [(f"1.{number}.jpg", JPEG) for number in range(7)] + [("1.cls", b"1")]
    rows = rows_of("x.tar", files, options)
    assert [member for member, _ in rows] == [name for name, _ in files[:-1]]
    assert rows[0] == ("1.0.jpg", {"cls": None})
    assert rows[-1] == ("1.6.jpg", {"cls": 1})


def test_the_last_sample_of_an_archive_that_breaks_off_is_answered() -> None:
    data = tar([("1.jpg", JPEG), ("1.cls", b"1"), ("2.jpg", JPEG)])
    whole = data.rindex(JPEG) + len(JPEG)
    for cut in (data[: whole + 10], data[: whole - 10], data[: whole - len(JPEG) - 300]):
        runs, failure = decode_until_failure(cut, "x.tar", OPTIONS)
        assert isinstance(failure, Poison)
        assert by_sample(runs)[0] == ("1.jpg", {"cls": 1, "json": None})
        assert len(runs) == 1 + (len(cut) > whole)


def test_tables_in_an_archive_have_columns_of_their_own() -> None:
    options = RowOptions(keep=("id",))
    runs = rows_of("x.tar", [("a.csv", b"id,v\n5,1\n"), ("a.id", b"7")], options)
    assert runs == [("a.csv", {"id": 5})]
