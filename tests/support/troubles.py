"""Status documents of a worker in trouble, each with all that the trouble does to the figures, and
what the diagnosis must say of it.
"""

from typing import Any, Final, NamedTuple

from tests.support.status_documents import NOW_MS, WAY_MS, document, letter, stopped, stream

CAM: Final = "site-3/cam-7"
# All objects are late, as whenever something is the limit.
LATE: Final = {"over_bound": 0.9, "over_bound_objects": 900, "moving_s": 4.0, "lag_s": 3.0}


class Trouble(NamedTuple):
    """`line`: how the first line begins. `kind`, `bound_by`: what the metrics tell."""

    changes: dict[str, Any]
    line: str
    kind: str
    bound_by: str | None = None
    stream: str | None = None
    service: str | None = None


def flow(**changes: Any) -> dict[str, Any]:
    return {"flow": document()["flow"] | changes}


def late(**changes: Any) -> dict[str, Any]:
    """The flow of a worker that is late, and its streams."""
    streams = [one | {"now_p99_ms": 2_900.0, "age_s": 3.5} for one in document()["streams"]]
    return flow(**LATE, **changes) | {"streams": streams, "backlog_s": 4.0}


def busy(**parts: float) -> dict[str, float]:
    return {**document()["flow"]["busy"], **parts}


def away(service: str, asked_s: float = 13.0, why: str = "refused") -> dict[str, Any]:
    """The service is away; its calls were busy before, and everything is late."""
    outage = {"service": service, "away_s": 12.0, "why": why}
    model = document()["model"] | {"asked_s": asked_s}
    full = busy(calls=1.0, fetchers=1.0, publishing=1.0)
    return late(busy=full, delivered_per_s=0.0) | {"outages": [outage], "model": model}


def cpu(**changes: Any) -> dict[str, Any]:
    return {**document()["flow"]["cpu"], **changes}


_WELL = document()["streams"]
_ELSEWHERE = [one for one in _WELL if one["partition"] != 3]
_SILENT = {"stream": CAM, "heard_s": 92.0, "every_s": 0.3, "beyond_s": 87.0}
_HOT = document()["assignments"][1] | {"lag": 9_000, "committed_per_s": 300.0}
_STOPPED = stopped(CAM)
_NEIGHBOUR = stream("site-1/cam-2", partition=3, p99_ms=None, now_p99_ms=None, owed=0)
_BEHIND = stream(CAM, partition=3, stopped=True, age_s=91.0)

