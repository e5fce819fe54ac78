"""The stream whose rows cost the model many times what the others' cost, and by which the others
are late: a call takes as long as its dearest row.

Rule: it is named only if another stream is late, and nothing but the model is full.
"""

from collections.abc import Mapping
from typing import Any, Final

from penstock.core.diagnosis.limit import BOUND_MS, LATE_S, is_late, over_share, waiting_s
from penstock.core.diagnosis.problem import (
    BAD,
    WARN,
    Document,
    Problem,
    named,
    percent,
    seconds,
    value_at,
)

# Costs of equal streams are learned to within a factor of two. A stream that is this much dearer
# differs in kind.
COSTLY_TIMES: Final = 5.0
# If it takes a smaller share of the model's time, the others would hardly be sooner without it.
# One of 60 streams that is 50 times as dear takes 0.46.
COSTLY_SHARE: Final = 0.2
# If a call with its rows takes less of the bound beyond what others take, it makes nobody late, as
# long as the model has calls to spare.
COSTLY_BOUND: Final = 0.2
# Objects that took long count as late for so long, so calls before that made none of them late.
COSTLY_AGO_S: Final = 10.0
# A full buffer, and a full model, may be what it causes.
CAUSED: Final = ("model", "buffer")


def costly(document: Document, full: Problem | None) -> Problem | None:
    """`full`: what limits the worker."""
    most: Mapping[str, Any] | None = document.get("costly")
    if most is None or most["times"] < COSTLY_TIMES or most["share"] < COSTLY_SHARE:
        return None
    if most["ago_s"] > (COSTLY_AGO_S if over_share(document) else waiting_s(document)):
        return None
    bound_ms = document.get("bound_ms") or BOUND_MS
    if full is None and most["beyond_s"] * 1000 < COSTLY_BOUND * bound_ms:
        return None
    others, own = _late(document, most["stream"], bound_ms)
    if not (others or (own and most["is_apart"])) or not is_late(document):
        return None
    if full is not None and full.kind not in CAUSED:
        return None
    stream = named(most["stream"])
    waiting = f"{others} of the shown streams wait{'s' if others == 1 else ''}"
    waits = f"{waiting} for its rows, which" if others else "its rows"
    drain_s = value_at(document, "flow", "drain_s")
    is_bad = full.level == BAD if full is not None else over_share(document) and drain_s is None
    return Problem(
        BAD if is_bad else WARN,
        "costly",
        f"{stream} takes the model {_each(most['row_s'])} a row, {most['times']:.0f} x the others"
        f"{': it is asked apart' if most['is_apart'] else ''}",
        "See its last object: are its rows larger, or harder, than the others'? A model server of "
        "its own, by a route, keeps the others on time",
        most["stream"],
        holds=f"{waits} are {percent(most['share'])} of the model's time",
    )


def _late(document: Document, stream: str, bound_ms: float) -> tuple[int, bool]:
    """How many of the other streams are late, and whether this one is. After a start their
    latencies are not known, and this one counts as late.
    """
    rows = [row for row in document.get("streams") or () if not row.get("stopped")]
    late = {
        row["stream"]
        for row in rows
        if (row["age_s"] or 0.0) >= LATE_S or (row.get("now_p99_ms") or 0.0) > bound_ms
    }
    is_unknown = all(row.get("now_p99_ms") is None for row in rows)
    return len(late - {stream}), stream in late or is_unknown


def _each(row_s: float) -> str:
    return seconds(row_s) if row_s >= 0.01 else f"{row_s * 1000:.2g} ms"
