"""The template of result names: its parts, and whether each object gets a name of its own.

Rule: a name can be read back: a folder has at most one field of free text, and numbers are
separated from the text beside them. So two names are equal only if all their fields are equal.
"""

import re
from collections.abc import Iterator, Sequence
from itertools import pairwise
from string import Formatter
from typing import Final, NamedTuple

FIELDS: Final = frozenset(
    {"store", "bucket", "key", "stream", "date", "topic", "partition", "offset", "model"}
)
# The formats of results. The ending of the template names one of them.
FORMATS: Final = ("jsonl", "jsonl.gz", "csv", "parquet")

# Free text: all fields but those whose form is fixed. A date has ten characters, and a number has
# only digits.
_FREE: Final = FIELDS - {"date", "partition", "offset"}
_NUMBERS: Final = frozenset({"partition", "offset"})
# Fields that may contain slashes.
_PATHS: Final = frozenset({"key", "stream"})
_URL = re.compile(r"(?P<scheme>[a-z0-9]+)://(?P<bucket>[^/]*)/(?P<key>.+)")


class Template(NamedTuple):
    """A template in parts. `key` lacks the ending that names the format. `fields`: all fields that
    bucket and key use.
    """

    scheme: str
    bucket: str
    key: str
    format: str
    fields: frozenset[str]

    def names_records(self, *, is_one_input: bool) -> bool:
        wanted = _NUMBERS if is_one_input else _NUMBERS | {"topic"}
        return wanted <= self.fields


class Piece(NamedTuple):
    """A field, or the text between two fields."""

    text: str
    is_field: bool


def parsed(text: str) -> Template:
    """The parts of a template. Raises `ValueError` for a template that cannot name results."""
    format = _format_of(text)
    match = _URL.fullmatch(text)
    if match is None:
        raise ValueError(
            f"{text!r} is no URL with a bucket and a key; write s3://bucket/{{key}}.{format}, or "
            f"file:///folder/{{key}}.{format} for a folder of this machine"
        )
    bucket, key = match["bucket"], match["key"].removesuffix(f".{format}")
    if match["scheme"] == "file" and bucket:
        raise ValueError(f"{text!r} names a host; write file:///folder/...")
    # Each folder is checked by itself. Between two fields a slash always separates, but any other
    # text may also be a part of a field's value.
    folders = [_pieces(text, folder) for folder in (bucket, *key.split("/"))]
    for folder in folders[1:]:
        if "".join(piece.text for piece in folder) in ("", ".", ".."):
            raise ValueError(f"{text!r} has a folder that is empty, . or ..; leave it out")
    for folder in folders:
        _check_apart(text, folder)
    if lost := _PATHS & {piece.text for piece in folders[0] if piece.is_field}:
        raise ValueError(
            f"{text!r} has {{{min(lost)}}} in the bucket's name; put it behind the bucket"
        )
    fields = frozenset(piece.text for folder in folders for piece in folder if piece.is_field)
    return Template(match["scheme"], bucket, key, format, fields)


def _format_of(text: str) -> str:
    for name in sorted(FORMATS, key=len, reverse=True):
        if text.endswith(f".{name}"):
            return name
    raise ValueError(f"{text!r} must end with {', '.join(f'.{name}' for name in FORMATS)}")


def _pieces(template: str, folder: str) -> Sequence[Piece]:
    return list(_cut(template, folder))


def _cut(template: str, folder: str) -> Iterator[Piece]:
    for text, field, form, conversion in Formatter().parse(folder):
        if text:
            yield Piece(text, is_field=False)
        if field is None:
            continue
        if field not in FIELDS:
            raise ValueError(
                f"{template!r} has {{{field}}}; there are "
                + ", ".join(f"{{{name}}}" for name in sorted(FIELDS))
            )
        if form or conversion:
            raise ValueError(f"{template!r}: a field takes no format, write {{{field}}}")
        yield Piece(field, is_field=True)


def _check_apart(template: str, folder: Sequence[Piece]) -> None:
    """Raises `ValueError` if the text of a folder could be read back in two ways."""
    free = [f"{{{piece.text}}}" for piece in folder if piece.is_field and piece.text in _FREE]
    if len(free) > 1:
        raise ValueError(
            f"{template!r} may give two objects one name: {' and '.join(free)} stand in one "
            "folder; put a / between them"
        )
    if any(_run_together(left, right) for left, right in pairwise(folder)):
        raise ValueError(
            f"{template!r} may give two objects one name: put a - beside {{partition}} and "
            "{offset}"
        )


def _run_together(left: Piece, right: Piece) -> bool:
    """Does a field of digits stand directly beside another field or a digit?"""
    if not {piece.text for piece in (left, right) if piece.is_field} & _NUMBERS:
        return False
    if left.is_field and right.is_field:
        return True
    return right.text[0].isdigit() if left.is_field else left.text[-1].isdigit()
