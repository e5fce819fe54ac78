"""What a decoder keeps of rows is written into records as it stands: can their readers read it?

Rule: readers fail at a number that no float holds, and at many levels. Formats make neither, so
only a decoder that was taken over does.
"""

import re
from typing import Final

import numpy as np
import orjson
import simdjson

# Formats keep values of at most 254 levels: their readers fail at some 990. Around them are the
# object and the array in which objects are checked.
_MOST_KEPT_LEVELS: Final = 256
_STRINGS: Final = re.compile(rb'"(?:[^"\\]|\\.)*+"')
_OBJECT, _ARRAY = b"{["
# `limits.row_bytes` allows no longer text by default. Its check takes 12 times its bytes.
_MOST_BYTES: Final = 8 << 20


def check_readable(parser: simdjson.Parser, text: bytes, objects: int) -> None:
    """`text`: an array of so many objects. To count levels takes long, so it is done only where
    there are many brackets.
    """
    if len(text) > _MOST_BYTES:
        raise ValueError("columns that no record holds")
    if b"\n" in text or b"\r" in text:
        raise ValueError("columns on several lines")
    try:
        parser.parse(text)
    except (ValueError, RuntimeError):
        orjson.loads(text)  # it takes larger integers
    if text.count(b"[") + text.count(b"{") - objects >= _MOST_KEPT_LEVELS:
        marks = np.frombuffer(_STRINGS.sub(b"", text), np.uint8)
        opened = (marks == _ARRAY) | (marks == _OBJECT)
        closed = (marks == _ARRAY + 2) | (marks == _OBJECT + 2)
        if np.cumsum(opened.astype(np.int64) - closed).max() > _MOST_KEPT_LEVELS:
            raise ValueError("columns of many levels")
