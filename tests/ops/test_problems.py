"""What the page's first line says: each trouble is told with its cause and stream."""

from typing import Any

import pytest

from penstock.ops.problems.found_in_status import MOST_NAMED, NEWS_MS, problems
from penstock.ops.problems.limits import FULL
from tests.support.status_documents import document, letter, stopped, stream


def said(changes: dict[str, Any]) -> list[tuple[str, str, str]]:
    found = problems(document() | changes)
    assert all(one["do"] for one in found)
    return [(one["level"], one["kind"], one["what"]) for one in found]


def flow(**changes: Any) -> dict[str, Any]:
    return {"flow": document()["flow"] | changes}


def test_all_is_well() -> None:
    assert said({}) == []


def test_figures_that_are_not_known_yet_say_nothing() -> None:
    known = ("assignments", "uptime_s", "now_ms")
    assert problems({key: document()[key] for key in known}) == []
    assert said({"flow": None, "streams": None, "letters": [], "model": None}) == []


def test_a_stopped_line_is_told_with_how_to_go_on() -> None:
    [found] = problems(document() | {"assignments": [stopped("cam-7")]})
    assert found["what"] == (
        "cam-7 stands still at refs/3, offset 12, row 4: 2 of its objects failed in a row; now "
        "bad_row: 'oops' is not a number"
    )
    assert "penstock dlq resume cam-7" in found["do"]
    assert "penstock dlq skip cam-7" in found["do"]
    assert (found["level"], found["stream"]) == ("bad", "cam-7")


def test_of_many_stopped_lines_some_are_named() -> None:
    many = [stopped(f"cam-{number}") for number in range(9)]
    found = said({"assignments": many})
    assert len(found) == MOST_NAMED + 1
    assert found[-1][2] == f"{9 - MOST_NAMED} more streams stand still"


@pytest.mark.parametrize("service", ["Kafka broker", "object store", "model server"])
def test_a_service_that_is_away_is_named_with_its_time_and_its_words(service: str) -> None:
    outage = {"service": service, "away_s": 12.0, "why": "refused"}
    model = document()["model"] | {"asked_s": 13.0}
    assert said({"outages": [outage], "model": model}) == [
        ("bad", "away", f"the {service} has not answered for 12.0 s: refused")
    ]


def test_a_single_lost_request_is_no_outage_and_a_shadow_no_error() -> None:
    assert said({"outages": [{"service": "object store", "away_s": 0.1}]}) == []
    away = {"service": "shadow model v2", "away_s": 9.0}
    assert said({"outages": [away]})[0][0] == "warn"


def test_a_model_that_fails_on_rows_alone_is_not_called_away() -> None:
    outage = {"service": "model server", "away_s": 8.0, "why": "it hangs up"}
    model = document()["model"] | {"answers": True, "asked_s": 2.0}
    [(_, _, what)] = said({"outages": [outage], "model": model})
    assert what == (
        "the model server answers questions without rows, and has failed on rows for 8.0 s: "
        "it hangs up"
    )
    # An answer from before the outage tells nothing of it.
    [(_, _, what)] = said({"outages": [outage], "model": model | {"asked_s": 9.0}})
    assert what == "the model server has not answered for 8.0 s: it hangs up"


def test_a_model_that_is_silent_and_one_whose_breaker_is_open_are_named() -> None:
    model = document()["model"]
    assert said({"model": model | {"answers": False}}) == [
        ("bad", "away", "the model rows does not answer")
    ]
    [(level, kind, what)] = said({"models": [model, model | {"name": "b", "breaker_open": True}]})
    assert (level, kind, what[:18]) == ("bad", "breaker", "the model b is ill")


def test_a_stream_that_is_refused_is_told_with_code_and_words() -> None:
    streams = [stream("cam-7", age_s=4.2), stream("cam-8")]
    assert said({"letters": [letter("cam-7")], "streams": streams}) == [
        (
            "bad",
            "refused",
            "cam-7 is 4.2 s behind: its objects are refused, bad_row: 'oops' is not a number",
        )
    ]
    [(_, _, what)] = said({"letters": [letter("cam-7", row=3)] * 5})
    assert what == "cam-7: its rows are refused, bad_row: 'oops' is not a number"


def test_old_rejections_are_no_news_and_many_streams_are_told_together() -> None:
    old = letter("cam-7")
    old["at_ms"] -= NEWS_MS + 1
    assert said({"letters": [old]}) == []
    many = [letter(f"cam-{number}") for number in range(8)]
    [(_, _, what)] = said({"letters": many, "rates": {"rejected_per_s": 12.5}})
    assert what == (
        "12.5 a second are refused, of 8 streams or more; the newest: cam-0, bad_row: 'oops' is "
        "not a number"
    )


