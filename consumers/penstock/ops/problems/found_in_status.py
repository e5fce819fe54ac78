"""Finds what is wrong with a worker by its status document, and says for each problem: the cause,
the stream, and what to do.

Rule: pure. Only the document is read, so the page, the commands and the tests find the same
problems. A field that is missing or null is not known yet, and leads to no problem. The worst
problem comes first. The module `limits` writes the sentences about what limits the throughput.
Owner: the status.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from shlex import quote
from typing import Any, Final

from penstock.ops.problems.limits import buffer_full, limit, over_bound
from penstock.ops.problems.shown_problems import (
    BAD,
    WARN,
    Document,
    Problem,
    in_order,
    named,
    one_line,
    seconds,
    value_at,
)

# A stream counts as late if its oldest object is at least `LATE_S` old, or at least as old as
# `LATE_BOUNDS` times the latency bound.
LATE_S: Final = 2.0
LATE_BOUNDS: Final = 10
# From this age on, lateness is as bad as an error.
VERY_LATE_S: Final = 30.0
# An outage that is shorter than this is no problem yet: it may be one lost request.
AWAY_S: Final = 0.5
# A rejection counts as a problem for this long.
NEWS_MS: Final = 60_000
# At most this many streams have a sentence of their own.
MOST_NAMED: Final = 3
# A worker that started less than this ago is still joining its group.
JOINING_S: Final = 20.0

# For the first word of each service's name: what a person should check if the service is away.
MEND: Final = {
    "Kafka": "Check that the brokers run, and kafka.bootstrap_servers",
    "object": "Check that the store runs, and its endpoint_url",
    "model": "Check that the model server runs, and model.url",
    "shadow": "The live answers are not concerned; check the shadow's server",
}


def problems(document: Document) -> list[dict[str, Any]]:
    """The problems of a worker or a supervisor, in the form that they have in a status document.
    The worst problem comes first.
    """
    return [one._asdict() for one in found_in(document)]


def found_in(document: Document) -> list[Problem]:
    """The problems of one worker, or of all members in a supervisor's document."""
    if "processes" in document:
        found = [one for member in document["processes"] for one in _of_member(member, document)]
    else:
        found = [one for rule in RULES for one in rule(document)]
    return in_order(found)


def _of_member(member: Document, document: Document) -> list[Problem]:
    name = f"process {member['process']}" if len(document["processes"]) > 1 else "the worker"
    if not member["up"]:
        do = "It is started again by itself; its log says why it ended."
        return [Problem(BAD, "process", f"{name}: {one_line(str(member['error']))}", do)]
    own = [Problem(**one) for one in member.get("problems", ())]
    if len(document["processes"]) == 1:
        return own
    # A member without a partition is no problem beside other members: it waits in reserve.
    return [one._replace(what=f"{name}: {one.what}") for one in own if one.kind != "no_partition"]


def _stopped(document: Document) -> Iterator[Problem]:
    assignments: Sequence[Mapping[str, Any]] = document.get("assignments") or ()
    stops = [(one["topic"], stop) for one in assignments for stop in one["stopped"]]
    for topic, stop in stops[:MOST_NAMED]:
        stream, typed = named(stop["stream"]), quote(stop["stream"])
        row = "" if stop["row"] is None else f", row {stop['row']}"
        yield Problem(
            BAD,
            "stopped",
            f"{stream} stands still at {topic}/{stop['partition']}, offset {stop['offset']}{row}: "
            f"{stop['limit']}; now {stop['code']}: {one_line(stop['message'])}",
            f"Mend the cause, then: penstock dlq resume {typed}. To have that object answered by "
            f"its error: penstock dlq skip {typed}",
            stop["stream"],
        )
    if rest := stops[MOST_NAMED:]:
        what = f"{len(rest)} more streams stand still"
        yield Problem(BAD, "stopped", what, "penstock dlq list tells all of them")


def _away(document: Document) -> Iterator[Problem]:
    for outage in document.get("outages") or ():
        if outage["away_s"] < AWAY_S:
            continue
        service = outage["service"]
        kind, for_s, why = "away", seconds(outage["away_s"]), outage.get("why")
        what = f"the {service} has not answered for {for_s}" + (f": {one_line(why)}" if why else "")
        if service.startswith("model server") and _answers_probes(document, outage["away_s"]):
            what = (
                f"the {service} answers questions without rows, and has failed on rows for {for_s}"
            ) + (f": {one_line(why)}" if why else "")
            kind = "unanswered_rows"
            do = "Look at its handler and its log: does it raise on these rows? penstock doctor"
        else:
            mend = MEND.get(service.split()[0], "Check it")
            do = f"{mend}; nothing is lost, work goes on by itself"
        level = WARN if service.startswith("shadow") else BAD
        yield Problem(level, kind, what, do, service=service)


def _answers_probes(document: Document, away_s: float) -> bool:
    """True if the model has answered a question since the outage began. These questions carry no
    rows.
    """
    asked_s = value_at(document, "model", "asked_s")
    return bool(value_at(document, "model", "answers")) and asked_s is not None and asked_s < away_s


def _models(document: Document) -> Iterator[Problem]:
    """One problem for each model that is silent or ill. There is none if an outage of a model
    server is reported already.
    """
    if any(outage["service"].startswith("model") for outage in document.get("outages") or ()):
        return
    alone = document.get("model")
    for model in document.get("models") or ([alone] if alone else ()):
        name = f"the model {named(model.get('name', ''))}"
        if model.get("answers") is False:
            what = f"{name} does not answer"
            yield Problem(BAD, "away", what, MEND["model"], service=name)
        elif model.get("breaker_open"):
            yield Problem(
                BAD,
                "breaker",
                f"{name} is ill: its calls fail, so its breaker is open and only probes pass",
                "Look at the model server's log and load; calls go on when a probe is answered",
                service=name,
            )


