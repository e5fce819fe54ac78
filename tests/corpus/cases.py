"""What a case is, and the shorthand in which tables say what must come out.

An answer is a list of words in output order: `row` is a delivered prediction, an error code stands
for a rejected row, `end` is the marker of an object without rows, `end:code` that of one that
failed; `row*3` is three of them, and nothing at all is an input that is passed over.
"""

from collections.abc import Callable
from dataclasses import dataclass

from penstock.formats.runs import RowOptions

DEFAULT = RowOptions()


@dataclass(frozen=True, slots=True)
class Message:
    """A value of the input topic, under a Kafka key."""

    name: str
    value: bytes | None
    answer: str
    kafka_key: bytes | None = None


@dataclass(frozen=True, slots=True)
class Stored:
    """An object. `texts` is the answer where rows go to the model as JSON; None: the same."""

    name: str
    key: str
    data: bytes | Callable[[], bytes]
    answer: str
    texts: str | None = None
    options: RowOptions = DEFAULT

    def body(self) -> bytes:
        return self.data if isinstance(self.data, bytes) else self.data()


@dataclass(frozen=True, slots=True)
class Said:
    """What a model server sends for a batch; `reply` gets the numbers of its hostile rows.

    After `times` replies it answers well (None: never), after each it `closes` the connection or
    `drips` on without an end.
    """

    name: str
    reply: Callable[[list[bool]], bytes]
    answer: str
    times: int | None = None
    closes: bool = False
    drips: bool = False


def words(answer: str) -> list[str]:
    found: list[str] = []
    for word in answer.split():
        text, _, times = word.partition("*")
        found += [text] * int(times or 1)
    return found