def test_answers_beyond_the_bound_are_told_with_where_their_time_goes() -> None:
    [(level, kind, what)] = said(flow(over_bound=0.25))
    assert (level, kind) == ("warn", "over_bound")
    assert what == (
        "25 % of the objects took longer than the bound of 50 ms, most of it in the model: 9 ms on "
        "average"
    )
    assert said(flow(over_bound=0.005)) == []


def test_the_limit_is_told_with_its_figures_and_is_bad_once_answers_are_late() -> None:
    for by, what in (
        ("model", "the model is the limit: 3 of 4 calls busy, 9 ms each"),
        ("worker", "this worker is the limit: its loop is 40 % busy"),
        ("store", "the store is the limit: 3 of 16 reads in flight, 4 ms until its first answer"),
        ("kafka", "Kafka is the limit, 3 ms until an answer is acknowledged"),
    ):
        assert said(flow(bound_by=by)) == [("warn", by, what)]
        assert said(flow(bound_by=by, over_bound=0.2))[0][0] == "bad"
        assert said(flow(bound_by=by) | {"backlog_s": 5.0})[0][0] == "bad"


def test_decoders_that_limit_the_worker_are_told() -> None:
    busy = document()["flow"]["busy"] | {"decoders": 0.98}
    [(_, _, what)] = said(flow(bound_by="worker", busy=busy))
    assert what == "this worker is the limit: its decoders are 98 % busy"


def test_skew_names_the_partition_and_its_hot_stream() -> None:
    first, *others = document()["assignments"]
    streams = [stream("cam-1", rows_per_s=5.0), stream("cam-2", rows_per_s=900.0)]
    found = flow(bound_by="skew") | {
        "assignments": [first | {"lag": 900}, *(one | {"lag": 10} for one in others)],
        "streams": streams,
    }
    [(level, kind, what)] = said(found)
    assert (level, kind) == ("warn", "skew")
    assert what == "partition 0 has 94 % of all that is owed, most of it of cam-2"


def test_partitions_of_the_same_number_in_two_topics_are_told_apart() -> None:
    parts = [one | {"topic": topic} for topic in ("a", "b") for one in document()["assignments"]]
    found = flow(bound_by="skew") | {
        "assignments": [parts[0] | {"lag": 900}, *(one | {"lag": 10} for one in parts[1:])],
        "streams": [stream("cam-1", rows_per_s=5.0)],
    }
    [(_, _, what)] = said(found)
    assert what == "partition a/0 has 88 % of all that is owed"
    halted = stopped("cam-7")
    other = halted | {"topic": "other", "stopped": []}
    [(_, _, what)] = said({"assignments": [halted, other]})
    assert what.startswith(f"cam-7 stands still at {halted['topic']}/3, ")


def test_a_store_that_takes_most_of_the_way_is_slow_though_it_limits_nothing() -> None:
    way = document()["flow"]["way_ms"] | {"fetch": 1200.0}
    slow = [stream(f"cam-{number}", p99_ms=1_400.0) for number in range(3)]
    # The bound is so high that they are on time.
    known = {"bound_ms": 2_000.0, "streams_known": 3}
    assert said(flow(way_ms=way) | known | {"streams": slow}) == [
        (
            "warn",
            "store",
            "the store is the limit: 3 of 16 reads in flight, 1.2 s until its first answer",
        )
    ]
    # One stream with slow objects makes the mean slow, too.
    assert said(flow(way_ms=way) | known | {"streams": [slow[0], stream("a"), stream("b")]}) == []


def test_a_store_is_slow_if_it_is_slower_than_itself() -> None:
    """A store that takes 34 ms is far, not slow; one that usually takes 12 ms is."""
    way = document()["flow"]["way_ms"] | {"fetch": 34.0}
    late = [stream(f"cam-{number}", p99_ms=80.0) for number in range(3)]
    [reads] = document()["stores"]
    known = flow(way_ms=way) | {"streams": late, "streams_known": 3, "bound_ms": 2_000.0}
    assert said(known) == []
    slow = {"stores": [reads | {"is_slow": True, "answer_ms": 34.0, "usual_ms": 12.0}]}
    assert said(known | slow) == [
        ("warn", "store", "the store is slow, 34 ms until its first answer; 12 ms is usual")
    ]


