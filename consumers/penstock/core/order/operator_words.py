"""An operator's words about stopped lines: each says how a line is to go on.

Rule: a word is about one stop, which it names by stream and offset. Each word has its own number,
so that it is obeyed once. The words of a partition are one short text with the newest word last; if
there are too many, the oldest are dropped. Owner: the pipeline, which obeys the words, and
`penstock dlq`, which writes them.
"""

import hashlib
import re
from collections.abc import Sequence
from typing import Literal, NamedTuple

from penstock.core.order.line_stop import LineStop

PREFIX = "l1:"
# A commit's metadata takes 4,096 characters, and a word has at most 56, so this many words always
# fit.
MOST_WORDS = 50
_WORD = re.compile(r"(resume|skip)\.([0-9a-f]{1,16})\.([0-9a-f]{16})\.([0-9a-f]{1,14})")

# What is to happen to the object at which the line stopped. `resume`: it is tried again; `skip`: it
# is answered by its error.
Verb = Literal["resume", "skip"]


class Word(NamedTuple):
    """`number` is unique among the words of a partition."""

    verb: Verb
    offset: int
    stream: str
    number: int

    def is_about(self, stop: LineStop) -> bool:
        return (self.offset, self.stream) == (stop.offset, digest(stop.stream))


def digest(stream: str) -> str:
    return hashlib.sha256(stream.encode()).hexdigest()[:16]


def encode(words: Sequence[Word]) -> str:
    """The newest words as text, as many as fit."""
    said = (f"{one.verb}.{one.offset:x}.{one.stream}.{one.number:x}" for one in words[-MOST_WORDS:])
    return f"{PREFIX}{';'.join(said)}"


def decode(text: str) -> list[Word]:
    """The words of a text. Parts that cannot be read are left out."""
    found = map(_WORD.fullmatch, text.removeprefix(PREFIX).split(";"))
    return [
        Word(one[1], int(one[2], 16), one[3], int(one[4], 16))  # type: ignore[arg-type]
        for one in found
        if one is not None
    ]