TROUBLES: Final[dict[str, Trouble]] = {
    "slow camera": Trouble(
        {"streams": [stream(CAM, age_s=4.2, now_p99_ms=4_100.0), *_WELL], "backlog_s": 4.2}
        | flow(moving_s=4.2),
        f"{CAM} is 4.2 s behind",
        "late",
        stream=CAM,
    ),
    "poison stream": Trouble(
        {"letters": [letter(CAM, row=4)]},
        f"{CAM}: its rows are refused, bad_row: 'oops' is not a number",
        "refused",
        stream=CAM,
    ),
    "store hung": Trouble(
        away("object store", why="no first byte for 5.0 s"),
        "The object store has not answered for 12.0 s: no first byte for 5.0 s",
        "away",
        "store",
        service="object store",
    ),
    "Kafka away": Trouble(
        away("Kafka broker"),
        "The Kafka broker has not answered for 12.0 s: refused",
        "away",
        "kafka",
        service="Kafka broker",
    ),
    "model away": Trouble(
        away("model server"),
        "The model server has not answered for 12.0 s: refused",
        "away",
        "model",
        service="model server",
    ),
    "model hangs up on rows": Trouble(
        away("model server", asked_s=2.0, why="it hangs up"),
        "The model server answers questions without rows",
        "unanswered_rows",
        "model",
        service="model server",
    ),
    "model too slow": Trouble(
        late(busy=busy(calls=0.97, fetchers=1.0, buffer=0.9)),
        "The model is the limit: 3.9 of 4 calls busy, 9 ms each",
        "model",
        "model",
    ),
    "costly stream": Trouble(
        late(busy=busy(calls=0.97, fetchers=1.0), way_ms=WAY_MS | {"call": 1_300.0})
        | {
            "costly": {
                "stream": CAM,
                "row_s": 1.5,
                "times": 55.2,
                "share": 0.88,
                "beyond_s": 1.5,
                "ago_s": 2.0,
                "is_apart": False,
            }
        },
        f"{CAM} takes the model 1.5 s a row, 55 x the others",
        "costly",
        "model",
        stream=CAM,
    ),
    "store slow": Trouble(
        late(way_ms=WAY_MS | {"fetch": 2_300.0}, busy=busy(fetchers=0.97)),
        "The store is the limit: 3 of 16 reads in flight, 2.3 s until its first answer",
        "store",
        "store",
    ),
    "loop busy": Trouble(
        late(busy=busy(loop=0.98, calls=1.0), cpu=cpu(ran=0.95)),
        "This worker is the limit: its loop is 98 % busy",
        "worker",
        "worker",
    ),
    "starved": Trouble(
        late(busy=busy(loop=0.97, calls=1.0), cpu=cpu(ran=0.21, load=24.0, cores=2)),
        "This process gets 0.2 of a core, and would use more: 24 tasks want this machine's 2",
        "starved",
        "worker",
    ),
    "cgroup quota": Trouble(
        late(busy=busy(loop=0.97), cpu=cpu(ran=0.2, throttled=0.93, quota=0.2)),
        "This process gets 0.2 of a core, and would use more: its container's limit of 0.2 cores",
        "starved",
        "worker",
    ),
    "oversold host": Trouble(
        late(busy=busy(loop=0.97), cpu=cpu(ran=0.3, stolen=0.6)),
        "This process gets 0.3 of a core, and would use more: the machine's host takes 60 %",
        "starved",
        "worker",
    ),
    "clock off": Trouble(
        late() | {"clock_ahead_s": 3_600.0},
        "This machine's clock is 60 min ahead of the store's",
        "clock",
    ),
    "skew": Trouble(
        late() | {"assignments": [_HOT, *document()["assignments"][2:]]},
        "Partition refs/1 has 100 % of all that is owed, most of it of site-2/cam-2",
        "skew",
        "skew",
        stream="site-2/cam-2",
    ),
    "stopped line": Trouble(
        {"assignments": [_STOPPED], "streams": [_BEHIND, _NEIGHBOUR, *_ELSEWHERE]}
        | {"letters": [letter(CAM)], "backlog_s": 91.0}
        | flow(backlog_s=91.0),
        f"{CAM} stands still at refs/3, offset 12, row 4",
        "stopped",
        stream=CAM,
    ),
    "full buffer": Trouble(
        late(busy=busy(buffer=1.0))
        | {"budget": {"spent_bytes": 256 << 20, "limit_bytes": 256 << 20}}
        | {"streams": [stream(CAM, owed=64, age_s=30.0), *_WELL]},
        f"The buffer is full: 256 of 256 MiB; {CAM} owes the most",
        "buffer",
        "worker",
        stream=CAM,
    ),
    "one silent": Trouble(
        {"silence": {"streams": [_SILENT], "count": 1, "regular": 12}},
        f"{CAM} has not been heard for 92 s; it came each 300 ms",
        "silent",
        stream=CAM,
    ),
    "all silent": Trouble(
        {"silence": {"streams": [_SILENT], "count": 12, "regular": 12}},
        "None of 12 streams has been heard for 92 s",
        "silent",
    ),
    "backlog": Trouble(
        late(drain_s=8.0),
        "A backlog is worked off, done in 8.0 s",
        "backlog",
    ),
}


def troubled(cause: str) -> dict[str, Any]:
    return document() | TROUBLES[cause].changes | {"now_ms": NOW_MS}