def test_one_late_stream_is_named_and_so_are_those_behind_it() -> None:
    late = stream("cam-7", age_s=4.2)
    assert said({"streams": [late], "streams_known": 12}) == [
        ("warn", "late", "cam-7 is 4.2 s behind; the other 11 streams are on time")
    ]
    others = [stream(f"cam-{number}", age_s=3.0) for number in range(2)]
    [(_, _, what)] = said({"streams": [*others, late], "streams_known": 12})
    assert what == "cam-7 is 4.2 s behind, and 2 more of partition 0 wait behind it"
    elsewhere = [one | {"partition": 1} for one in others]
    [(_, _, what)] = said({"streams": [*elsewhere, late], "streams_known": 12})
    assert what == "cam-7 is 4.2 s behind, and 2 more of 12 streams are late"
    slow = stream("cam-9", p99_ms=1500.0)
    [(_, _, what)] = said({"streams": [slow], "streams_known": 1})
    assert what == "cam-9 is slow, its p99 is 1.5 s"
    [(level, _, _)] = said({"streams": [stream("cam-7", age_s=90.0)]})
    assert level == "bad"


def test_lateness_by_an_outage_is_told_as_the_outage() -> None:
    outage = {"service": "object store", "away_s": 9.0}
    found = said({"streams": [stream("cam-7", age_s=9.0)], "outages": [outage]})
    assert [kind for _, kind, _ in found] == ["away"]


def test_a_service_is_named_apart_from_the_sentence() -> None:
    outage = {"service": "model server", "away_s": 9.0}
    model = document()["model"]
    for asked_s, kind in ((2.0, "unanswered_rows"), (12.0, "away")):
        [one] = problems(document() | {"outages": [outage], "model": model | {"asked_s": asked_s}})
        assert (one["kind"], one["service"], one["stream"]) == (kind, "model server", None)


def test_a_full_buffer_names_the_stream_that_owes_most() -> None:
    budget = {"spent_bytes": int(FULL * (256 << 20)) + 1, "limit_bytes": 256 << 20}
    streams = [stream("cam-1", owed=3), stream("cam-2", owed=40)]
    full = ("buffer", "the buffer is full: 243 of 256 MiB; cam-2 owes the most")
    assert said({"budget": budget, "streams": streams}) == [("warn", *full)]
    # A worker that is full for this reason alone needs no other worker.
    late = {"budget": budget, "streams": streams, "backlog_s": 5.0}
    assert said(flow(bound_by="worker") | late) == [("bad", *full)]
    busy = {"busy": document()["flow"]["busy"] | {"loop": 0.95}}
    assert said(flow(bound_by="worker", **busy) | late)[0][1] == "worker"


def test_a_worker_without_a_partition_says_so() -> None:
    [found] = problems(document() | {"assignments": [], "uptime_s": 3.0})
    assert (found["level"], "joins its group" in found["do"]) == ("warn", True)
    [found] = problems(document() | {"assignments": [], "uptime_s": 300.0})
    assert "in reserve" in found["do"]


def test_the_worst_comes_first() -> None:
    found = said(flow(bound_by="model") | {"outages": [{"service": "object store", "away_s": 9.0}]})
    assert [level for level, _, _ in found] == ["bad", "warn"]


def test_names_and_messages_from_outside_stay_short_and_on_one_line() -> None:
    bad = letter("cam\n7" + "x" * 500)
    bad["message"] = "a\nb" + "y" * 5_000
    [(_, _, what)] = said({"letters": [bad]})
    assert what.isprintable()
    assert len(what) < 500


def test_the_problems_of_several_members_are_told_with_their_number() -> None:
    silent = {"process": 0, "restarts": 1, "up": False, "error": "it does not run"}
    late = document() | {"streams": [stream("cam-7", age_s=4.2)], "streams_known": 2}
    late |= {"process": 1, "restarts": 0, "up": True}
    reserve = document() | {"assignments": [], "process": 2, "restarts": 0, "up": True}
    members = [one | {"problems": problems(one)} if one["up"] else one for one in (late, reserve)]
    found = problems({"processes": [silent, *members]})
    assert [one["what"] for one in found] == [
        "process 0: it does not run",
        "process 1: cam-7 is 4.2 s behind; the other stream is on time",
    ]
    [alone] = problems({"processes": [silent]})
    assert alone["what"] == "the worker: it does not run"


def test_a_route_that_nothing_matches_is_told_with_how_streams_are_called() -> None:
    never = ["stream = 'plat/site-1/*' to rows-ts"]
    [(level, kind, what)] = said({"routes": {"asked": 1_200, "never_matched": never}})
    assert (level, kind) == ("warn", "route")
    assert what == (
        "none of 1,200 objects matched the route of stream = 'plat/site-1/*' to rows-ts; streams "
        f"are called like {document()['streams'][0]['stream']}"
    )
    assert said({"routes": {"asked": 1_200, "never_matched": []}}) == []