def _news(document: Document) -> list[Mapping[str, Any]]:
    """The newest rejection of each stream and code within the last minute."""
    since_ms = document.get("now_ms", 0) - NEWS_MS
    newest: dict[tuple[str, str], Mapping[str, Any]] = {}
    for letter in document.get("letters") or ():
        if letter["at_ms"] >= since_ms:
            newest.setdefault((letter["stream"], letter["code"]), letter)
    return list(newest.values())


def _refused(document: Document) -> Iterator[Problem]:
    news = _news(document)
    streams = {stream["stream"]: stream for stream in document.get("streams") or ()}
    per_s = value_at(document, "rates", "rejected_per_s") or 0.0
    if len(news) > MOST_NAMED:
        letter = news[0]
        names = len({one["stream"] for one in news})
        yield Problem(
            BAD,
            "refused",
            f"{per_s:,.1f} a second are refused, of {names} streams or more; the newest: "
            f"{named(letter['stream'])}, {letter['code']}: {one_line(letter['message'])}",
            "Mend the cause, then: penstock dlq redrive",
            letter["stream"],
        )
        return
    for letter in news:
        stream, what = letter["stream"], "objects" if letter["row"] is None else "rows"
        age_s = streams.get(stream, {}).get("age_s") or 0.0
        late = f" is {seconds(age_s)} behind" if age_s >= 1.0 else ""
        yield Problem(
            BAD,
            "refused",
            f"{named(stream)}{late}: its {what} are refused, {letter['code']}: "
            f"{one_line(letter['message'])}",
            f"Mend the cause, then: penstock dlq redrive --code {letter['code']} "
            f"--stream {quote(stream)}",
            stream,
        )


def _late(document: Document) -> Iterator[Problem]:
    """One problem for each stream that is late, unless an outage or the stream's own rejections
    already explain why.
    """
    streams: Sequence[Mapping[str, Any]] = document.get("streams") or ()
    known = document.get("streams_known") or len(streams)
    told = {letter["stream"] for letter in _news(document)}
    late = [one for one in streams if _is_late(one, document) and one["stream"] not in told]
    if not late or any(outage["away_s"] >= AWAY_S for outage in document.get("outages") or ()):
        return
    late.sort(key=lambda one: -(one["age_s"] or 0.0))
    first, others = late[0], len(late) - 1
    level = BAD if (first["age_s"] or 0.0) >= VERY_LATE_S else WARN
    how = (
        f"is {seconds(first['age_s'])} behind"
        if (first["age_s"] or 0.0) >= LATE_S
        else f"is slow, its p99 is {seconds((first['p99_ms'] or 0.0) / 1000)}"
    )
    what = f"{named(first['stream'])} {how}"
    if others and all(one["partition"] == first["partition"] for one in late):
        what += f", and {others} more of partition {first['partition']} wait behind it"
    elif others:
        what += f", and {others} more of {known} streams are late"
    elif known > 1:
        what += (
            "; the other "
            + ("stream is" if known == 2 else f"{known - 1} streams are")
            + " on time"
        )
    assignments: Sequence[Mapping[str, Any]] = document.get("assignments") or ()
    for one in assignments:
        held = one.get("held_back")
        if held and one["partition"] == first["partition"]:
            what += (
                f"; {held['objects']} answered objects are held back by {one_line(held['by'])}, "
                f"which is at {held['stage']}"
            )
    do = (
        "Look at its objects: are they large, or slow to come from the store? With output.order = "
        "'stream' it holds back no other stream"
    )
    yield Problem(level, "late", what, do, first["stream"])


def _is_late(stream: Mapping[str, Any], document: Document) -> bool:
    if stream.get("stopped"):
        return False
    bound_ms, p99_ms = document.get("bound_ms") or 100.0, stream["p99_ms"] or 0.0
    return (stream["age_s"] or 0.0) >= LATE_S or p99_ms >= LATE_BOUNDS * bound_ms


def _unmatched(document: Document) -> Iterator[Problem]:
    """One problem for the routes whose glob is most likely misspelt. The objects that such a route
    is meant for are answered by another model.
    """
    asked, streams = value_at(document, "routes", "asked"), document.get("streams") or ()
    for route in value_at(document, "routes", "never_matched") or ():
        like = f"; streams are called like {named(streams[0]['stream'])}" if streams else ""
        yield Problem(
            WARN,
            "route",
            f"none of {asked:,} objects matched the route of {one_line(route)}{like}",
            "Correct the route, or name the streams by kafka.stream_from; penstock route STREAM "
            "tells where one goes",
        )


def _no_partition(document: Document) -> Iterator[Problem]:
    if document.get("assignments"):
        return
    if document.get("uptime_s", 0.0) < JOINING_S:
        do = "It joins its group, which takes some seconds, longer after a worker was killed"
    else:
        do = "With more workers than partitions some wait in reserve; or add partitions"
    yield Problem(WARN, "no_partition", "no partition is assigned to this worker", do)


RULES: Final[Sequence[Callable[[Document], Iterator[Problem]]]] = (
    _stopped,
    _away,
    _models,
    _refused,
    limit,
    buffer_full,
    _late,
    over_bound,
    _unmatched,
    _no_partition,
)
