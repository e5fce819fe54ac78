"""Opaque rows: images, files, lines; which of them an archive holds."""

import pytest

from penstock.core.rows.payload import BytesRows
from penstock.errors import EXIT_USAGE, Fatal, Poison
from penstock.formats.pictures.headers import look_at
from penstock.formats.pictures.pixels import PictureOptions
from penstock.formats.registry import check_options
from penstock.formats.runs import BadRow, RowOptions
from penstock.formats.text.text_and_bytes import TextOptions
from tests.formats import picture_bodies
from tests.formats.picture_bodies import JPEG, PNG
from tests.formats.support import decode, elements, errors, gzipped, rows_of, tar_of

OPAQUE = RowOptions(form="bytes")


def opaque(
    data: bytes, key: str, options: RowOptions = OPAQUE, format: str | None = None
) -> list[object]:
    return [value for _, value in rows_of(decode(data, key, options, format=format))]


@pytest.mark.parametrize("key", ["x.jpg", "x.JPEG", "x", "x.unknown"])
def test_an_image_is_one_row_by_its_name_or_its_first_bytes(key: str) -> None:
    assert opaque(JPEG, key) == [JPEG]


@pytest.mark.parametrize(
    ("kind", "data"),
    [
        ("PNG", picture_bodies.png(300, 20)),
        ("JPEG", picture_bodies.jpeg(300, 20)),
        ("GIF", picture_bodies.gif(300, 20)),
        ("BMP", picture_bodies.bmp(300, 20)),
        ("TIFF", picture_bodies.tiff("<", 300, 20)),
        ("TIFF", picture_bodies.tiff(">", 300, 20)),
        *(("WebP", picture_bodies.webp(kind, 300, 20)) for kind in ("VP8 ", "VP8L", "VP8X")),
    ],
)
def test_a_picture_tells_its_size(kind: str, data: bytes) -> None:
    assert look_at(data) == (kind, 300, 20)


@pytest.mark.parametrize("data", [PNG[:20], JPEG[:20], b"GIF89a\1", b"II*\0\xff\xff\xff\xff"])
def test_a_picture_that_ends_before_its_size_is_a_bad_row(data: bytes) -> None:
    with pytest.raises(BadRow, match="ends before"):
        look_at(data)


def test_what_is_no_picture_is_a_bad_row_of_that_name() -> None:
    (reason,) = errors(decode(b"hello", "x.jpg", OPAQUE))
    assert reason.startswith("this is no JPEG, PNG, WebP, TIFF, BMP, GIF, HEIC or AVIF: ")


def test_a_picture_of_too_many_pixels_is_a_bad_row_without_being_decoded() -> None:
    bomb = picture_bodies.png(1, 1, said=(100_000, 100_000))
    (error,) = errors(decode(bomb, "x.png", OPAQUE))
    assert "100000 x 100000" in error
    assert "limits.pixels" in error
    small = RowOptions(form="bytes", own=(PictureOptions(pixels=14),))
    assert errors(decode(PNG, "x.png", small))
    assert opaque(PNG, "x.png", RowOptions(form="bytes", own=(PictureOptions(pixels=15),))) == [PNG]


def test_a_row_above_the_limit_is_a_bad_row() -> None:
    (error,) = errors(decode(JPEG, "x.jpg", RowOptions(form="bytes", row_bytes=10)))
    assert "limits.row_bytes" in error


def test_an_archive_has_a_row_for_each_image_and_nothing_else() -> None:
    archive = tar_of({"a/1.jpg": JPEG, "readme.txt": b"no", "1.csv": b"1,2\n", "2.png": PNG})
    expected = [("a/1.jpg", JPEG), ("2.png", PNG)]
    assert rows_of(decode(archive, "x.tar", OPAQUE)) == expected
    assert rows_of(decode(gzipped(archive), "x.tgz", OPAQUE)) == expected


def test_a_glob_chooses_members_of_any_name() -> None:
    archive = tar_of({"1.jpg": JPEG, "1.label": b"cat", "2.label": b"dog"})
    options = RowOptions(form="bytes", member="*.label")
    assert rows_of(decode(archive, "x.tar", options)) == [("1.label", b"cat"), ("2.label", b"dog")]


def test_an_empty_member_is_a_bad_row_among_good_ones() -> None:
    archive = tar_of({"1.jpg": JPEG, "2.jpg": b"", "3.jpg": JPEG})
    assert rows_of(decode(archive, "x.tar", OPAQUE)) == [
        ("1.jpg", JPEG),
        ("2.jpg", "the file is empty"),
        ("3.jpg", JPEG),
    ]


def test_images_in_an_archive_of_numbers_are_passed_over() -> None:
    archive = tar_of({"preview.png": PNG, "1.csv": b"1,2\n"})
    assert rows_of(decode(archive, "x.tar")) == [("1.csv", [1, 2])]


def test_anything_is_a_row_of_bytes() -> None:
    blob = b"\xef\xbb\xbf\0anything\xff"
    assert opaque(blob, "x.bin") == [blob]
    assert opaque(b"1,2\n3,4\n", "x.csv", format="bytes") == [b"1,2\n3,4\n"]


def test_text_is_a_row_a_line_or_a_row_a_file() -> None:
    text = b"\xef\xbb\xbfone\r\n\ntwo\nthree"
    assert opaque(text, "x.txt", format="text") == [b"one", b"two", b"three"]
    whole = RowOptions(form="bytes", own=(TextOptions(text="file"),))
    assert opaque(text, "x.txt", whole, format="text") == [text[3:]]


def test_text_is_json_strings_where_the_model_takes_json() -> None:
    runs = decode('ü "x"\ny\n'.encode(), "x", RowOptions(form="json"), format="text")
    assert elements(runs) == ['ü "x"', "y"]
    whole = RowOptions(form="json", own=(TextOptions(text="file"),))
    assert elements(decode(b"a\nb\n", "x", whole, format="text")) == ["a\nb\n"]
    (error,) = errors(decode(b"\xff\n", "x", RowOptions(form="json"), format="text"))
    assert "UTF-8" in error


@pytest.mark.parametrize(
    ("key", "form"), [("x.jpg", "json"), ("x.jpg", "matrix"), ("x.csv", "bytes")]
)
def test_rows_that_the_request_does_not_take_say_which_ones_do(key: str, form: str) -> None:
    with pytest.raises(Poison, match=r"model\.request takes") as caught:
        decode(JPEG, key, RowOptions(form=form))  # type: ignore[arg-type]
    assert caught.value.code == "bad_format"


def test_a_format_that_can_never_fit_ends_the_start() -> None:
    for format, form in [("csv", "bytes"), ("image", "json"), ("text", "matrix")]:
        options = RowOptions(form=form, format=format)  # type: ignore[arg-type]
        with pytest.raises(Fatal, match=r"model\.request") as caught:
            check_options(options, "json")
        assert caught.value.exit_code == EXIT_USAGE
    with pytest.raises(Fatal, match="xml"):
        check_options(RowOptions(format="xml"), "json")
    for fitting in (RowOptions(), RowOptions(form="bytes", format="tar"), OPAQUE):
        check_options(fitting, "bytes")


def test_opaque_rows_can_be_cut_anywhere() -> None:
    rows = [b"", b"one", b"\0" * 300]
    whole = BytesRows.of(rows)
    assert whole.rows == 3
    for start in range(3):
        for stop in range(start + 1, 4):
            part = whole.cut(start, stop)
            assert [bytes(part.row(index)) for index in range(part.rows)] == rows[start:stop]
            assert bytes(part.body) == bytes(BytesRows.of(rows[start:stop]).body)
