"""A worker's status document in good health, and parts of one in trouble."""

from typing import Any

NOW_MS = 1_700_000_000_000
# A call takes 4 ms, and 20 us a row.
TIMES = {
    "calls": 256, "rows_least": 40, "rows_mean": 212.0, "rows_most": 400, "mean_s": 0.00824,
    "base_s": 0.004, "row_s": 0.00002, "error_s": 0.00005, "row_error_s": 0.0000005,
    "p99_times": 1.3,
}  # fmt: skip
WAY_MS = {
    "kafka_in": 2.0,
    "queue": 0.5,
    "fetch": 4.0,
    "decode": 1.5,
    "wait": 5.0,
    "call": 9.0,
    "hold_back": 0.5,
    "publish": 3.0,
}


def document(streams: int = 12, partitions: int = 4) -> dict[str, Any]:
    """Of a worker with so many streams and partitions, at 20 objects a second each."""
    rows_per_s = 20.0 * 16 * streams
    return {
        "v": 1,
        "version": "0.1.0",
        "now_ms": NOW_MS,
        "uptime_s": 11_520.0,
        "settled_s": 11_516.0,
        "input_topic": "refs",
        "output_topic": "predictions",
        "group": "penstock",
        "bound_ms": 50,
        "assignments": [assignment(number) for number in range(partitions)],
        "backlog_s": 0.0,
        "lag_age_s": 1.2,
        "window": {
            "rows": 48, "streams": 9, "max_rows": 512, "max_wait_ms": 7.5,
            "calls": 3, "most_calls": 4,
        },
        "budget": {"spent_bytes": 9 << 20, "limit_bytes": 256 << 20, "peak_bytes": 31 << 20},
        "model": {
            "name": "rows", "version": "1.0", "answers": True, "asked_s": 2.0,
            "answers_for_s": 60.0,
            "breaker_open": False, "calls_allowed": 4,
        },
        "costs": {
            "call_ms": 4.0, "busy_s": 0.75, "cost_per_hour": None, "cost_per_million": None,
        },
        "calls": {"times": dict(TIMES), "elsewhere_ms": 14.0, "held_by": "arrivals"},
        "costly": {
            "stream": "site-1/cam-1", "row_s": 0.0002, "times": 1.2, "share": 0.1,
            "beyond_s": 0.0, "ago_s": 4.0, "is_apart": False,
        },
        "stores": [
            {
                "name": "objects", "in_flight": 3, "limit": 16, "held_by": "arrivals",
                "answer_ms": 4.0, "usual_ms": 3.0, "is_slow": False,
            }
        ],
        "outages": [],
        "counters": {
            "records": 812_000, "objects": 812_000, "rows": 12_992_000, "rejected": 0,
            "retries": 0, "batches": 61_000, "commits": 23_040,
        },
        "rejected": {},
        "rates": {
            "rows_per_s": rows_per_s, "objects_per_s": 20.0 * streams, "rejected_per_s": 0.0,
            "over_s": 10.0,
        },
        "flow": {
            "arrived_per_s": 20.0 * streams,
            "delivered_per_s": 20.0 * streams,
            "drain_s": None,
            "backlog_s": 0.0,
            "moving_s": 0.0,
            "lag_s": 0.0,
            "backlog_bytes": None,
            "utilisation": 0.75,
            "busy": {
                "loop": 0.4, "calls": 0.75, "buffer": 0.04, "fetchers": 0.2, "decoders": 0.1,
                "publishing": 0.2,
            },
            "cpu": {
                "ran": 0.35, "throttled": 0.0, "quota": None, "stolen": 0.0, "load": 1.2,
                "cores": 4,
            },
            "doubted_s": 0.0,
            "over_bound": 0.0004,
            "over_bound_objects": 2,
            "over_bound_for_s": 4.0,
            "p50_ms": 17.0,
            "p99_ms": 31.0,
            "way_ms": dict(WAY_MS),
            "batch": {
                "rows_mean": 212.0, "fill": 0.41,
                "closed_by": {"rows": 2.0, "deadline": 14.5, "idle": 1.5},
            },
        },
        "streams": [
            stream(f"site-{1 + number % 3}/cam-{1 + number}", partition=number % partitions)
            for number in range(min(streams, 20))
        ],
        "streams_known": streams,
        "streams_others": None,
        "silence": {"streams": [], "count": 0, "regular": streams},
        "history": {
            "every_s": 10,
            "p99_ms": [28.0 + number % 7 for number in range(60)],
            "rows_per_s": [rows_per_s + 13 * (number % 5) for number in range(60)],
            "backlog_s": [0.02 * (number % 3) for number in range(60)],
            "utilisation": [0.7 + 0.01 * (number % 5) for number in range(60)],
        },
        "letters": [],
        "problems": [],
    }  # fmt: skip


def assignment(partition: int) -> dict[str, Any]:
    return {
        "topic": "refs", "partition": partition, "generation": 1, "next_offset": 203_000,
        "committed": 202_990, "committed_per_s": 20.0, "lag": 12, "owed": 8, "held_back": None,
        "is_stopped": False, "stopped": [],
    }  # fmt: skip


def stopped(stream: str, partition: int = 3) -> dict[str, Any]:
    """A partition with a line that stands still."""
    stop = {
        "partition": partition, "stream": stream, "offset": 12, "object_index": 0, "row": 4,
        "code": "bad_row", "message": "'oops' is not a number",
        "limit": "2 of its objects failed in a row",
        "since_ms": NOW_MS - 90_000, "record_ms": NOW_MS - 91_000,
    }  # fmt: skip
    return assignment(partition) | {"is_stopped": True, "stopped": [stop]}


def stream(name: str, **changes: Any) -> dict[str, Any]:
    """A stream in good health, with these changes."""
    return {
        "stream": name, "objects_per_s": 20.0, "rows_per_s": 320.0, "p50_ms": 16.0,
        "p99_ms": 30.0, "now_p99_ms": 29.0, "age_s": 0.02, "owed": 1, "rejected": 0,
        "last_code": None, "last_message": None, "topic": "refs", "partition": 0,
        "stopped": False,
        "heard_s": 0.1, "every_s": 0.05, "is_silent": False,
        "row_ms": 0.2, "model_s": 812.4, "model_share": 0.08, "cost_per_hour": None,
        "cost_per_million": None,
        "spark": [27.0 + (number + len(name)) % 6 for number in range(60)],
        "ages_s": [0.02 for _ in range(60)],
    } | changes  # fmt: skip


def letter(stream: str, row: int | None = None) -> dict[str, Any]:
    return {
        "at_ms": NOW_MS - 1_000, "stream": stream, "code": "bad_row",
        "message": "'oops' is not a number", "topic": "refs", "partition": 3, "offset": 12,
        "object_index": 0, "row": row,
    }  # fmt: skip
