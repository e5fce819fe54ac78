"""What would suit this load better: size and wait of batches, calls, workers, hardware.

Rule: an advice follows from what the worker measured, and from nothing else. A call's time is that
of the fit (`call_times`); sizes beyond twice the largest call are not judged. A call may take half
of what the rest of the way leaves of the bound, as in the worker's own pace, and no part may be
busy for more than `FULL` of the time. What the figures cannot tell is said, not guessed. Pure.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from math import ceil, floor
from typing import Any, Final, Literal, NamedTuple

from penstock.core.diagnosis.call_times import LEAST_CALLS, CallTimes
from penstock.core.diagnosis.limit import FULL
from penstock.core.diagnosis.problem import Document, is_settled, named, percent, value_at
from penstock.core.window.pace import CALL_SHARE

# The fit is not followed to larger calls than so many times the largest that it knows.
BEYOND: Final = 2.0
# Errors of twice the standard error: 95 of a hundred are smaller.
SURE: Final = 2.0
# A change that brings less than this share is not worth a word.
WORTH: Final = 0.1
# From this share of a worker's part on, there is no room for a burst.
PARTS: Final[Mapping[str, str]] = {
    "loop": "the worker's event loop",
    "fetchers": "reading from the store",
    "decoders": "the decoders",
    "publishing": "publishing",
}

Kind = Literal["bound", "size", "wait", "calls", "workers", "hardware", "waste", "costly"]


class Present(NamedTuple):
    """The settings in force. `most_calls`: None if the number of calls is learned."""

    max_rows: int
    max_wait_s: float
    most_calls: int | None
    cost_per_hour: float | None = None


class Advice(NamedTuple):
    """`now`, `better`: numbers in the unit of the setting that the kind is about; None if there is
    no such number. `sure`: between which values `better` lies.
    """

    kind: Kind
    said: str
    now: float | None = None
    better: float | None = None
    sure: tuple[float, float] | None = None


class Carries(NamedTuple):
    """How many rows a second a part can carry."""

    part: str
    rows_per_s: float


@dataclass(slots=True)
class Advised:
    """`unknown`: what the figures cannot tell, as sentences."""

    advice: list[Advice] = field(default_factory=list)
    carries: list[Carries] = field(default_factory=list)
    unknown: list[str] = field(default_factory=list)


class Load(NamedTuple):
    """The figures of a status document. `calls`: the mean number of calls at a time, and
    `calls_allowed` the most. `elsewhere_s`: of an object's way without the window and the call.
    """

    rows_per_s: float
    streams: int
    partitions: int
    bound_s: float | None
    elsewhere_s: float
    calls: float
    calls_allowed: int
    held_by: str | None
    busy: Mapping[str, float]
    costly: Mapping[str, Any] | None


def load_of(document: Document) -> Load:
    delivered = value_at(document, "flow", "delivered_per_s") or 0.0
    rows = value_at(document, "rates", "rows_per_s") or 0.0
    arrived = value_at(document, "flow", "arrived_per_s") or 0.0
    bound_ms = document.get("bound_ms")
    way_ms: Mapping[str, float | None] = value_at(document, "flow", "way_ms") or {}
    mean_ms = sum(ms or 0.0 for part, ms in way_ms.items() if part not in ("wait", "call"))
    elsewhere_ms = value_at(document, "calls", "elsewhere_ms")
    return Load(
        arrived * rows / delivered if delivered else rows,
        document.get("streams_known") or 0,
        len(document.get("assignments") or ()),
        None if bound_ms is None else bound_ms / 1000,
        (mean_ms if elsewhere_ms is None else max(elsewhere_ms, mean_ms)) / 1000,
        value_at(document, "costs", "busy_s") or 0.0,
        value_at(document, "model", "calls_allowed") or 1,
        value_at(document, "calls", "held_by"),
        value_at(document, "flow", "busy") or {},
        document.get("costly"),
    )


def times_of(document: Document) -> CallTimes | None:
    times = value_at(document, "calls", "times")
    return None if times is None else CallTimes(**times)


def advise(document: Document, present: Present) -> Advised:
    load, times, advised = load_of(document), times_of(document), Advised()
    advised.unknown += _unknown(document, load, times)
    if times is None or load.rows_per_s <= 0:
        return advised
    room_s = None if load.bound_s is None else load.bound_s - load.elsewhere_s
    most = _most_rows(times, room_s)
    # Where it is known what a row takes, a call may have fewer rows than any had.
    least = times.rows_least if times.row_s is None else 1
    if room_s is not None and times.at(least) > CALL_SHARE * room_s:
        advised.advice.append(_out_of_reach(load, times, least))
        most = None
    if room_s is not None and most is not None:
        advised.advice += _size(load, times, present, room_s, most)
    advised.carries += _carries(load, times, most)
    advised.advice += _calls(load, times, present, _reached(load, times, room_s, most))
    advised.advice += _hardware(load, advised.carries)
    advised.advice += _waste(load, times, present, _reached(load, times, room_s, most))
    advised.advice += _costly(load)
    return advised


def _unknown(document: Document, load: Load, times: CallTimes | None) -> Iterator[str]:
    if not is_settled(document):
        yield "the worker has only just begun: ask again in a minute"
    if load.rows_per_s <= 0:
        yield "no rows arrive: ask while the usual load does"
    if times is None:
        yield f"fewer than {LEAST_CALLS} calls were answered in the last minute"
        return
    if times.row_s is None:
        yield (
            f"calls had {times.rows_least} to {times.rows_most} rows, which does not tell how "
            "their time grows with the size; it takes calls of other sizes, as by another "
            "window.max_rows for a minute"
        )
    if load.bound_s is None:
        yield "there is no bound to fit (window.target_p99_ms = 0)"
    if load.calls_allowed > 1 or load.calls > 1:
        yield (
            f"calls were timed at {load.calls:.1f} at a time; at another number each may take "
            "longer or shorter"
        )


def _most_rows(times: CallTimes, room_s: float | None) -> tuple[float, float, float] | None:
    """The most rows of a call that fits, and between which numbers it lies; None: not known."""
    if room_s is None or times.row_s is None:
        return None
    most = BEYOND * times.rows_most
    call_s = CALL_SHARE * room_s

    def fitting(errors: float) -> float:
        def fits(rows: float) -> bool:
            return times.at(rows) + errors * times.error_at(rows) <= call_s

        low, high = 1.0, most
        if fits(high):
            return high
        while high - low > 1e-6:
            rows = (low + high) / 2
            low, high = (rows, high) if fits(rows) else (low, rows)
        return low

    return fitting(0.0), fitting(SURE), fitting(-SURE)


def _out_of_reach(load: Load, times: CallTimes, least: int) -> Advice:
    assert load.bound_s is not None
    least_s = load.elsewhere_s + times.at(least) / CALL_SHARE
    rows = "1 row" if least == 1 else f"{least} rows"
    batches = "no size of batches" if least == 1 else "no size of batches that was seen"
    return Advice(
        "bound",
        f"a call takes {_ms(times.at(least))} with {rows}, which is more than half of the "
        f"{_ms(load.bound_s - load.elsewhere_s)} that the rest of the way leaves: "
        f"{batches} holds the bound; it takes a faster model, or {_ms(least_s)}",
        load.bound_s * 1000,
        ceil(least_s * 1000),
    )


def _size(
    load: Load,
    times: CallTimes,
    present: Present,
    room_s: float,
    most: tuple[float, float, float],
) -> Iterator[Advice]:
    rows, low, high = (floor(mean + 1e-3) for mean in most)
    is_end = rows >= floor(BEYOND * times.rows_most)
    message = f"calls of up to {rows} rows ({low} to {high}) take half of the {_ms(room_s)} left"
    if is_end:
        message = f"calls of {rows} rows still fit; larger ones were not seen"
    if present.max_rows < rows * (1 - WORTH):
        message += f"; window.max_rows = {present.max_rows} keeps them smaller"
    else:
        message += f"; window.max_rows = {present.max_rows} allows them"
    yield Advice("size", message, present.max_rows, rows, (low, high))
    # A row waits at most until as many are there as a call must have, so that the calls suffice.
    wait_s = room_s * (1 - CALL_SHARE)
    need = _least_rows(load, times, load.calls_allowed)
    need_s = None if need is None else need / load.rows_per_s
    message = f"a row may wait {_ms(wait_s)}"
    if need_s is not None and need_s > wait_s:
        message += f", but the {ceil(need or 1)} rows that a call needs take {_ms(need_s)} to come"
    message += f"; window.max_wait_ms = {present.max_wait_s * 1000:g}"
    message += " is longer" if present.max_wait_s > wait_s * (1 + WORTH) else " is within it"
    yield Advice("wait", message, present.max_wait_s * 1000, round(wait_s * 1000, 1))


def _least_rows(load: Load, times: CallTimes, calls: int) -> float | None:
    """How many rows calls must have so that so many calls at a time suffice; None: no number."""
    if times.row_s is None:
        return None
    spare = FULL * calls - load.rows_per_s * times.row_s
    return load.rows_per_s * times.base_s / spare if spare > 0 else None


def _rows_per_s(times: CallTimes, rows: float, calls: float) -> float:
    return FULL * calls * rows / times.at(rows)


def _reached(
    load: Load, times: CallTimes, room_s: float | None, most: tuple[float, float, float] | None
) -> float | None:
    """How many rows calls would have: as many as fit, and no more than come within the longest
    wait. None: not known.
    """
    if room_s is None or most is None:
        return None
    come = load.rows_per_s * room_s * (1 - CALL_SHARE)
    return max(min(most[0], come), 1.0)


def _calls(
    load: Load, times: CallTimes, present: Present, reached: float | None
) -> Iterator[Advice]:
    rows = times.rows_mean if reached is None else reached
    needed = max(1, ceil(load.rows_per_s * times.at(rows) / rows / FULL))
    learned = (
        "learned" if present.most_calls is None else f"model.max_in_flight = {present.most_calls}"
    )
    calls = f"{needed} call{'s' * (needed > 1)} at a time of {floor(rows + 1e-3)} rows"
    message = f"{calls} would carry this load"
    if needed <= load.calls_allowed:
        message += f"; {load.calls_allowed} are allowed ({learned})"
    elif load.held_by == "model":
        message += (
            f", but more than {load.calls_allowed} at a time bring no more: the server is full"
        )
    else:
        message += f", and only {load.calls_allowed} are allowed ({learned})"
    yield Advice("calls", message, load.calls_allowed, needed)


def _carries(
    load: Load, times: CallTimes, most: tuple[float, float, float] | None
) -> Iterator[Carries]:
    rows = most[0] if most is not None else times.rows_mean
    yield Carries("the model", _rows_per_s(times, rows, load.calls_allowed))
    for part, name in PARTS.items():
        if share := load.busy.get(part):
            yield Carries(name, FULL * load.rows_per_s / share)


def _hardware(load: Load, carries: Sequence[Carries]) -> Iterator[Advice]:
    first, *others = sorted(carries, key=lambda part: part.rows_per_s)
    times = first.rows_per_s / load.rows_per_s
    streams = f" ({floor(load.streams * times):,} streams)" if load.streams else ""
    message = f"{first.part} ends first, at {first.rows_per_s:,.0f} rows a second{streams}"
    doubled = min([2 * first.rows_per_s, *(other.rows_per_s for other in others)])
    more = "a second model server" if first.part == "the model" else "a second worker"
    if first.part != "the model":
        # All parts but the model are the worker's own, and there would be twice as many of each.
        model = [carry.rows_per_s for carry in carries if carry.part == "the model"]
        doubled = min([2 * first.rows_per_s, *model])
    message += f"; {more} would bring {doubled:,.0f}"
    if first.part != "the model" and load.partitions < 2:
        message += ", if the topic had more than one partition"
    yield Advice("hardware", message, round(first.rows_per_s), round(doubled))
    if first.part != "the model":
        workers = max(1, ceil(load.rows_per_s / first.rows_per_s))
        if workers > 1:
            yield Advice("workers", f"this load takes {workers} such workers", 1, workers)


def _waste(
    load: Load,
    times: CallTimes,
    present: Present,
    reached: float | None,
) -> Iterator[Advice]:
    if times.row_s is None:
        return
    now = times.base_s / times.at(times.rows_mean)
    message = f"{percent(now)} of the model's time is the fixed cost of calls"
    message += f" (of {times.rows_mean:.0f} rows)"
    if reached is None:
        yield Advice("waste", message, round(now, 3))
        return
    rows = max(reached, times.rows_mean)
    better = times.base_s / times.at(rows)
    saved = 1 - times.at(rows) / rows / (times.at(times.rows_mean) / times.rows_mean)
    if saved < WORTH:
        message += f"; the {reached:.0f} rows that fit and come in time would save little"
    else:
        message += f"; with the {rows:.0f} that come in time it would be {percent(better)}"
        message += f", {percent(saved)} of the model's time less"
        if present.cost_per_hour is not None:
            message += f" ({present.cost_per_hour * saved:.2f} an hour)"
    yield Advice("waste", message, round(now, 3), round(better, 3))


def _costly(load: Load) -> Iterator[Advice]:
    costly = load.costly
    if costly is not None and costly["times"] >= 2 and costly["share"] >= WORTH:
        yield Advice(
            "costly",
            f"{named(costly['stream'])} takes {percent(costly['share'])} of the model's time, "
            f"{costly['times']:.0f} times as much a row as the others",
            round(costly["share"], 3),
        )


def _ms(seconds: float) -> str:
    return f"{seconds * 1000:.3g} ms"
