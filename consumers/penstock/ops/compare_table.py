"""The table that `penstock compare` prints for people.

Rule: it prints what `compare` found and computes nothing. Owner: the command.
"""

from collections.abc import Iterator

import orjson
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from penstock.messages.shadow import ModelId, Said
from penstock.ops.compare import Found
from penstock.terminal_text import agreement, folded, utc, worst_streams


def render(found: Found, worst: int) -> RenderableType:
    return Group(*_parts(found, worst))


def _parts(found: Found, worst: int) -> Iterator[RenderableType]:
    rules, sums = found.rules, found.sums
    yield Text(f"{_name(rules.live)} and its shadow {_name(rules.shadow)}", style="bold")
    what = " and ".join(rules.pointers) or "whole answers"
    yield Text(
        f"{utc(found.since)} to {utc(found.until)} (UTC); {what}, numbers within "
        f"{rules.tolerance:g}"
    )
    yield Text(f"agreement: {agreement(found.share)} of {found.share.rows:,} rows")
    missing = ((sums.dropped, "for want of room"), (sums.unanswered, "the shadow did not answer"))
    for rows, why in missing:
        if rows:
            yield Text(f"not compared: {rows:,} rows, {why}")
    yield _times(found)
    if streams := sums.tally.worst(worst):
        yield worst_streams(streams)
    if found.examples:
        yield folded(
            ("disagreements", "stream", "live", "shadow"),
            ((one.id, one.stream, _said(one.live), _said(one.shadow)) for one in found.examples),
        )
    if sums.unsent:
        yield Text(f"{sums.unsent:,} disagreements have no record")


def _times(found: Found) -> Table:
    table = Table(pad_edge=False)
    for name in ("time of a call", "p50", "p99"):
        table.add_column(name)
    for name, took in (("live", found.sums.live_took), ("shadow", found.sums.shadow_took)):
        table.add_row(name, *(_ms(took.quantile_s(share)) for share in (0.5, 0.99)))
    return table


def _said(said: Said) -> str:
    if said.error is not None:
        return f"rejected: {said.error}"
    return orjson.dumps(said.prediction).decode()


def _name(model: ModelId) -> str:
    return model.name if model.version is None else f"{model.name} {model.version}"


def _ms(seconds: float | None) -> str:
    return "-" if seconds is None else f"{seconds * 1000:.3g} ms"
