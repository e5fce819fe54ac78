"""Where the recordings of an Ogg file begin and end: several may follow one another, as of internet
radio or `cat`.

Rule: only the headers of pages are read, each once. It is reported if a page does not begin where
the one before ends, and if the last page is not marked as the last. Layout: RFC 3533, 6 and 4.
"""

from typing import Final, NamedTuple

from penstock.formats.base.source import Source

_MAGIC: Final = b"OggS"
_HEAD_BYTES: Final = 27
_MOST_SEGMENTS: Final = 255
_FIRST_PAGE, _LAST_PAGE = 2, 4  # flags, at place 5
# After the last page some programs write tags and padding, which contain no page.
_JUNK_BYTES: Final = 64 << 10


class Links(NamedTuple):
    """`broken`: why the file ends early, for people."""

    begins: list[int]
    stop: int
    broken: str | None


def links_of(source: Source) -> Links:
    begins: list[int] = []
    at, was_first, is_last = 0, False, False
    while at < source.size:
        head = source.read(at, at + _HEAD_BYTES + _MOST_SEGMENTS)
        if not head.startswith(_MAGIC):
            break
        stop = _end_of(head, at)
        if stop is None or stop > source.size:
            return Links(begins, source.size, "its last page is not all there")
        is_first, is_last = bool(head[5] & _FIRST_PAGE), bool(head[5] & _LAST_PAGE)
        # Streams side by side, as with pictures, each have a first page.
        if is_first and not was_first:
            begins.append(at)
        at, was_first = stop, is_first
    if _MAGIC in source.read(at, at + _JUNK_BYTES):
        return Links(begins, source.size, f"at byte {at} there is no page")
    return Links(begins, at, None if is_last else "its last page is not there")


def _end_of(head: bytes, at: int) -> int | None:
    """Where the page ends; None: its header breaks off."""
    if len(head) < _HEAD_BYTES or len(head) < _HEAD_BYTES + head[26]:
        return None
    return at + _HEAD_BYTES + head[26] + sum(head[_HEAD_BYTES : _HEAD_BYTES + head[26]])
