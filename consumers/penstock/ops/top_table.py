"""The table that `penstock top` prints, from the status alone."""

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from rich.console import Console, ConsoleOptions, Group, RenderableType, RenderResult
from rich.table import Table
from rich.text import Text

from penstock.core.diagnosis.problem import BAD, sentences
from penstock.terminal_text import cut, visible

STREAMS = (
    "stream",
    "state",
    "objects/s",
    "rows/s",
    "p50 ms",
    "p99 ms",
    "age s",
    "heard s",
    "owed",
    "rejected",
    "last",
)
COSTS = (
    "stream",
    "model",
    "ms a row",
    "model s",
    "rows/s",
    "cost/h",
    "cost/million",
)
WORKERS = (
    "worker",
    "in/s",
    "out/s",
    "p50 ms",
    "p99 ms",
    "backlog s",
    "busy",
    "limit",
    "reads",
    "partitions",
)
ALL_IS_WELL = "all is well"
# On a terminal of fewer columns these figures are left out, and texts get so many columns.
NARROW = 120
WIDE_ONLY = {"objects/s", "rows/s", "p50 ms", "rejected", "last", "reads"}
NARROW_TEXT = 24
PRICES = ("cost_per_hour", "cost_per_million")
TEXTS = ("worker", "stream", "state", "limit", "last")


def render(document: Mapping[str, Any], *, cost: bool = False) -> RenderableType:
    """`cost`: what the streams cost the model, in place of their state."""
    return Group(*_parts(document, cost=cost))


def _parts(document: Mapping[str, Any], *, cost: bool) -> Iterator[RenderableType]:
    yield from _problems(document["problems"])
    workers: Sequence[Mapping[str, Any]] = document.get("processes") or [document]
    yield _Fitted(WORKERS, [_worker(worker) for worker in workers])
    for store, hedged in sorted(_hedged(workers).items()):
        if any(hedged.values()):
            yield visible(
                f"{store}: {hedged['won'] + hedged['lost']:,} late reads sent twice, the second "
                f"answered first {hedged['won']:,} times; {hedged['resumed']:,} stalled bodies "
                "resumed"
            )
    if cost:
        yield Text()
        yield _Fitted(COSTS, [row for worker in workers for row in _costs(worker)])
        return
    streams = [_stream(stream) for worker in workers for stream in worker.get("streams") or ()]
    if streams:
        yield Text()
        yield _Fitted(STREAMS, streams)


def _hedged(workers: Sequence[Mapping[str, Any]]) -> Mapping[str, Mapping[str, int]]:
    """For each store: what became of the reads that were sent twice, over all workers."""
    totals: dict[str, Counter[str]] = defaultdict(Counter)
    for worker in workers:
        for store, outcomes in (worker.get("hedged_reads") or {}).items():
            totals[store].update(outcomes)
    return totals


def _problems(problems: Sequence[Mapping[str, Any]]) -> Iterator[RenderableType]:
    if not problems:
        yield Text(ALL_IS_WELL, style="green")
    for problem in problems:
        line = visible(sentences(problem["what"], problem["do"]))
        line.stylize("red" if problem["level"] == BAD else "yellow")
        yield line


def _worker(status: Mapping[str, Any]) -> list[Text]:
    name = str(status.get("process", status.get("host", "")))
    if "error" in status:
        return [visible(name), cut(str(status["error"]))]
    flow = status.get("flow") or {}
    rates = ("arrived_per_s", "delivered_per_s", "p50_ms", "p99_ms", "backlog_s")
    return [
        visible(name),
        *(_figure(flow.get(key)) for key in rates),
        visible(f"{100 * flow.get('utilisation', 0):.0f} %"),
        visible(str(flow.get("bound_by") or "")),
        _reads(status),
        _figure(len(status.get("assignments") or ())),
    ]


def _reads(status: Mapping[str, Any]) -> Text:
    """Of the store whose reads are nearest to their limit: how many, of how many, and what holds
    this number.
    """
    stores = status.get("stores") or ()
    most = max(stores, key=lambda store: store["in_flight"] / store["limit"], default=None)
    if most is None:
        return Text()
    return visible(f"{most['in_flight']}/{most['limit']} {most['held_by']}")


def _stream(stream: Mapping[str, Any]) -> list[Text]:
    figures = ("objects_per_s", "rows_per_s", "p50_ms", "p99_ms", "age_s", "heard_s", "owed")
    message = " ".join(str(stream[key]) for key in ("last_code", "last_message") if stream.get(key))
    state = visible(stream["state"])
    state.stylize({"bad": "red", "warn": "yellow"}.get(stream["level"], ""))
    return [
        cut(str(stream["stream"])),
        state,
        *(_figure(stream.get(key)) for key in (*figures, "rejected")),
        cut(message),
    ]


def _costs(worker: Mapping[str, Any]) -> Iterator[list[Text]]:
    """The streams, those that take most of the model's time first; then the others, and the sum."""
    shown = sorted(worker.get("streams") or (), key=lambda each: -each["model_share"])
    if (others := worker.get("streams_others")) is not None:
        shown.append(others)
    for stream in shown:
        yield [
            cut(str(stream["stream"])),
            visible(f"{100 * stream['model_share']:.1f} %"),
            *(_money(stream.get(key)) for key in ("row_ms", "model_s", "rows_per_s", *PRICES)),
        ]
    if (whole := worker.get("costs")) is not None:
        call_ms = _money(whole["call_ms"])
        call_ms.append("" if whole["call_ms"] is None else " a call")
        busy = visible(f"{whole['busy_s']:.2f} calls")
        yield [Text("all"), busy, call_ms, Text(), Text(), *(_money(whole[key]) for key in PRICES)]


def _money(value: float | None) -> Text:
    """In few digits, however small it is: a row may take microseconds, or cost little."""
    return Text("" if value is None else f"{value:,.1f}" if value >= 100.0 else f"{value:.3g}")


def _figure(value: Any) -> Text:
    if value is None:
        return Text()
    return Text(f"{value:,.1f}" if isinstance(value, float) else f"{value:,}")


class _Fitted:
    """A table of one line a row, which shows what the terminal has room for."""

    def __init__(self, names: Sequence[str], rows: Sequence[Sequence[Text]]) -> None:
        self._names = names
        self._rows = rows

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        is_narrow = options.max_width < NARROW
        shown = [
            number
            for number, name in enumerate(self._names)
            if not (is_narrow and name in WIDE_ONLY)
        ]
        table = Table(pad_edge=False, box=None)
        for number in shown:
            name = self._names[number]
            is_text = name in TEXTS
            table.add_column(
                name,
                justify="left" if is_text else "right",
                no_wrap=True,
                overflow="ellipsis",
                max_width=NARROW_TEXT if is_text and is_narrow else None,
            )
        for row in self._rows:
            table.add_row(*(row[number] for number in shown if number < len(row)))
        yield table
