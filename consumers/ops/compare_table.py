"""The table that `penstock compare` prints for people.

Rule: texts come from outside. Characters that would control a terminal are printed as escapes, and
long texts are cut. Owner: the command.
"""

from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

import orjson
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from consumers.core.agreement import Share
from consumers.ops.compare import Found
from schemas.shadow import Disagreement, ModelId, Said

# The most characters that are printed of a text; an embedding has ten thousand.
MOST_CHARS = 120


def render(found: Found, worst: int) -> RenderableType:
    return Group(*_parts(found, worst))


def _parts(found: Found, worst: int) -> Iterator[RenderableType]:
    rules, sums = found.rules, found.sums
    yield Text(f"{_name(rules.live)} and its shadow {_name(rules.shadow)}", style="bold")
    what = " and ".join(rules.pointers) or "whole answers"
    yield Text(
        f"{_time(found.since)} to {_time(found.until)} (UTC); {what}, numbers within "
        f"{rules.tolerance:g}"
    )
    yield Text(f"agreement: {_share(found.share)} of {found.share.rows:,} rows")
    missing = ((sums.dropped, "for want of room"), (sums.unanswered, "the shadow did not answer"))
    for rows, why in missing:
        if rows:
            yield Text(f"not compared: {rows:,} rows, {why}")
    yield _times(found)
    if streams := sums.tally.worst(worst):
        yield _streams(streams)
    if found.examples:
        yield _examples(found.examples)
    if sums.unsent:
        yield Text(f"{sums.unsent:,} disagreements have no record")


def _times(found: Found) -> Table:
    table = Table(pad_edge=False)
    for name in ("time of a call", "p50", "p99"):
        table.add_column(name)
    for name, took in (("live", found.sums.live_took), ("shadow", found.sums.shadow_took)):
        table.add_row(name, *(_ms(took.quantile_s(share)) for share in (0.5, 0.99)))
    return table


def _streams(streams: list[tuple[str, Share]]) -> Table:
    table = Table(pad_edge=False)
    for name in ("worst streams", "rows", "agreement (95 %)"):
        table.add_column(name, overflow="fold")
    for name, share in streams:
        table.add_row(_visible(name), f"{share.rows:,}", _share(share))
    return table


def _examples(examples: Any) -> Table:
    table = Table(pad_edge=False)
    for name in ("disagreements", "stream", "live", "shadow"):
        table.add_column(name, overflow="fold")
    one: Disagreement
    for one in examples:
        table.add_row(_visible(one.id), _visible(one.stream), _said(one.live), _said(one.shadow))
    return table


def _said(said: Said) -> Text:
    if said.error is not None:
        return _visible(f"rejected: {said.error}")
    return _visible(orjson.dumps(said.prediction).decode())


def _share(share: Share) -> str:
    if not share.rows:
        return "nothing is known"
    low, high = (f"{100 * bound:.3f}" for bound in share.interval())
    return f"{100 * share.value:.3f} % ({low} to {high} %)"


def _name(model: ModelId) -> str:
    return model.name if model.version is None else f"{model.name} {model.version}"


def _ms(seconds: float | None) -> str:
    return "-" if seconds is None else f"{seconds * 1000:.3g} ms"


def _time(epoch_ms: int) -> str:
    try:
        return datetime.fromtimestamp(epoch_ms / 1000, UTC).strftime("%Y-%m-%d %H:%M:%S")
    except (OverflowError, ValueError):
        return str(epoch_ms)


def _visible(text: str) -> Text:
    if len(text) > MOST_CHARS:
        text = text[: MOST_CHARS - 1] + "…"
    return Text("".join(sign if sign.isprintable() else ascii(sign)[1:-1] for sign in text))
