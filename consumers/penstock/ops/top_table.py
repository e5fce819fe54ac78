"""The table that `penstock top` prints.

Rule: the table shows the `/api/status` of one worker, or of all members that share a page, and
computes nothing. Owner: the command.
"""

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from penstock.core.diagnosis.problem import BAD
from penstock.terminal_text import cut, visible

STREAMS = ("stream", "objects/s", "rows/s", "p50 ms", "p99 ms", "age s", "owed", "rejected", "last")
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


def render(document: Mapping[str, Any]) -> RenderableType:
    return Group(*_parts(document))


def _parts(document: Mapping[str, Any]) -> Iterator[RenderableType]:
    yield from _problems(document["problems"])
    workers: Sequence[Mapping[str, Any]] = document.get("processes") or [document]
    yield _table(WORKERS, [_worker(one) for one in workers])
    for store, one in sorted(_hedged(workers).items()):
        if any(one.values()):
            yield visible(
                f"{store}: {one['won'] + one['lost']:,} late reads sent twice, the second answered "
                f"first {one['won']:,} times; {one['resumed']:,} stalled bodies resumed"
            )
    streams = [_stream(one) for worker in workers for one in worker.get("streams") or ()]
    if streams:
        yield Text()
        yield _table(STREAMS, streams)


def _hedged(workers: Sequence[Mapping[str, Any]]) -> Mapping[str, Mapping[str, int]]:
    """For each store: what became of the reads that were sent twice, over all workers."""
    found: dict[str, Counter[str]] = defaultdict(Counter)
    for worker in workers:
        for store, outcomes in (worker.get("hedged_reads") or {}).items():
            found[store].update(outcomes)
    return found


def _problems(problems: Sequence[Mapping[str, Any]]) -> Iterator[RenderableType]:
    if not problems:
        yield Text(ALL_IS_WELL, style="green")
    for one in problems:
        line = visible(f"{one['what']}. {one['do']}")
        line.stylize("red" if one["level"] == BAD else "yellow")
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
    most = max(stores, key=lambda one: one["in_flight"] / one["limit"], default=None)
    if most is None:
        return Text()
    return visible(f"{most['in_flight']}/{most['limit']} {most['held_by']}")


def _stream(one: Mapping[str, Any]) -> list[Text]:
    figures = ("objects_per_s", "rows_per_s", "p50_ms", "p99_ms", "age_s", "owed", "rejected")
    said = " ".join(str(one[key]) for key in ("last_code", "last_message") if one.get(key))
    return [
        cut(str(one["stream"])),
        *(_figure(one.get(key)) for key in figures),
        cut("stopped" if one.get("stopped") else said),
    ]


def _figure(value: Any) -> Text:
    if value is None:
        return Text()
    return Text(f"{value:,.1f}" if isinstance(value, float) else f"{value:,}")


def _table(names: Sequence[str], rows: Sequence[Sequence[Text]]) -> Table:
    table = Table(pad_edge=False, box=None)
    for number, name in enumerate(names):
        is_text = name in ("worker", "stream", "limit", "last")
        table.add_column(name, justify="left" if is_text else "right", no_wrap=number == 0)
    for row in rows:
        table.add_row(*row)
    return table
