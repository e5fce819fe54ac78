"""Tells what an ISO media file holds: a picture, sound, or a film.

Rule: the brands in the file's head decide, and they decide here only. MP4, MOV, M4A, HEIC, AVIF and
the raw pictures of some cameras are all ISO media files: their first bytes differ in nothing but
the brands (ISO 14496-12, 4.3). A picture is kept in one piece or in tiles, and a reader of films
takes a tile for the film. Pure.
"""

from typing import Final, Literal

Content = Literal["picture", "sound", "film"]

# ISO 23008-12 (annexes B, E, F and H to L) and the specification of AVIF. Each pair is a picture,
# and a sequence of pictures.
_HEIF: Final = (
    *(b"mif1", b"msf1", b"mif2", b"mif3", b"miaf"),
    *(b"heic", b"hevc", b"heix", b"hevx", b"heim", b"hevm", b"heis", b"hevs"),
    *(b"avci", b"avcs", b"vvic", b"vvis", b"evbi", b"evbs", b"jpeg", b"jpgs", b"j2ki", b"j2is"),
)
AVIF: Final = frozenset((b"avif", b"avis", b"avio"))
# The brand of Canon's raw pictures (CR3). The films in them are small copies of the picture.
CANON_RAW: Final = b"crx "
_PICTURES: Final = AVIF.union(_HEIF, (CANON_RAW,))
_SOUND: Final = frozenset((b"M4A ", b"M4B ", b"M4P ", b"F4A ", b"F4B ", b"aax ", b"aaxc"))


def content_of(head: bytes) -> Content | None:
    """What the file that begins with `head` holds, by its brands. None: it names no brands, as old
    MOVs and the fragments of a stream do not, or it is no ISO media file.
    """
    brands = brands_of(head)
    # A picture may name any of its brands first. Only the first name of sound counts, because films
    # name `M4A `, too.
    if not _PICTURES.isdisjoint(brands):
        return "picture"
    if not brands:
        return None
    return "sound" if brands[0] in _SOUND else "film"


def brands_of(head: bytes) -> tuple[bytes, ...]:
    """The file's own brand, then those that it is compatible with; none if there are none."""
    if head[4:8] != b"ftyp":
        return ()
    stop = min(int.from_bytes(head[:4], "big"), len(head))
    compatible = (head[at : at + 4] for at in range(16, stop - 3, 4))
    return (head[8:12], *compatible)
