"""The diagnosis: what is wrong with a worker by its status document, what it holds back, and what
to do, for the page, `penstock top`, the doctor, the log and the metrics.

Rule: a field that is missing or null leads to no problem. One cause is told once: what follows from
it is left out (`without_consequences`). Nothing that is measured is judged while the worker starts.
The worst problem comes first.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from shlex import quote
from typing import Any, Final

from penstock.core.diagnosis.costly import costly
from penstock.core.diagnosis.limit import (
    is_in_doubt,
    is_late,
    limit,
    over_bound,
    seems_unanswered,
)
from penstock.core.diagnosis.problem import (
    BAD,
    KINDS,
    LIMITS,
    MOST_NAMED,
    OF_FLOW,
    SETTLED_S,
    WARN,
    Document,
    Problem,
    is_settled,
    named,
    one_line,
    place_of,
    seconds,
    shortened,
    value_at,
)
from penstock.core.diagnosis.streams import (
    News,
    behind_stop,
    is_late_stream,
    news,
    state_of,
)

# From this age on, lateness is as bad as an error.
VERY_LATE_S: Final = 30.0
# If most streams are late, one of them is named only from this age on.
WIDELY_LATE_S: Final = 10.0
# An outage that is shorter than this is no problem yet: it may be one lost request.
AWAY_S: Final = 0.5
# A model that is back gets its first rows within twice the longest pause between two probes.
ROWS_AGAIN_S: Final = 10.0
# A worker that started less than this ago is still joining its group.
JOINING_S: Final = 20.0
# Clocks that are this far apart make all ages and latencies wrong, and from 900 s on S3 refuses
# requests. Answers tell the time in whole seconds, and take some time to come.
CLOCK_S: Final = 3.0

# For the first word of each service's name: what a person should check if the service is away.
MEND: Final = {
    "Kafka": "Check that the brokers run, and kafka.bootstrap_servers",
    "object": "Check that the store runs, and its endpoint_url",
    "token": "Check [kafka.oauth] and the server that gives the tokens",
    "model": "Check that the model server runs, and model.url",
    "shadow": "The live answers are not concerned; check the shadow's server",
}
# For the stage at which a late object is: what to look at.
LOOK_AT: Final = {
    "download": "Look at its objects: are they large, or slow to come from the store?",
    "expand": "Look at its objects: are they large, or slow to decode?",
    "predict": "Look at its rows: does the model take long for them?",
}


def diagnose(document: Document) -> list[Problem]:
    """The problems of one worker, or of all members in a supervisor's document. The first one is
    the cause that the worker's first line tells.
    """
    return in_order(without_consequences(symptoms(document)))


def symptoms(document: Document) -> list[Problem]:
    """All that the rules find, before consequences are left out."""
    if "processes" in document:
        return [
            problem for member in document["processes"] for problem in _of_member(member, document)
        ]
    return [problem for rule in RULES for problem in rule(document)]


def in_order(problems: Iterable[Problem]) -> list[Problem]:
    """The problems, the worst one first. Problems that are equally bad are in the order of
    `KINDS`.
    """
    return sorted(problems, key=lambda problem: (problem.level != BAD, KINDS.index(problem.kind)))


def without_consequences(problems: Sequence[Problem]) -> list[Problem]:
    """The problems without those that follow from another one."""
    kinds = {
        problem.kind for problem in problems if not (problem.service or "").startswith("shadow")
    }
    hidden = set[str]()
    if kinds & {"away", "unanswered_rows", "breaker", "clock"}:
        hidden |= {*OF_FLOW, "silent", "no_partition"}
    if kinds & {"away", "unanswered_rows"}:
        hidden.add("breaker")
    stopped = {problem.stream for problem in problems if problem.kind == "stopped"}
    return [
        problem
        for problem in problems
        if problem.kind not in hidden
        and not (problem.kind == "refused" and problem.stream in stopped)
    ]


def with_diagnosis(document: Document, problems: Sequence[Problem]) -> dict[str, Any]:
    """The document with its problems, what limits the worker, and the state of each stream."""

    def with_state(stream: Mapping[str, Any]) -> Mapping[str, Any]:
        state, level = state_of(stream, document)
        return {**stream, "state": state, "level": level}

    others = document["streams_others"]
    return {
        **document,
        "problems": [problem._asdict() for problem in problems],
        "flow": {**document["flow"], "bound_by": bound_by(problems)},
        "streams": [with_state(stream) for stream in document["streams"]],
        "streams_others": None if others is None else with_state(others),
    }


def bound_by(problems: Sequence[Problem]) -> str | None:
    """Of what there must be more: one of `LIMITS`. None: nothing limits the worker."""
    for problem in problems:
        if problem.kind in LIMITS:
            return problem.kind
        if problem.kind == "costly":
            return "model"
        if problem.kind in ("starved", "buffer"):
            return "worker"
        if problem.kind == "breaker" or (problem.service or "").startswith("model"):
            return "model"
        if problem.kind == "away" and not (problem.service or "").startswith("shadow"):
            return "kafka" if (problem.service or "").startswith("Kafka") else "store"
    return None


def _of_member(member: Document, document: Document) -> list[Problem]:
    name = f"process {member['process']}" if len(document["processes"]) > 1 else "the worker"
    if not member["up"]:
        do = "It is started again by itself; its log says why it ended."
        return [Problem(BAD, "process", f"{name}: {one_line(str(member['error']))}", do)]
    own = [Problem(**problem) for problem in member.get("problems", ())]
    if len(document["processes"]) == 1:
        return own
    # A member without a partition is no problem beside other members: it waits in reserve.
    return [
        problem._replace(what=f"{name}: {problem.what}")
        for problem in own
        if problem.kind != "no_partition"
    ]


def _stopped(document: Document) -> Iterator[Problem]:
    assignments: Sequence[Mapping[str, Any]] = document.get("assignments") or ()
    stops = [(place, stop) for place in assignments for stop in place["stopped"]]
    for assignment, stop in stops[:MOST_NAMED]:
        stream, typed = named(stop["stream"]), quote(stop["stream"])
        row = "" if stop["row"] is None else f", row {stop['row']}"
        yield Problem(
            BAD,
            "stopped",
            f"{stream} stands still at {assignment['topic']}/{stop['partition']}, offset "
            f"{stop['offset']}{row}: "
            f"{stop['limit']}; now {stop['code']}: {one_line(stop['message'])}",
            f"Mend the cause, then: penstock dlq resume {typed}, and for what was refused before: "
            f"penstock dlq redrive --stream {typed}. To have that object answered by its error: "
            f"penstock dlq skip {typed}",
            stop["stream"],
            holds=_behind(document, assignment, stop),
        )
    if rest := stops[MOST_NAMED:]:
        what = f"{len(rest)} more streams stand still"
        yield Problem(BAD, "stopped", what, "penstock dlq list tells all of them")


def _behind(document: Document, assignment: Document, stop: Document) -> str | None:
    names = behind_stop(document, assignment)
    if not names:
        return None
    since_s = max(0.0, (document["now_ms"] - stop["since_ms"]) / 1000)
    return f"it holds back {_some(names)} of its partition, for {seconds(since_s)}"


def _some(names: Sequence[str]) -> str:
    count = "1 other stream" if len(names) == 1 else f"{len(names)} other streams"
    return f"{count}: {shortened(names)}"


def _away(document: Document) -> Iterator[Problem]:
    if seems_unanswered(document):
        return
    for outage in document.get("outages") or ():
        if outage["away_s"] < AWAY_S:
            continue
        service = outage["service"]
        kind, for_s, why = "away", seconds(outage["away_s"]), outage.get("why")
        does = "has failed" if outage.get("fails") else "has not answered"
        what = f"the {service} {does} for {for_s}" + (f": {one_line(why)}" if why else "")
        is_shadow = service.startswith("shadow")
        if service.startswith("model server") and _answers_probes(document, outage["away_s"]):
            what = (
                f"the {service} answers questions without rows, and has failed on rows for {for_s}"
            ) + (f": {one_line(why)}" if why else "")
            kind = "unanswered_rows"
            do = "Look at its handler and its log: does it raise on these rows? penstock doctor"
        else:
            mend = MEND.get(service.split()[0], "Check it")
            do = f"{mend}; nothing is lost, work goes on by itself"
        holds = None if is_shadow else _waiting(document)
        yield Problem(WARN if is_shadow else BAD, kind, what, do, service=service, holds=holds)


def _waiting(document: Document) -> str | None:
    owed = sum(assignment["owed"] for assignment in document.get("assignments") or ())
    if not owed:
        return None
    backlog_s = document.get("backlog_s") or 0.0
    if owed == 1:
        return f"1 object waits, for {seconds(backlog_s)}"
    return f"{owed:,} objects wait, the oldest for {seconds(backlog_s)}"


def _answers_probes(document: Document, away_s: float) -> bool:
    """True if the model has answered a question since the outage began. These questions carry no
    rows. If it did not answer them either, it is back, and rows are soon sent again.
    """
    asked_s = value_at(document, "model", "asked_s")
    answers_for_s = value_at(document, "model", "answers_for_s") or 0.0
    is_back = answers_for_s < min(away_s, ROWS_AGAIN_S)
    return asked_s is not None and asked_s < away_s and not is_back


def _models(document: Document) -> Iterator[Problem]:
    """One problem for each model that is silent or ill. There is none if an outage of a model
    server is reported already.
    """
    if seems_unanswered(document) or any(
        outage["service"].startswith("model") for outage in document.get("outages") or ()
    ):
        return
    alone, several = document.get("model"), document.get("models")
    for model in several or ([alone] if alone else ()):
        name = f"the model {named(model.get('name', ''))}"
        # As its outage is called, which is told in this line as soon as it has begun.
        service = f"model server of {model.get('name', '')}" if several else "model server"
        if model.get("answers") is False:
            what = f"{name} does not answer"
            yield Problem(BAD, "away", what, MEND["model"], service=service)
        elif model.get("breaker_open"):
            yield Problem(
                BAD,
                "breaker",
                f"{name} is ill: its calls fail, so its breaker is open and only probes pass",
                "Look at the model server's log and load; calls go on when a probe is answered",
                service=service,
            )


def _clock(document: Document) -> Iterator[Problem]:
    apart_s = document.get("clock_ahead_s")
    if apart_s is None or abs(apart_s) < CLOCK_S:
        return
    way = "ahead of" if apart_s > 0 else "behind"
    yield Problem(
        BAD,
        "clock",
        f"this machine's clock is {seconds(abs(apart_s))} {way} the store's",
        "Look at both with timedatectl. Ages and latencies are wrong until then, and from 15 min "
        "on the store refuses requests",
    )


def _refused(document: Document) -> Iterator[Problem]:
    recent = news(document)
    if len(recent) > MOST_NAMED:
        letters = sum(item.letters for item in recent)
        names = len({item.newest["stream"] for item in recent})
        newest = recent[0].newest
        yield Problem(
            BAD,
            "refused",
            f"{letters} objects and rows of {names} streams or more were refused just now; the "
            f"newest: {named(newest['stream'])}, {newest['code']}: {one_line(newest['message'])}",
            "Mend the cause, then: penstock dlq redrive",
            newest["stream"],
        )
        return
    yield from map(_of_stream, recent)


def _of_stream(item: News) -> Problem:
    stream, code = item.newest["stream"], item.newest["code"]
    what = "objects" if item.newest["row"] is None else "rows"
    return Problem(
        BAD,
        "refused",
        f"{named(stream)}: its {what} are refused, {code}: {one_line(item.newest['message'])}",
        f"Mend the cause, then: penstock dlq redrive --code {code} --stream {quote(stream)}",
        stream,
    )


def _flow(document: Document) -> Iterator[Problem]:
    """What slows the flow as a whole."""
    if not is_settled(document):
        return
    full = limit(document)
    if is_in_doubt(document) and (full is None or full.kind != "starved"):
        return
    problem = costly(document, full) or full
    problem = problem or _late(document) or over_bound(document) or _backlog(document)
    if problem is not None:
        yield problem


def _late(document: Document) -> Problem | None:
    """The stream that is late while nothing limits the worker, and why."""
    streams_told = {item.newest["stream"] for item in news(document)}
    streams: Sequence[Mapping[str, Any]] = document.get("streams") or ()
    late = [stream for stream in streams if is_late_stream(stream, document)]
    late = [stream for stream in late if stream["stream"] not in streams_told]
    known = document.get("streams_known") or len(streams)
    # What most share is not about a stream. A service that is silent is told within this time.
    oldest_s = max((stream["age_s"] or 0.0 for stream in late), default=0.0)
    if not late or (len(late) > known / 2 > 1 and oldest_s < WIDELY_LATE_S):
        return None
    late.sort(key=lambda stream: -(stream["age_s"] or 0.0))
    first, others = late[0], late[1:]
    held = _held_back(document, first)
    do = "See with penstock trace ID where the time of one of its objects went"
    holds = None
    if held is not None:
        by = next((stream for stream in late if stream["stream"] == held["stream"]), None)
        first, others = by or first, [stream for stream in late if stream is not (by or first)]
        do = LOOK_AT.get(held["stage"], do)
        holds = (
            f"{held['objects']} answered objects wait behind {one_line(held['by'])}, which is at "
            f"{held['stage']}; with output.order = 'stream' it holds back no other stream"
        )
    drain_s = value_at(document, "flow", "drain_s")
    if drain_s is not None and held is None:
        return None
    mates = sum(place_of(other) == place_of(first) for other in others)
    what = f"{named(first['stream'])} {_how_late(first)}{_others(document, first, others, mates)}"
    is_bad = (first["age_s"] or 0.0) >= VERY_LATE_S
    return Problem(
        BAD if is_bad else WARN, "late", what, do, first["stream"], holds=holds, mates=mates
    )


def _how_late(stream: Document) -> str:
    age_s = stream["age_s"] or 0.0
    if age_s >= 1.0:
        return f"is {seconds(age_s)} behind"
    return f"is slow, its p99 is {seconds((stream.get('now_p99_ms') or 0.0) / 1000)}"


def _others(document: Document, first: Document, others: Sequence[Document], mates: int) -> str:
    known = document.get("streams_known") or len(others) + 1
    topic, number = place_of(first)
    if others and mates == len(others):
        return f", and {len(others)} more of {topic}/{number} wait with it"
    if others:
        return f", and {len(others)} more of {known} streams are late"
    if known <= 1:
        return ""
    rest = "stream is" if known == 2 else f"{known - 1} streams are"
    return f"; the other {rest} on time"


def _held_back(document: Document, stream: Document) -> Document | None:
    for assignment in document.get("assignments") or ():
        if place_of(assignment) == place_of(stream) and assignment.get("held_back"):
            held: Document = assignment["held_back"]
            return held
    return None


def _backlog(document: Document) -> Problem | None:
    drain_s = value_at(document, "flow", "drain_s")
    if drain_s is None or not is_late(document):
        return None
    return Problem(
        WARN,
        "backlog",
        f"a backlog is worked off, done in {seconds(drain_s)}",
        "Nothing needs to be done; more workers of the group would be done sooner",
    )


def _silent(document: Document) -> Iterator[Problem]:
    """Streams that came regularly and say nothing."""
    silence: Mapping[str, Any] | None = document.get("silence")
    if not silence or not silence["streams"]:
        return
    # Records may wait in Kafka for a worker that is late, but none that came before Kafka was last
    # asked where the input ends.
    flow = next(_flow(document), None)
    is_behind = flow is not None and flow.kind not in ("late", "over_bound")
    if is_behind and silence["streams"][0]["beyond_s"] <= document["lag_age_s"]:
        return
    first, count, regular = silence["streams"][0], silence["count"], silence["regular"]
    for_s, every_s = seconds(first["heard_s"]), seconds(first["every_s"])
    do = "Look at its producer: does it run, and does it reach Kafka?"
    if count == regular and regular > 1:
        what = f"none of {regular} streams has been heard for {for_s}; {named(first['stream'])}"
        do = "Look at the producers: do they run, and do they reach Kafka?"
        yield Problem(WARN, "silent", f"{what} came each {every_s}", do)
        return
    more = "" if count == 1 else f", and {count - 1} more of {regular} streams are silent"
    yield Problem(
        WARN,
        "silent",
        f"{named(first['stream'])} has not been heard for {for_s}; it came each {every_s}{more}",
        do,
        first["stream"],
    )


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
    uptime_s = document.get("uptime_s", 0.0)
    if document.get("assignments") or uptime_s < SETTLED_S:
        return
    if uptime_s < JOINING_S:
        do = "It joins its group, which takes some seconds, longer after a worker was killed"
    else:
        do = "With more workers than partitions some wait in reserve; or add partitions"
    yield Problem(WARN, "no_partition", "no partition is assigned to this worker", do)


RULES: Final[Sequence[Callable[[Document], Iterator[Problem]]]] = (
    _stopped,
    _away,
    _models,
    _clock,
    _refused,
    _flow,
    _silent,
    _unmatched,
    _no_partition,
)
