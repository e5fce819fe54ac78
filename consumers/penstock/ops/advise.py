"""What `penstock advise` prints: the advice that follows from a worker's status, as lines or JSON.

Rule: a page of several processes has the status of each; the one with the most rows is judged, and
the lines say so. Decides nothing itself (`core.diagnosis.advice`).
"""

from collections.abc import Iterator, Mapping
from typing import Any, Final, get_type_hints

import msgspec

from penstock import config
from penstock.core.diagnosis.advice import Advised, Present, advise
from penstock.core.diagnosis.call_times import CallTimes
from penstock.core.diagnosis.problem import value_at
from penstock.errors import usage

_NONE: Final = "this is no status of a worker of this version, as penstock top --json prints it"
_Times = msgspec.defstruct(
    "_Times", list(get_type_hints(CallTimes).items()), forbid_unknown_fields=True
)


def advised(document: Mapping[str, Any], cfg: config.Config) -> Advised:
    """Raises `Fatal` if this is no status of a worker, or of one that does not tell its calls."""
    workers = document.get("processes") or [document]
    answered = [worker for worker in workers if isinstance(worker, Mapping) and "calls" in worker]
    if not answered:
        raise usage(_NONE)
    busiest = max(answered, key=lambda worker: value_at(worker, "rates", "rows_per_s") or 0.0)
    try:
        msgspec.convert(value_at(busiest, "calls", "times"), _Times | None)
    except msgspec.ValidationError as error:
        raise usage(f"{_NONE}: {error}") from None
    most_calls = cfg.model.max_in_flight
    findings = advise(
        busiest,
        Present(
            cfg.window.max_rows,
            cfg.window.max_wait_ms / 1000,
            None if most_calls == "auto" else most_calls,
            cfg.model.cost_per_hour,
        ),
    )
    if len(workers) > 1:
        name = busiest.get("process", "one")
        findings.unknown.append(
            f"of {len(workers)} processes, this is told of the busiest ({name})"
        )
    if busiest.get("models"):
        findings.unknown.append("of several models, this is told of the default one")
    return findings


def lines(findings: Advised) -> Iterator[str]:
    for advice in findings.advice:
        yield f"{advice.kind:<9} {advice.said}"
    for carries in sorted(findings.carries, key=lambda part: part.rows_per_s):
        yield f"{'carries':<9} {carries.part}: up to {carries.rows_per_s:,.0f} rows a second"
    for unknown in findings.unknown:
        yield f"{'unknown':<9} {unknown}"


def as_json(findings: Advised) -> bytes:
    return msgspec.json.encode(
        {
            "v": 1,
            "advice": [advice._asdict() for advice in findings.advice],
            "carries": [carry._asdict() for carry in findings.carries],
            "unknown": findings.unknown,
        }
    )
