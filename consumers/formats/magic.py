"""Formats that nobody reads here, named by their first bytes, so that the error can name them.

Rule: only for data that is known to be binary or begins with what no text begins with; `PAR1` may
well be the first cell of a CSV.
"""

from typing import Final

_MAGIC: Final[dict[bytes, str]] = {
    b"ORC": "ORC",
    b"\x89HDF\r\n": "HDF5",
    b"7z\xbc\xaf\x27\x1c": "7-Zip",
    b"Rar!\x1a\x07": "RAR",
    b"RIFF": "RIFF (as AVI)",
    b"%PDF": "PDF",
    b"SQLite format 3\x00": "SQLite",
    b"\xd0\xcf\x11\xe0": "an old Office document (xls)",
    b"\x80\x02": "a Python pickle",
    b"\x80\x04": "a Python pickle",
    b"\x80\x05": "a Python pickle",
}
# Not UTF-8 from the first byte on, or so odd that no text begins with them.
CERTAIN: Final = (
    *(magic for magic in _MAGIC if not magic.isascii() or any(byte < 9 for byte in magic)),
    b"%PDF-1.",
)


def named_by_magic(head: bytes) -> str | None:
    """For people: what binary data is, None if nothing says it."""
    for magic, name in _MAGIC.items():
        if head.startswith(magic):
            return f"this is {name}, which is not read here; write csv, ndjson, json or tar"
    return None
