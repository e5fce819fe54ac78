"""Blanks and line breaks in texts of the configuration, which come from files and shells.

Rule: at the ends of a text they are trimmed. Inside, a control character is refused, and so is a
blank in the host of an address. In secrets, patterns, templates and names of columns each blank
counts, so only line breaks are trimmed. Options of other libraries and JSON stay as they are. The
variables of AWS's clients, which these read by themselves, cannot be trimmed, so they are refused.
"""

import re
from collections.abc import Iterator
from typing import Any, Final, NamedTuple

from msgspec import Struct

from penstock.config.all_sections import kind_of
from penstock.config.marks import marks, nested

_CONTROL: Final = re.compile(r"[\x00-\x08\x0a-\x1f\x7f\u0085\u2028\u2029]")
_AWS: Final = "AWS_"
# Sections and keys of names of columns, patterns and templates.
_AS_WRITTEN: Final = frozenset({"rows", "scenes", "output", "routes"})
_BLANKS_COUNT: Final = frozenset({"stream_from", "time_from", "input_pattern", "allow", "route"})
_BLANK_IN_HOST: Final = re.compile(r"[^/]*//[^/]*\s")


class WrongText(NamedTuple):
    """A key whose text is refused, and what is said of it."""

    key: str
    said: str


def trim(section: str, keys: dict[str, Any]) -> Iterator[WrongText]:
    """Trim the texts of a section, in its own dictionary. Yields those that are refused."""
    yield from _trim(kind_of(section), section, keys)


def _trim(kind: type[Struct], section: str, keys: dict[str, Any]) -> Iterator[WrongText]:
    of_key, tables = marks(kind), nested(kind)
    as_written = re.split(r"[.\[]", section)[0] in _AS_WRITTEN
    for key, value in keys.items():
        mark = of_key.get(key)
        if mark == "options" or key == "canary":
            continue
        if key in tables and isinstance(value, dict):
            yield from _trim(tables[key], section, value)
            continue
        # The id of an access key (`key`) is a secret, but has no blanks.
        keep = as_written or (mark == "secret" and key != "key") or key in _BLANKS_COUNT
        texts: list[str] = []
        keys[key] = _trimmed(value, "\r\n" if keep else None, texts)
        for text in texts:
            if _CONTROL.search(text):
                yield WrongText(key, "has a line break or another control character in it")
            elif mark == "address" and _BLANK_IN_HOST.match(text):
                yield WrongText(key, "has a blank in its host")


def wrong_variable(name: str, text: str) -> str | None:
    """What is wrong with a variable of AWS's clients."""
    if name.startswith(_AWS) and (text != text.strip() or _CONTROL.search(text)):
        return (
            "has blanks or a line break at an end, or a control character in it, and S3's clients "
            "read it as it is; set it anew without them"
        )
    return None


def _trimmed(value: Any, characters: str | None, texts: list[str]) -> Any:
    """The value with trimmed texts, which are added to `texts`."""
    if isinstance(value, str):
        texts.append(value.strip(characters))
        return texts[-1]
    if isinstance(value, list):
        return [_trimmed(item, characters, texts) for item in value]
    if isinstance(value, dict):
        return {key: _trimmed(item, characters, texts) for key, item in value.items()}
    return value
