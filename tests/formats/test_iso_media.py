"""What ISO media files hold, by the brands that their writers put first and behind."""

import pytest

from penstock.errors import Poison
from penstock.formats.first_bytes import iso_media
from penstock.formats.reading import read_object
from penstock.formats.registry import claim_of, sniff_format
from penstock.formats.runs import RowOptions
from penstock.formats.source import AtHand
from tests.formats.picture_bodies import ftyp
from tests.formats.support import decode, errors

# What each writer put into the heads of its files.
PICTURES = {
    "an iPhone": (b"heic", b"mif1", b"MiHB", b"MiHE", b"MiPr", b"miaf", b"heic"),
    "a Samsung": (b"heic", b"mif1", b"heic"),
    "libheif 1.15": (b"heic", b"mif1", b"heic"),
    "libheif, 10 bit": (b"heix", b"mif1", b"heix"),
    "Nokia's HEIF, mif1 first": (b"mif1", b"heic", b"mif1"),
    "Nokia's HEIF, a sequence": (b"msf1", b"hevc", b"heic", b"mif1", b"iso8"),
    "Nokia's HEIF, with sound": (b"mif1", b"heic", b"mif1", b"mp42", b"isom", b"M4A ", b"miaf"),
    "avifenc 0.11": (b"avif", b"avif", b"mif1", b"miaf", b"MA1B"),
    "avifenc 0.11, a sequence": (b"avis", b"avif", b"avis", b"msf1", b"iso8", b"mif1", b"miaf"),
    "libavif 0.1": (b"mif1", b"avif", b"mif1", b"miaf"),
    "a Canon's CR3": (b"crx ", b"crx ", b"isom"),
}
FILMS = {
    "ffmpeg's mp4": (b"isom", b"isom", b"iso2", b"avc1", b"mp41"),
    "ffmpeg's mov": (b"qt  ", b"qt  "),
    "iTunes' m4v": (b"M4V ", b"M4V ", b"M4A ", b"mp42", b"isom"),
    "a phone's 3gp": (b"3gp4", b"isom", b"3gp4"),
}
SOUNDS = {
    "ffmpeg's m4a": (b"M4A ", b"isom", b"iso2"),
    "Apple's m4b": (b"M4B ", b"M4A ", b"mp42", b"isom"),
}


@pytest.mark.parametrize(
    ("brands", "content"),
    [
        *[(brands, "image") for brands in PICTURES.values()],
        *[(brands, "video") for brands in FILMS.values()],
        *[(brands, "audio") for brands in SOUNDS.values()],
    ],
    ids=[*PICTURES, *FILMS, *SOUNDS],
)
def test_brands_say_what_is_in_a_file(brands: tuple[bytes, ...], content: str) -> None:
    assert iso_media(ftyp(*brands) + bytes(100)) == content


@pytest.mark.parametrize("head", [b"", bytes(12), b"\0\0\0\x08moov", b"\0\0\0\x18styp" + bytes(16)])
def test_without_brands_nothing_is_said(head: bytes) -> None:
    assert iso_media(head) is None


@pytest.mark.parametrize("brands", PICTURES.values(), ids=[*PICTURES])
def test_no_picture_is_taken_for_a_film(brands: tuple[bytes, ...]) -> None:
    """Neither by its first bytes, nor because it has a film's name."""
    data = ftyp(*brands) + bytes(1_000)
    is_raw = brands[0] == b"crx "
    assert sniff_format(data[:512], RowOptions(form="bytes")) == ("bytes" if is_raw else "image")
    with pytest.raises(Poison) as caught:
        list(read_object(AtHand(data), RowOptions(form="bytes"), claim_of("x.mp4")))
    message = "a raw picture of a camera" if is_raw else 'read it as "image"'
    assert message in str(caught.value)


@pytest.mark.parametrize(
    ("brands", "format"), [(FILMS["ffmpeg's mp4"], "video"), (SOUNDS["ffmpeg's m4a"], "audio")]
)
def test_what_is_no_picture_is_none_under_its_name(brands: tuple[bytes, ...], format: str) -> None:
    (error,) = errors(decode(ftyp(*brands) + bytes(1_000), "x.heic", RowOptions(form="bytes")))
    assert f'read it as "{format}"' in error
