"""The state of one stream, in a word, by the same figures as the problems, so that no table
contradicts the first line.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple

from penstock.core.diagnosis.limit import BOUND_MS
from penstock.core.diagnosis.problem import (
    BAD,
    WARN,
    Document,
    is_settled,
    named,
    place_of,
    seconds,
)

# A stream counts as late if its oldest object is at least `LATE_S` old, or if its p99 was at least
# `LATE_BOUNDS` times the latency bound within the last ten to twenty seconds.
LATE_S: Final = 2.0
LATE_BOUNDS: Final = 10
# From this age on, lateness is as bad as an error.
VERY_LATE_S: Final = 30.0
# A rejection is news for this long.
NEWS_MS: Final = 10_000

GOOD: Final = "good"
DIM: Final = "dim"


class News(NamedTuple):
    """The rejections of one stream with one code, just now. `newest`: the last of their letters."""

    newest: Mapping[str, Any]
    letters: int


def news(document: Document) -> list[News]:
    since_ms = document.get("now_ms", 0) - NEWS_MS
    items: dict[tuple[str, str], News] = {}
    for letter in document.get("letters") or ():
        if letter["at_ms"] >= since_ms:
            kind = letter["stream"], letter["code"]
            before = items.get(kind)
            items[kind] = (
                News(letter, 1) if before is None else News(before.newest, before.letters + 1)
            )
    return list(items.values())


def is_late_stream(stream: Mapping[str, Any], document: Document) -> bool:
    """A stream that stands still, or behind one that does, is not late but stopped."""
    if stream.get("stopped") or _stop_before(stream, document) is not None:
        return False
    late_ms = LATE_BOUNDS * (document.get("bound_ms") or BOUND_MS)
    return (stream["age_s"] or 0.0) >= LATE_S or (stream.get("now_p99_ms") or 0.0) >= late_ms


def behind_stop(document: Document, assignment: Mapping[str, Any]) -> Sequence[str]:
    """The streams that stand behind a stopped stream, because order is kept in the partition."""
    if not assignment.get("is_stopped"):
        return ()
    stopped = {stop["stream"] for stop in assignment["stopped"]}
    return [
        stream["stream"]
        for stream in document.get("streams") or ()
        if place_of(stream) == place_of(assignment) and stream["stream"] not in stopped
    ]


def state_of(stream: Mapping[str, Any], document: Document) -> tuple[str, str]:
    """The state of one of the document's streams, or of all others together; and how good that
    is.
    """
    refused = {item.newest["stream"]: item.newest["code"] for item in news(document)}
    if stream["stopped"]:
        return "stopped", BAD
    if (stop := _stop_before(stream, document)) is not None:
        return f"held back by {named(stop)}", WARN
    if not is_settled(document):
        return "starting", DIM
    age_s = stream["age_s"] or 0.0
    if age_s >= LATE_S:
        by = _held_back_by(stream, document)
        word = "behind" if by is None else f"held back by {named(by)}"
        return word, BAD if age_s >= VERY_LATE_S else WARN
    if stream["stream"] in refused:
        return f"refused: {refused[stream['stream']]}", WARN
    if stream.get("is_silent"):
        return f"silent; came each {seconds(stream['every_s'])}", WARN
    if is_late_stream(stream, document):
        return "slow", WARN
    return ("on time", GOOD) if stream["p99_ms"] is not None else ("quiet", DIM)


def _assignments(stream: Mapping[str, Any], document: Document) -> Iterator[Mapping[str, Any]]:
    for assignment in document.get("assignments") or ():
        if place_of(assignment) == place_of(stream):
            yield assignment


def _stop_before(stream: Mapping[str, Any], document: Document) -> str | None:
    """The stopped stream behind which this one stands."""
    for assignment in _assignments(stream, document):
        if assignment.get("is_stopped"):
            by: str = assignment["stopped"][0]["stream"]
            return None if by == stream["stream"] else by
    return None


def _held_back_by(stream: Mapping[str, Any], document: Document) -> str | None:
    """The stream of the object for which the answers of this one wait."""
    for assignment in _assignments(stream, document):
        held = assignment.get("held_back")
        if held and held["stream"] != stream["stream"]:
            by: str = held["stream"]
            return by
    return None
