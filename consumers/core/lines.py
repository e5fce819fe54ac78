"""What a person says of a line that stands still: that it is to go on.

Rule: a word is about one stop, by the stream and the offset at which it stands, and has a number of
its own, so that it is acted on once. Words of a partition are one short text, the newest last;
where there are too many the oldest go. Owner: the pipeline, which acts, and the command.
"""

import hashlib
import re
from collections.abc import Sequence
from typing import Literal, NamedTuple

from consumers.core.line_stop import LineStop

PREFIX = "l1:"
# A commit's metadata takes 4,096 characters, and a word has 56 at most.
MOST_WORDS = 50
_WORD = re.compile(r"(resume|skip)\.([0-9a-f]{1,16})\.([0-9a-f]{16})\.([0-9a-f]{1,14})")

# Try the object again at which it stands; or have that object answered by its error.
Verb = Literal["resume", "skip"]


class Word(NamedTuple):
    """`number`: no two words of a partition have the same."""

    verb: Verb
    offset: int
    stream: str
    number: int

    def is_about(self, stop: LineStop) -> bool:
        return (self.offset, self.stream) == (stop.offset, digest(stop.stream))


def digest(stream: str) -> str:
    return hashlib.sha256(stream.encode()).hexdigest()[:16]


def encode(words: Sequence[Word]) -> str:
    """The newest of them."""
    said = (f"{one.verb}.{one.offset:x}.{one.stream}.{one.number:x}" for one in words[-MOST_WORDS:])
    return f"{PREFIX}{';'.join(said)}"


def decode(text: str) -> list[Word]:
    """What cannot be read is left out."""
    found = map(_WORD.fullmatch, text.removeprefix(PREFIX).split(";"))
    return [
        Word(one[1], int(one[2], 16), one[3], int(one[4], 16))  # type: ignore[arg-type]
        for one in found
        if one is not None
    ]
