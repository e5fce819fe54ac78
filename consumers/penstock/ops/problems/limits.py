"""Says which part limits a worker (the model, the store, Kafka, the worker itself, or the skew of
the partitions), and what to scale.

Rule: pure. The limit is the one that `flow.bound_by` names; the sentence adds the figures that show
it. A limit is a warning while answers are on time, and bad when they are late. Owner:
`found_in_status`.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final

from penstock.core.health.bound_by import are_most_late
from penstock.ops.problems.shown_problems import (
    BAD,
    WARN,
    Document,
    Problem,
    named,
    percent,
    seconds,
    value_at,
)

# Answers are late if more than the share `OVER_BOUND` of objects is over the latency bound, or if
# the oldest object is older than `BACKLOG_S`.
OVER_BOUND: Final = 0.01
BACKLOG_S: Final = 2.0
# A store is slow if it is slower than itself, or if its first answer takes at least this long; and
# only if this is more than half of the time of an object's whole way.
SLOW_STORE_MS: Final = 500.0
# If at least this share of the buffer is in use, objects wait for room.
FULL: Final = 0.95
# If the event loop is busy for at least this share of the time, it is the limit, even if the buffer
# is full, too.
FULL_LOOP: Final = 0.8


def limit(document: Document) -> Iterator[Problem]:
    """The problem of the limit that `flow.bound_by` names. If `flow.bound_by` names none but the
    store is slow, the store is the limit. If the worker is the limit because its buffer is full,
    there is no problem here, because `buffer_full` reports it.
    """
    by = value_at(document, "flow", "bound_by")
    if by == "worker" and _is_full(document) and _busy(document, "loop") < FULL_LOOP:
        return
    if by is None and _store_is_slow(document):
        by = "store"
    if by in SENTENCES:
        what, do, stream = SENTENCES[by](document)
        yield Problem(_level(document), by, what, do, stream)


def _level(document: Document) -> str:
    over = value_at(document, "flow", "over_bound") or 0.0
    backlog_s = document.get("backlog_s") or 0.0
    return BAD if over > OVER_BOUND or backlog_s > BACKLOG_S else WARN


def _store_is_slow(document: Document) -> bool:
    way: Mapping[str, float | None] = value_at(document, "flow", "way_ms") or {}
    fetch_ms = way.get("fetch") or 0.0
    is_slow = fetch_ms >= SLOW_STORE_MS or any(one["is_slow"] for one in _stores(document))
    if not is_slow or fetch_ms <= sum(ms or 0.0 for ms in way.values()) / 2:
        return False
    streams: Sequence[Mapping[str, Any]] = document.get("streams") or ()
    return are_most_late(streams, document.get("streams_others"), fetch_ms)


def _stores(document: Document) -> Sequence[Mapping[str, Any]]:
    return document.get("stores") or ()


def _each(document: Document, part: str, what: str) -> str:
    ms = value_at(document, "flow", "way_ms", part)
    return "" if ms is None else f", {seconds(ms / 1000)} {what}"


def _busy(document: Document, part: str) -> float:
    return value_at(document, "flow", "busy", part) or 0.0


def _model(document: Document) -> tuple[str, str, str | None]:
    calls, allowed = (
        value_at(document, "window", "calls"),
        value_at(document, "window", "most_calls"),
    )
    # When the number of allowed calls shrinks, the running calls go on, so `calls` may be above
    # `allowed`.
    most = max(calls or 0, allowed or 0)
    return (
        f"the model is the limit: {calls} of {most} calls busy{_each(document, 'call', 'each')}",
        "Add model workers, or servers in model.replicas; more Penstock workers do not help",
        None,
    )


def _store(document: Document) -> tuple[str, str, str | None]:
    each = _each(document, "fetch", "until its first answer")
    most = max(
        _stores(document),
        key=lambda one: (one["is_slow"], one["in_flight"] / one["limit"]),
        default=None,
    )
    if most is None:
        return f"the store is the limit{each}", "Look at the store's load and the way to it", None
    if most["is_slow"]:
        return (
            f"the store is slow{each}; {seconds(most['usual_ms'] / 1000)} is usual",
            "Look at the store's load and the way to it",
            None,
        )
    return (
        f"the store is the limit: {most['in_flight']} of {most['limit']} reads in flight{each}",
        "Raise objects.most_concurrency"
        if most["held_by"] == "most"
        else "More reads at a time bring no more: look at the store's load and the way to it",
        None,
    )


def _kafka(document: Document) -> tuple[str, str, str | None]:
    return (
        f"Kafka is the limit{_each(document, 'publish', 'until an answer is acknowledged')}",
        "Look at the brokers' load and disks, and at what else writes to them",
        None,
    )


def _worker(document: Document) -> tuple[str, str, str | None]:
    if _busy(document, "decoders") > _busy(document, "loop"):
        part, do = "decoders", "Raise limits.decoders if there are cores, or start another worker"
    else:
        part, do = "loop", "Start another worker of the group, or penstock run --processes N"
    busy = percent(_busy(document, part))
    verb = "are" if part == "decoders" else "is"
    return f"this worker is the limit: its {part} {verb} {busy} busy", do, None


def _skew(document: Document) -> tuple[str, str, str | None]:
    assignments = document.get("assignments") or ()
    if not assignments:
        return "the partitions have unequal work", "Add keys or partitions", None
    work = {
        (one["topic"], one["partition"]): (one["lag"] or 0) + one["owed"] for one in assignments
    }
    topic, number = most = max(work, key=lambda part: work[part])
    share = work[most] / (sum(work.values()) or 1)
    # The status of a stream has the number of its partition, but not its topic. So if several
    # topics have a partition of this number, we cannot tell which streams belong to which of them.
    is_alone = [other for _, other in work].count(number) == 1
    streams = document.get("streams") or () if is_alone else ()
    ours = [one for one in streams if one["partition"] == number]
    hot = max(ours, key=lambda one: one["rows_per_s"] or 0.0, default=None)
    of_hot = "" if hot is None else f", most of it of {named(hot['stream'])}"
    name = f"{number}" if len({topic for topic, _ in work}) == 1 else f"{topic}/{number}"
    return (
        f"partition {name} has {percent(share)} of all that is owed{of_hot}",
        "Give each camera a key of its own, add partitions, or set output.order = 'stream'",
        None if hot is None else hot["stream"],
    )


# For each part of an object's way: how a sentence names it.
WAY: Final = {
    "kafka_in": "Kafka, before the worker",
    "queue": "the queue for a fetcher",
    "fetch": "the store",
    "decode": "decoding",
    "wait": "the window",
    "call": "the model",
    "hold_back": "waiting for answers before it",
    "publish": "Kafka, after the worker",
}

SENTENCES: Final[Mapping[str, Callable[[Document], tuple[str, str, str | None]]]] = {
    "model": _model,
    "store": _store,
    "kafka": _kafka,
    "worker": _worker,
    "skew": _skew,
}


def over_bound(document: Document) -> Iterator[Problem]:
    """A problem if answers are late although nothing is the limit. Its sentence says where most of
    the time goes.
    """
    over = value_at(document, "flow", "over_bound") or 0.0
    if over <= OVER_BOUND or value_at(document, "flow", "bound_by") is not None:
        return
    way: Mapping[str, float | None] = value_at(document, "flow", "way_ms") or {}
    longest = max(way, key=lambda part: way[part] or 0.0, default=None)
    where = (
        ""
        if longest is None or not way[longest]
        else f", most of it in {WAY[longest]}: {seconds((way[longest] or 0.0) / 1000)} on average"
    )
    yield Problem(
        WARN,
        "over_bound",
        f"{percent(over)} of the objects took longer than the bound of {document['bound_ms']:g} ms"
        f"{where}",
        "See where an object's time goes; window.target_p99_ms is the bound",
    )


def _is_full(document: Document) -> bool:
    spent, most = (
        value_at(document, "budget", "spent_bytes"),
        value_at(document, "budget", "limit_bytes"),
    )
    return bool(most) and spent >= FULL * most


def buffer_full(document: Document) -> Iterator[Problem]:
    if not _is_full(document):
        return
    spent, most = (
        value_at(document, "budget", "spent_bytes"),
        value_at(document, "budget", "limit_bytes"),
    )
    held: Mapping[str, Any] | None = max(
        document.get("streams") or (), key=lambda one: one["owed"] or 0, default=None
    )
    of_stream = (
        "" if held is None or not held["owed"] else f"; {named(held['stream'])} owes the most"
    )
    yield Problem(
        _level(document),
        "buffer",
        f"the buffer is full: {spent / 2**20:,.0f} of {most / 2**20:,.0f} MiB{of_stream}",
        "Answers leave more slowly than objects come; limits.buffer_bytes may be raised if there "
        "is memory",
        None if held is None else held["stream"],
    )
