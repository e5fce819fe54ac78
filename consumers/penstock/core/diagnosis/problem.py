"""A problem, and the words in which problems are told; texts from outside are cut, and stay on one
line.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

Document = Mapping[str, Any]

BAD: Final = "bad"
WARN: Final = "warn"

# What limits a worker that is late.
LIMITS: Final = ("model", "store", "kafka", "worker", "skew")
# What slows the flow as a whole. At most one of these is told, because one of them is the cause,
# and the others follow from it.
OF_FLOW: Final = ("starved", "costly", *LIMITS, "buffer", "late", "over_bound", "backlog")
# All kinds of problems, the most urgent kind first.
KINDS: Final = (
    *("process", "stopped", "away", "unanswered_rows", "breaker", "clock", "refused"),
    *OF_FLOW,
    *("silent", "route", "no_partition"),
)

# While a worker starts, its first requests open connections and load code, and it works off what
# waited for it. Its figures are judged after this time with partitions.
SETTLED_S: Final = 10.0

# At most this many streams are named in sentences of one kind.
MOST_NAMED: Final = 3
SHOWN_NAME: Final = 80
SHOWN_TEXT: Final = 200


class Problem(NamedTuple):
    """`what`: the cause in a sentence, with its stream or service. `do`: how to mend it. `kind`:
    the name of the rule that found it. `stream`: the stream to look at. `service`: the service that
    is away or ill. `holds`: what the cause holds back, in a sentence. `mates`: how many other
    streams of its partition wait with the stream.
    """

    level: str
    kind: str
    what: str
    do: str
    stream: str | None = None
    service: str | None = None
    holds: str | None = None
    mates: int = 0


def value_at(document: Document, *path: str) -> Any:
    """The value in the document at this path of keys; None if a key of the path is missing."""
    value: Any = document
    for key in path:
        value = value.get(key) if isinstance(value, Mapping) else None
    return value


def is_settled(document: Document) -> bool:
    settled_s = document.get("settled_s")
    return settled_s is None or settled_s >= SETTLED_S


def one_line(text: str) -> str:
    return _cut(" ".join(text.split()), SHOWN_TEXT)


def sentences(*texts: str | None) -> str:
    """One after the other; those without a mark at their end get a full stop, but the last."""
    *others, last = filter(None, texts)
    return " ".join([*(text if text[-1] in ".?!" else f"{text}." for text in others), last])


def named(stream: str) -> str:
    return _cut(stream if stream.strip() else repr(stream), SHOWN_NAME)


def shortened(names: Sequence[str]) -> str:
    listed = ", ".join(named(name) for name in names[:MOST_NAMED])
    more = len(names) - MOST_NAMED
    return listed + (f" and {more} more" if more > 0 else "")


def _cut(text: str, most: int) -> str:
    """At most so many characters, and all of them printable."""
    if not text.isprintable():
        text = "".join(char if char.isprintable() else "\N{REPLACEMENT CHARACTER}" for char in text)
    return text if len(text) <= most else text[:most] + " ..."


def place_of(row: Mapping[str, Any]) -> tuple[str | None, int | None]:
    """The partition of a stream or of an assignment, with its topic."""
    return row["topic"], row["partition"]


def seconds(number: float) -> str:
    """Seconds as a text, in the unit that fits: `31 ms`, `4.2 s`, `92 s`, `7 min`."""
    if number < 1.0:
        return f"{number * 1000:.0f} ms"
    if number < 120.0:
        return f"{number:.1f} s" if number < 90.0 else f"{number:.0f} s"
    return f"{number / 60:.0f} min" if number < 5400.0 else f"{number / 3600:.1f} h"


def percent(share: float) -> str:
    return f"{100 * share:.0f} %"
