"""The prompt of a model that is asked in words: a text with fields of the rows' object.

Rule: a field that the sender did not give is empty. The values are the sender's own words; whoever
may send references can so speak to the model. Pure.
"""

from string import Formatter
from typing import Any, Final

from msgspec.json import encode

from penstock.core.rows.origin import About
from penstock.messages.times import iso_time

FIELDS: Final = ("stream", "bucket", "key", "event_time", "member")
_ATTRIBUTE: Final = "attributes."


class Prompt:
    def __init__(self, template: str) -> None:
        """Raises `ValueError` if the template has a field that is unknown."""
        # Pairs of a text and the field behind it.
        self._pieces: list[tuple[str, str | None]] = []
        for text, field, form, conversion in Formatter().parse(template):
            if field is not None and field not in FIELDS and not field.startswith(_ATTRIBUTE):
                known = ", ".join(f"{{{name}}}" for name in (*FIELDS, "attributes.NAME"))
                raise ValueError(
                    f"{{{field}}} is no field: there are {known}; write {{{{ and }}}} for braces"
                )
            if form or conversion:
                raise ValueError(f"a field takes no format, write {{{field}}}")
            self._pieces.append((text, field))

    def text(self, about: About | None) -> str:
        return "".join(
            text if field is None else text + _value(field, about) for text, field in self._pieces
        )


def _value(field: str, about: About | None) -> str:
    if about is None:
        return ""
    if field.startswith(_ATTRIBUTE):
        attributes = getattr(about.reference, "attributes", None) or {}
        return _text(attributes.get(field.removeprefix(_ATTRIBUTE)))
    origin = about if field in About._fields else about.reference
    value = getattr(origin, field, None)
    if field == "event_time" and isinstance(value, int):
        # A model reads a date better than milliseconds.
        return iso_time(value)
    return _text(value)


def _text(value: Any) -> str:
    if value is None or isinstance(value, str):
        return value or ""
    return encode(value).decode()
