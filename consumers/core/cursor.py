"""How far into the next record its answers are delivered: the metadata of a commit.

Rule: a cursor only saves work. It is bound to the object's version; one that cannot be read, or
whose version does not match, is worth nothing, and the record begins at its first row. ASCII, far
below the 4,000 characters that the broker's limit of 4,096 leaves. Owner: the lane.
"""

import hashlib
from typing import NamedTuple

PREFIX = "p1:"
VERSION_DIGITS = 16
# Row numbers that any reader takes as an integer.
MAX_NUMBER = (1 << 63) - 1


class Cursor(NamedTuple):
    """Objects before `object_index` are delivered, and of that object the rows below `row`.

    `version` is the digest of that object's name and version; empty when `row` is 0.
    """

    object_index: int
    row: int
    version: str = ""

    def encode(self) -> str:
        """Commit metadata; empty at the very beginning of a record."""
        if not self.object_index and not self.row:
            return ""
        return f"{PREFIX}{self.object_index}.{self.row}.{self.version}"


START = Cursor(0, 0)

# Behind the metadata of a partition whose line stopped: whoever takes it over knows.
_STOPPED = "!"


def with_stop(metadata: str) -> str:
    """The same position, with the mark that the line stopped there."""
    return f"{metadata or PREFIX}{_STOPPED}"


def without_stop(metadata: str) -> tuple[str, bool]:
    """The metadata as it was before `with_stop`, and whether the line stopped."""
    if not (metadata.startswith(PREFIX) and metadata.endswith(_STOPPED)):
        return metadata, False
    rest = metadata.removesuffix(_STOPPED)
    return "" if rest == PREFIX else rest, True


def decode(metadata: str) -> Cursor | None:
    """None if this is not a cursor that we can read."""
    if not metadata:
        return START
    parts = metadata.removeprefix(PREFIX).split(".")
    if not metadata.startswith(PREFIX) or len(parts) != 3:
        return None
    index, row, version = parts
    if not (_is_number(index) and _is_number(row)):
        return None
    if row != "0" and (len(version) != VERSION_DIGITS or not version.isalnum()):
        return None
    return Cursor(int(index), int(row), version)


def digest(name: str, version: str | None) -> str:
    """What binds a cursor to one version of one object; empty without a version to bind to."""
    if version is None:
        return ""
    return hashlib.sha256(f"{name}\0{version}".encode()).hexdigest()[:VERSION_DIGITS]


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdecimal() and len(text) <= 19 and int(text) <= MAX_NUMBER
