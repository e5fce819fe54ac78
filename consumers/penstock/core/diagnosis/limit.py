"""What limits a worker that is late? Of what must there be more, so that answers come sooner?

Rule: of several full parts the one furthest down the flow is named, because everything before waits
for it; but the event loop comes before all others: without a free loop all services look slow. A
loop that gets no processor is starved, not busy. A full worker counts as skewed if one partition
has the backlog. If no part is full but most streams are late, the slowest part of the way is named,
if it takes half of the time. A store that is much slower than an object should be is named even on
time.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, NamedTuple

from penstock.core.diagnosis.problem import (
    BAD,
    WARN,
    Document,
    Problem,
    named,
    percent,
    place_of,
    seconds,
    shortened,
    value_at,
)

# From this share on, queues grow faster than the load: at a server that is busy for 0.8 of the
# time, a request waits four times as long as its own call takes.
FULL: Final = 0.8
# A loop that waits for a processor for this share of the time, and longer than it runs, makes every
# step of the way late, even if it is not full.
STARVED: Final = 0.3
# With less of a core than this, a turn of the loop takes seconds (a container with 0.02 of a core,
# at 100 rows a second), and the answers of services are seen after their deadlines.
LEAST_CORE: Final = 0.1
# A worker is late when a record waits for longer than `LATE_S`, or when more than `LATE_SHARE` of
# its objects, and at least `LATE_OBJECTS`, took longer than `window.target_p99_ms` within ten
# seconds. The window is learned so that one in a hundred does, so a few more are no trouble.
LATE_S: Final = 1.0
LATE_SHARE: Final = 0.05
LATE_OBJECTS: Final = 5
# One stutter of the machine makes objects of two samples late, which are a second apart.
LATE_FOR_S: Final = 1.5
# A service that is silent for longer is told as away, or takes that long for what it is asked.
DOUBT_S: Final = 10.0
# From this age on, lateness is as bad as an error.
BAD_S: Final = 2.0
# A worker counts as skewed if it has several partitions and one of them has at least this share of
# the backlog.
HOT_SHARE: Final = 0.8
# In addition, that partition must commit at least this many times as many records as the other
# partitions do on average.
HOT_TIMES: Final = 2
# The slowest part of the way is named if it takes at least this share of the time. The time in
# Kafka is not counted.
LONGEST_SHARE: Final = 0.5
# If the write of a result takes this share of the time from the last row to Kafka's answer, that
# time is the store's.
RESULTS_SHARE: Final = 0.2
# Of so many streams the means of all tell nothing.
FEW_SHARE: Final = 0.3
# A store that takes this long until its first answer is named even if the worker is on time.
SLOW_STORE_MS: Final = 500.0
# The latency bound that is used if `window.target_p99_ms` is off.
BOUND_MS: Final = 100.0

# For each part of the way: what it waits for. The parts that are missing here (queue, wait,
# hold_back) wait for one of these parts.
PARTS: Final[Mapping[str, str]] = {
    "fetch": "store",
    "decode": "worker",
    "call": "model",
    "publish": "kafka",
}
# For each part of an object's way: how a sentence names it.
WAY: Final[Mapping[str, str]] = {
    "kafka_in": "Kafka, before the worker",
    "queue": "the queue for a fetcher",
    "fetch": "the store",
    "decode": "decoding",
    "wait": "the window",
    "call": "the model",
    "hold_back": "waiting for answers before it",
    "publish": "Kafka, after the worker",
}


class _Limit(NamedTuple):
    kind: str
    what: str
    do: str
    stream: str | None = None


def limit(document: Document) -> Problem | None:
    """The one thing that slows the whole flow, with the figures that show it."""
    late = is_late(document)
    kind = _kind(document, late=late)
    if kind is None:
        return None
    whole = _SENTENCES[kind](document)
    drain_s = value_at(document, "flow", "drain_s")
    backlog_s = document.get("backlog_s") or 0.0
    is_bad = late and (backlog_s > BAD_S or over_share(document) > 0.0) and drain_s is None
    what = whole.what + ("" if drain_s is None else f"; the backlog is done in {seconds(drain_s)}")
    return Problem(BAD if is_bad else WARN, whole.kind, what, whole.do, whole.stream)


def over_share(document: Document) -> float:
    """The share of objects that took longer than the bound; 0 if it is as small as intended."""
    over = value_at(document, "flow", "over_bound") or 0.0
    objects = value_at(document, "flow", "over_bound_objects") or 0
    for_s = value_at(document, "flow", "over_bound_for_s") or 0.0
    many = over > LATE_SHARE and objects >= LATE_OBJECTS
    return over if many and for_s >= LATE_FOR_S else 0.0


def over_bound(document: Document) -> Problem | None:
    """Answers are late although nothing is the limit: where does most of their time go?"""
    over = over_share(document)
    if not over or value_at(document, "flow", "drain_s") is not None:
        return None
    streams: Sequence[Mapping[str, Any]] = document.get("streams") or ()
    slow = [one for one in streams if (one.get("now_p99_ms") or 0.0) > document["bound_ms"]]
    # The means are those of all streams, and tell nothing of a few.
    are_few = 0 < len(slow) <= FEW_SHARE * (document.get("streams_known") or len(streams))
    where = (
        f", those of {shortened([one['stream'] for one in slow])}" if are_few else _where(document)
    )
    return Problem(
        WARN,
        "over_bound",
        f"{percent(over)} of the objects took longer than the bound of {document['bound_ms']:g} ms"
        f"{where}",
        "See with penstock trace ID where an object's time goes; window.target_p99_ms is the bound",
        slow[0]["stream"] if are_few else None,
    )


def _where(document: Document) -> str:
    way: Mapping[str, float | None] = value_at(document, "flow", "way_ms") or {}
    longest = max(way, key=lambda part: way[part] or 0.0, default=None)
    if longest is None or not way[longest]:
        return ""
    has_results = longest == "publish" and document.get("results") is not None
    part = "the results' store and Kafka" if has_results else WAY[longest]
    return f", most of it in {part}: {seconds((way[longest] or 0.0) / 1000)} on average"


def is_late(document: Document) -> bool:
    return waiting_s(document) > LATE_S or over_share(document) > 0.0


def waiting_s(document: Document) -> float:
    """How long the oldest object waits. Lines that stand still do not count."""
    age_s: float = value_at(document, "flow", "moving_s") or 0.0
    lag_s: float = value_at(document, "flow", "lag_s") or 0.0
    return max(age_s, lag_s)


def is_skewed(assignments: Sequence[Mapping[str, Any]]) -> bool:
    """Does one of several partitions have nearly all of the backlog, although it commits many more
    records than the others? A partition that waits for slow objects has a backlog as well, but does
    not commit more records than the others; and one with a line that stopped did so before.
    """
    hot = max(assignments, key=lambda assignment: assignment["lag"] or 0, default=None)
    if hot is None or len(assignments) < 2 or hot.get("stopped"):
        return False
    lag = hot["lag"] or 0
    if not lag or lag <= HOT_SHARE * sum(assignment["lag"] or 0 for assignment in assignments):
        return False
    done = [
        assignment.get("committed_per_s") or 0.0
        for assignment in assignments
        if assignment is not hot
    ]
    return bool((hot.get("committed_per_s") or 0.0) >= HOT_TIMES * sum(done) / len(done))


def are_most_late(document: Document, part_ms: float) -> bool:
    """Do most streams suffer from a slow part of the way? Such a part makes all streams late. A
    slow camera, in contrast, makes only its own stream late, and the streams that wait behind it.
    `part_ms`: how long the part takes on average. Streams that were stopped do not count.
    """
    moving = [stream for stream in document.get("streams") or () if not stream.get("stopped")]
    late = sum(_takes_as_long(stream, part_ms) for stream in moving)
    others = document.get("streams_others")
    if others is not None:
        return late == len(moving) and _takes_as_long(others, part_ms)
    return late > len(moving) / 2


def _takes_as_long(stream: Mapping[str, Any], part_ms: float) -> bool:
    return max((stream["age_s"] or 0.0) * 1000, stream.get("now_p99_ms") or 0.0) >= part_ms


def _kind(document: Document, *, late: bool) -> str | None:
    way = _way(document)
    if not late:
        return "store" if _fetch_ms(way) >= SLOW_STORE_MS and _is_wide(document, "fetch") else None
    worker = "skew" if is_skewed(document.get("assignments") or ()) else "worker"
    if _busy(document, "loop") >= FULL:
        ran = value_at(document, "flow", "cpu", "ran")
        return "starved" if ran is not None and ran < FULL else worker
    parts = (
        ("publishing", "kafka"),
        ("calls", "model"),
        ("decoders", worker),
        ("fetchers", "store"),
        ("buffer", "buffer"),
    )
    full = next(((part, kind) for part, kind in parts if _busy(document, part) >= FULL), None)
    if full is not None:
        part, kind = full
        # Few objects that keep decoders or reads busy make only those late that wait with them.
        is_of_objects = part in ("decoders", "fetchers")
        bound_ms = document.get("bound_ms") or BOUND_MS
        return None if is_of_objects and not are_most_late(document, bound_ms) else kind
    if _is_starved(document):
        return "starved"
    slowest = max(PARTS, key=lambda part: way.get(part) or 0.0)
    # While a backlog is worked off, batches are large, and so they are slow.
    if value_at(document, "flow", "drain_s") is None and _is_wide(document, slowest):
        return PARTS[slowest]
    return "skew" if worker == "skew" else None


def seems_unanswered(document: Document) -> bool:
    """Does this process get so little of a processor that services only seem not to answer? While
    one really is away, the loop has nothing to do.
    """
    ran = value_at(document, "flow", "cpu", "ran")
    starves = ran is not None and ran < LEAST_CORE and _busy(document, "loop") >= FULL
    return bool(starves) and is_late(document)


def is_in_doubt(document: Document) -> bool:
    """Has a service fallen silent just now? Either it is away, which is told soon, or it was a
    pause; what waits for it meanwhile is no limit.
    """
    return 0.0 < (value_at(document, "flow", "doubted_s") or 0.0) < DOUBT_S


def _is_starved(document: Document) -> bool:
    ran = value_at(document, "flow", "cpu", "ran")
    waited = _busy(document, "loop") - (ran or 0.0)
    return ran is not None and waited >= max(STARVED, ran)


def _is_wide(document: Document, part: str) -> bool:
    """True if this part takes most of the way, and makes most streams late."""
    way = _way(document)
    ms = way.get(part) or 0.0
    whole_ms = sum(spent or 0.0 for name, spent in way.items() if name != "kafka_in")
    least_ms = LONGEST_SHARE * (document.get("bound_ms") or BOUND_MS)
    return ms >= max(least_ms, LONGEST_SHARE * whole_ms) and are_most_late(document, ms)


def _way(document: Document) -> Mapping[str, float | None]:
    return value_at(document, "flow", "way_ms") or {}


def _fetch_ms(way: Mapping[str, float | None]) -> float:
    return way.get("fetch") or 0.0


def _each(document: Document, part: str, what: str) -> str:
    ms = value_at(document, "flow", "way_ms", part)
    return "" if ms is None else f", {seconds(ms / 1000)} {what}"


def _busy(document: Document, part: str) -> float:
    return value_at(document, "flow", "busy", part) or 0.0


def _model(document: Document) -> _Limit:
    most = value_at(document, "window", "most_calls") or 0
    busy = _busy(document, "calls")
    each = _each(document, "call", "each")
    if busy >= FULL:
        return _Limit(
            "model",
            f"the model is the limit: {busy * most:.1f} of {most} calls busy{each}",
            "Add model workers, or servers in model.replicas; more Penstock workers do not help",
        )
    return _Limit(
        "model",
        f"the model is slow{each}, with {busy * most:.1f} of {most} calls busy",
        "Look at the model server's load: a call takes most of an object's time, and more calls at "
        "a time would not help",
    )


def _store(document: Document) -> _Limit:
    each = _each(document, "fetch", "until its first answer")
    do = "Look at the store's load and the way to it"
    most: Mapping[str, Any] | None = max(
        document.get("stores") or (),
        key=lambda store: (store["is_slow"], store["in_flight"] / store["limit"]),
        default=None,
    )
    if most is not None and most["is_slow"]:
        usual = seconds(most["usual_ms"] / 1000)
        return _Limit("store", f"the store is slow{each}; {usual} is usual", do)
    if most is None or _busy(document, "fetchers") < FULL:
        return _Limit("store", f"the store is slow{each}", do)
    return _Limit(
        "store",
        f"the store is the limit: {most['in_flight']} of {most['limit']} reads in flight{each}",
        "Raise objects.most_concurrency"
        if most["held_by"] == "most"
        else f"More reads at a time bring no more. {do}",
    )


def _kafka(document: Document) -> _Limit:
    """Answers wait until their result object is stored, then for Kafka."""
    results: Mapping[str, Any] = document.get("results") or {}
    write_ms = results.get("answer_ms") or 0.0
    # A result also waits for those before it, so its write alone is a part of the time.
    if write_ms >= RESULTS_SHARE * (value_at(document, "flow", "way_ms", "publish") or 0.0) > 0.0:
        is_full = results["in_flight"] >= FULL * results["limit"]
        return _Limit(
            "store",
            f"the store of the results is {'the limit' if is_full else 'slow'}: "
            f"{results['in_flight']} of {results['limit']} writes in flight, "
            f"{seconds(write_ms / 1000)} each",
            "Look at its load and the way to it; objects with more rows need fewer writes",
        )
    each = _each(document, "publish", "until an answer is acknowledged")
    do = "Look at the brokers' load and disks, and at what else writes to them"
    return _Limit("kafka", f"Kafka is the limit{each}", do)


def _worker(document: Document) -> _Limit:
    if _busy(document, "decoders") > _busy(document, "loop"):
        part, do = "decoders", "Raise limits.decoders if there are cores, or start another worker"
    else:
        part, do = "loop", "Start another worker of the group, or penstock run --processes N"
    verb = "are" if part == "decoders" else "is"
    busy = percent(_busy(document, part))
    return _Limit("worker", f"this worker is the limit: its {part} {verb} {busy} busy", do)


def _starved(document: Document) -> _Limit:
    cpu: Mapping[str, Any] = value_at(document, "flow", "cpu")
    what = f"this process gets {cpu['ran']:.1g} of a core, and would use more"
    if quota := cpu.get("throttled"):
        cores = cpu.get("quota")
        of = "" if cores is None else f" of {cores:g} cores"
        why = f": its container's limit{of} held it up for {percent(quota)} of the time"
        return _Limit("starved", what + why, "Raise the container's CPU limit, or remove it")
    if (stolen := cpu.get("stolen") or 0.0) > 1.0 - FULL:
        why = f": the machine's host takes {percent(stolen)} of its processors' time"
        return _Limit("starved", what + why, "Move the worker to a machine that is not oversold")
    why = f": {cpu['load']:.0f} tasks want this machine's {cpu['cores']} processors"
    return _Limit("starved", what + why, "Give it a core: move other processes elsewhere")


def _skew(document: Document) -> _Limit:
    assignments = document.get("assignments") or ()
    work = {
        place_of(assignment): (assignment["lag"] or 0) + assignment["owed"]
        for assignment in assignments
    }
    topic, number = most = max(work, key=lambda part: work[part])
    share = work[most] / (sum(work.values()) or 1)
    ours = [stream for stream in document.get("streams") or () if place_of(stream) == most]
    hot = max(ours, key=lambda stream: stream["rows_per_s"] or 0.0, default=None)
    of_hot = "" if hot is None else f", most of it of {named(hot['stream'])}"
    return _Limit(
        "skew",
        f"partition {topic}/{number} has {percent(share)} of all that is owed{of_hot}",
        "Give each camera a key of its own, add partitions, or set output.order = 'stream'",
        None if hot is None else hot["stream"],
    )


def _buffer(document: Document) -> _Limit:
    spent, most = (
        value_at(document, "budget", "spent_bytes") or 0,
        value_at(document, "budget", "limit_bytes") or 0,
    )
    held: Mapping[str, Any] | None = max(
        document.get("streams") or (), key=lambda stream: stream["owed"] or 0, default=None
    )
    of = "" if held is None or not held["owed"] else f"; {named(held['stream'])} owes the most"
    return _Limit(
        "buffer",
        f"the buffer is full: {spent / 2**20:,.0f} of {most / 2**20:,.0f} MiB{of}",
        "Answers leave more slowly than objects come; limits.buffer_bytes may be raised if there "
        "is memory",
        None if held is None else held["stream"],
    )


_SENTENCES: Final[Mapping[str, Callable[[Document], _Limit]]] = {
    "starved": _starved,
    "model": _model,
    "store": _store,
    "kafka": _kafka,
    "worker": _worker,
    "skew": _skew,
    "buffer": _buffer,
}
