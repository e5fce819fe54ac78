"""Finds a value in a JSON document by its pointer (RFC 6901).

Rule: "" is the whole document; every other pointer begins with a slash.
"""

from collections.abc import Callable
from typing import Any


def is_pointer(text: str) -> bool:
    return not text or text.startswith("/")


def resolve(document: Any, pointer: str, opened: Callable[[Any], Any] | None = None) -> Any:
    """The value at the pointer. Raises `LookupError` if the pointer finds none. `opened`: a
    function that decodes one level of JSON text and leaves the values in that level as text; given
    only if the document is JSON text.
    """
    if not pointer:
        return document
    for part in pointer.split("/")[1:]:
        name = part.replace("~1", "/").replace("~0", "~")
        document = opened(document) if opened else document
        if isinstance(document, list) and name.isdecimal():
            document = document[int(name[:9])]
        elif isinstance(document, dict):
            document = document[name]
        else:
            raise LookupError(pointer)
    return document
