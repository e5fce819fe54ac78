"""A problem of a worker, and how its sentence writes names, times and shares.

Rule: texts from outside are cut, and stay on one line. Owner: `found_in_status` and `limits`, which
both make problems.
"""

from collections.abc import Mapping
from typing import Any, Final, NamedTuple

Document = Mapping[str, Any]

BAD: Final = "bad"
WARN: Final = "warn"

SHOWN_NAME: Final = 80
SHOWN_TEXT: Final = 200


class Problem(NamedTuple):
    """`what`: cause and stream, in a sentence. `do`: how to mend the problem. `kind`: the name of
    the rule that found it. `stream`: the name of the stream to look at. `service`: the service that
    is away or ill.
    """

    level: str
    kind: str
    what: str
    do: str
    stream: str | None = None
    service: str | None = None


def value_at(document: Document, *path: str) -> Any:
    """The value at this path of the document; None if a part of the path is missing."""
    found: Any = document
    for key in path:
        found = found.get(key) if isinstance(found, Mapping) else None
    return found


def one_line(text: str) -> str:
    text = text.strip()
    text = text if text.isprintable() else repr(text)[1:-1]
    return text if len(text) <= SHOWN_TEXT else text[:SHOWN_TEXT] + " ..."


def named(stream: str) -> str:
    text = stream if stream.isprintable() and stream.strip() else repr(stream)
    return text if len(text) <= SHOWN_NAME else text[:SHOWN_NAME] + " ..."


def seconds(number: float) -> str:
    """`31 ms`, `4.2 s`, `7 min`, `2.5 h`."""
    if number < 1.0:
        return f"{number * 1000:.0f} ms"
    if number < 90.0:
        return f"{number:.1f} s"
    return f"{number / 60:.0f} min" if number < 5400.0 else f"{number / 3600:.1f} h"


def percent(share: float) -> str:
    return f"{100 * share:.0f} %"
