"""What is told of a worker: one cause, with its stream or service, and nothing that follows from
it.
"""

from typing import Any

import pytest

from penstock.core.diagnosis.diagnose import bound_by, diagnose, with_diagnosis
from penstock.core.diagnosis.limit import DOUBT_S
from penstock.core.diagnosis.problem import MOST_NAMED
from penstock.core.diagnosis.streams import NEWS_MS
from tests.support.status_documents import document, letter, stopped, stream
from tests.support.troubles import CAM, TROUBLES, away, busy, cpu, flow, late, troubled


@pytest.mark.parametrize("cause", TROUBLES)
def test_each_cause_is_told_alone(cause: str) -> None:
    trouble = TROUBLES[cause]
    problems = diagnose(troubled(cause))
    [problem] = problems
    assert problem.what.lower().startswith(trouble.line.lower())
    assert (problem.kind, problem.stream, problem.service) == (
        trouble.kind,
        trouble.stream,
        trouble.service,
    )
    assert bound_by(problems) == trouble.bound_by
    assert problem.do


def test_a_worker_without_a_processor_only_seems_to_miss_its_services() -> None:
    whole = document() | away("Kafka broker")

    def told(**changes: Any) -> list[str]:
        return [one.kind for one in diagnose(whole | late(**changes))]

    held_up = cpu(ran=0.02, throttled=1.0, quota=0.02)
    assert told(busy=busy(loop=1.0), cpu=held_up) == ["starved"]
    # The loop waits: the broker is away.
    assert told(busy=busy(loop=0.1), cpu=held_up) == ["away"]
    assert told(busy=busy(loop=1.0), cpu=cpu(ran=0.21)) == ["away"]


def test_a_stream_that_fell_silent_is_told_beside_a_worker_that_is_late() -> None:
    silence = troubled("one silent")["silence"]
    starved = document() | late(busy=busy(loop=1.0), cpu=cpu(ran=0.2))

    def told(beyond_s: float) -> list[str]:
        streams = [one | {"beyond_s": beyond_s} for one in silence["streams"]]
        whole = starved | {"silence": silence | {"streams": streams}, "lag_age_s": 4.0}
        return [one.kind for one in diagnose(whole)]

    assert told(5.0) == ["starved", "silent"]
    # Perhaps its records wait in Kafka.
    assert told(3.0) == ["starved"]


BEHIND = "site-1/cam-2"


@pytest.mark.parametrize(
    ("cause", "states"),
    [
        ("slow camera", {CAM: "behind"}),
        ("stopped line", {CAM: "stopped", BEHIND: f"held back by {CAM}"}),
        ("model too slow", {"site-1/cam-1": "behind"}),
        ("one silent", {}),
    ],
)
def test_the_states_of_streams_do_not_contradict_the_first_line(
    cause: str, states: dict[str, str]
) -> None:
    whole = troubled(cause)
    shown = with_diagnosis(whole, diagnose(whole))["streams"]
    found = {one["stream"]: one["state"] for one in shown if one["level"] in ("warn", "bad")}
    assert states.items() <= found.items()
    assert cause == "model too slow" or len(found) == len(states)


def test_the_state_of_a_stream() -> None:
    def state(changes: dict[str, Any], one: dict[str, Any]) -> str:
        whole = document() | {"streams": [one]} | changes
        return str(with_diagnosis(whole, [])["streams"][0]["state"])

    assert state({}, stream(CAM)) == "on time"
    assert state({}, stream(CAM, p99_ms=None, now_p99_ms=None)) == "quiet"
    # What is over the bound a little is on time, as the first line says.
    assert state({}, stream(CAM, p99_ms=80.0, now_p99_ms=80.0)) == "on time"
    assert state({}, stream(CAM, now_p99_ms=800.0)) == "slow"
    assert state({"settled_s": 3.0}, stream(CAM, age_s=30.0)) == "starting"
    assert state({"letters": [letter(CAM)]}, stream(CAM, rejected=1)) == "refused: bad_row"
    assert state({}, stream(CAM, rejected=1, last_code="bad_row")) == "on time"
    assert state({}, stream(CAM, is_silent=True, every_s=0.3)) == "silent; came each 300 ms"
    held = {"by": "b/k", "stream": "cam-1", "stage": "download", "objects": 4}
    behind = [assignment | {"held_back": held} for assignment in document()["assignments"]]
    late = stream(CAM, age_s=4.0)
    assert state({"assignments": behind}, late) == "held back by cam-1"
    assert state({"assignments": behind}, late | {"stream": "cam-1"}) == "behind"


def test_a_stopped_line_tells_which_streams_stand_behind_it_and_since_when() -> None:
    [problem] = diagnose(troubled("stopped line"))
    assert problem.holds == (
        "it holds back 1 other stream: site-1/cam-2 of its partition, for 90 s"
    )
    alone = troubled("stopped line")
    # With order by stream, it holds back none.
    alone["assignments"][0]["is_stopped"] = False
    assert diagnose(alone)[0].holds is None


def test_nothing_measured_is_judged_while_the_worker_starts() -> None:
    for cause, trouble in TROUBLES.items():
        problems = diagnose(troubled(cause) | {"settled_s": 9.0})
        is_measured = trouble.kind in (
            "model", "store", "worker", "starved", "skew", "buffer", "late", "backlog", "costly",
        )  # fmt: skip
        assert bool(problems) != is_measured, cause
    assert diagnose(document() | {"assignments": [], "uptime_s": 3.0}) == []


def said(changes: dict[str, Any]) -> list[tuple[str, str, str]]:
    problems = diagnose(document() | changes)
    assert all(problem.do for problem in problems)
    return [(problem.level, problem.kind, problem.what) for problem in problems]


def test_all_is_well() -> None:
    assert said({}) == []


def test_figures_that_are_not_known_yet_say_nothing() -> None:
    known = ("assignments", "uptime_s", "now_ms")
    assert diagnose({key: document()[key] for key in known}) == []
    assert said({"flow": None, "streams": None, "letters": [], "model": None}) == []


def test_a_stopped_line_is_told_with_how_to_go_on() -> None:
    [problem] = diagnose(document() | {"assignments": [stopped("cam-7")]})
    assert problem.what == (
        "cam-7 stands still at refs/3, offset 12, row 4: 2 of its objects failed in a row; now "
        "bad_row: 'oops' is not a number"
    )
    assert "penstock dlq resume cam-7" in problem.do
    assert "penstock dlq skip cam-7" in problem.do
    assert (problem.level, problem.stream) == ("bad", "cam-7")


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


def test_a_store_that_answers_and_sends_nothing_is_said_to_fail() -> None:
    outage = {"service": "object store", "away_s": 12.0, "why": "it sends no object", "fails": True}
    assert said({"outages": [outage]}) == [
        ("bad", "away", "the object store has failed for 12.0 s: it sends no object")
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
    # It is back from an outage in which it answered nothing, and got no rows yet.
    back = model | {"answers_for_s": 1.0}
    [(_, kind, _)] = said({"outages": [outage], "model": back})
    assert kind == "away"
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
            "cam-7: its objects are refused, bad_row: 'oops' is not a number",
        )
    ]
    [(_, _, what)] = said({"letters": [letter("cam-7", row=3)] * 5})
    assert what == "cam-7: its rows are refused, bad_row: 'oops' is not a number"


def test_old_rejections_are_no_news_and_many_streams_are_told_together() -> None:
    old = letter("cam-7")
    old["at_ms"] -= NEWS_MS + 1
    assert said({"letters": [old]}) == []
    many = [letter(f"cam-{number % 8}") for number in range(20)]
    [(_, _, what)] = said({"letters": many})
    assert what == (
        "20 objects and rows of 8 streams or more were refused just now; the newest: cam-0, "
        "bad_row: 'oops' is not a number"
    )


def test_answers_beyond_the_bound_are_told_with_where_their_time_goes() -> None:
    [(level, kind, what)] = said(flow(over_bound=0.25, over_bound_objects=40))
    assert (level, kind) == ("warn", "over_bound")
    assert what == (
        "25 % of the objects took longer than the bound of 50 ms, most of it in the model: 9 ms on "
        "average"
    )
    # The window is learned so that one in a hundred does.
    assert said(flow(over_bound=0.03, over_bound_objects=40)) == []
    assert said(flow(over_bound=0.25, over_bound_objects=3)) == []
    # One stutter.
    assert said(flow(over_bound=0.25, over_bound_objects=40, over_bound_for_s=1.0)) == []


def test_the_limit_is_bad_unless_the_backlog_shrinks() -> None:
    [(level, _, _)] = said(late(busy=busy(calls=1.0)))
    assert level == "bad"
    [(level, kind, what)] = said(late(busy=busy(calls=1.0), drain_s=8.0))
    assert (level, kind) == ("warn", "model")
    assert what.endswith("4.0 of 4 calls busy, 9 ms each; the backlog is done in 8.0 s")


def test_a_model_whose_calls_are_not_busy_is_no_limit_but_slow() -> None:
    way = document()["flow"]["way_ms"] | {"call": 1_200.0}
    [(_, kind, what)] = said(late(way_ms=way, busy=busy(calls=0.3)))
    assert (kind, what) == ("model", "the model is slow, 1.2 s each, with 1.2 of 4 calls busy")


def test_a_costly_stream_is_named_only_if_others_wait_for_its_rows() -> None:
    whole = troubled("costly stream")
    [problem] = diagnose(whole)
    assert problem.level == "bad"
    assert (
        problem.holds
        == "12 of the shown streams wait for its rows, which are 88 % of the model's time"
    )
    # It is the cause also while a call is free, and when the buffer has filled behind it.
    full = document()["flow"]["busy"] | {"calls": 0.5, "buffer": 1.0}
    [problem] = diagnose(whole | {"flow": whole["flow"] | {"busy": full}})
    assert problem.kind == "costly"
    alone = [stream(CAM, age_s=4.0), *document()["streams"]]
    for changes in (
        {"costly": None},
        {"costly": whole["costly"] | {"times": 3.0}},
        {"costly": whole["costly"] | {"share": 0.05}},
        # Its last slow call was before all that is late now.
        {"costly": whole["costly"] | {"ago_s": 11.0}},
        # Objects are late that came after its last slow call.
        {
            "costly": whole["costly"] | {"ago_s": 4.0},
            "flow": whole["flow"] | {"over_bound": 0.0, "moving_s": 3.0, "lag_s": 0.0},
        },
        # A call with its rows takes hardly longer than others, and the model has calls to spare.
        {
            "costly": whole["costly"] | {"beyond_s": 0.005},
            "flow": whole["flow"] | {key: document()["flow"][key] for key in ("busy", "way_ms")},
        },
        # The others are on time.
        {"streams": alone},
        # Something else is full.
        {"flow": whole["flow"] | {"busy": busy(publishing=1.0)}},
        {"flow": whole["flow"] | {"busy": busy(loop=1.0)}},
    ):
        assert "costly" not in [one.kind for one in diagnose(whole | changes)], changes


def test_a_costly_stream_that_is_asked_apart_is_named_if_it_is_late_itself() -> None:
    whole = troubled("costly stream")
    alone = [stream(CAM, age_s=4.0), *document()["streams"]]
    apart = {"costly": whole["costly"] | {"is_apart": True}, "streams": alone}
    [problem] = diagnose(whole | apart)
    assert problem.what == f"{CAM} takes the model 1.5 s a row, 55 x the others: it is asked apart"
    on_time = {"streams": document()["streams"]}
    assert "costly" not in [one.kind for one in diagnose(whole | apart | on_time)]
    # After a start the streams' latencies are not known, but that objects are late is.
    unknown = {"streams": [row | {"now_p99_ms": None} for row in document()["streams"]]}
    assert "costly" in [one.kind for one in diagnose(whole | apart | unknown)]


def test_a_dear_row_of_less_than_ten_milliseconds_has_digits() -> None:
    whole = troubled("costly stream")
    [problem] = diagnose(whole | {"costly": whole["costly"] | {"row_s": 0.0044}})
    assert problem.what.startswith(f"{CAM} takes the model 4.4 ms a row")


def test_while_a_service_is_in_doubt_nothing_else_is_blamed() -> None:
    full = busy(calls=1.0)
    told = [[one.kind for one in diagnose(document() | late(busy=full, doubted_s=doubted_s))]
            for doubted_s in (0.0, 2.1, DOUBT_S)]  # fmt: skip
    assert told == [["model"], [], ["model"]]
    starved = late(busy=busy(loop=1.0), cpu=cpu(ran=0.2), doubted_s=2.1)
    assert [one.kind for one in diagnose(document() | starved)] == ["starved"]


@pytest.mark.parametrize("parts", [{"decoders": 1.0, "fetchers": 1.0}, {"fetchers": 1.0}])
def test_decoders_or_reads_that_one_stream_keeps_busy_are_not_too_few(
    parts: dict[str, float],
) -> None:
    streams = [stream(CAM, age_s=4.2), *document()["streams"]]
    whole = flow(busy=busy(**parts), moving_s=4.2) | {"streams": streams}
    [problem] = diagnose(document() | whole)
    assert (problem.kind, problem.stream) == ("late", CAM)


def test_decoders_that_limit_the_worker_are_told() -> None:
    [(_, _, what)] = said(late(busy=busy(decoders=0.98)))
    assert what == "this worker is the limit: its decoders are 98 % busy"


def test_partitions_of_the_same_number_in_two_topics_are_told_apart() -> None:
    parts = [
        assignment | {"topic": topic}
        for topic in ("a", "b")
        for assignment in document()["assignments"]
    ]
    hot = {"lag": 9_000, "committed_per_s": 300.0}
    found = late() | {
        "assignments": [parts[0] | hot, *(part | {"lag": 10} for part in parts[1:])],
        "streams": [stream("cam-1", topic="b", rows_per_s=9.0), stream("cam-2", topic="a")],
    }
    [(_, _, what)] = said(found)
    assert what == "partition a/0 has 99 % of all that is owed, most of it of cam-2"
    halted = stopped("cam-7")
    other = halted | {"topic": "other", "stopped": []}
    [(_, _, what)] = said({"assignments": [halted, other]})
    assert what.startswith(f"cam-7 stands still at {halted['topic']}/3, ")


def test_a_store_that_takes_most_of_the_way_is_slow_though_it_limits_nothing() -> None:
    way = document()["flow"]["way_ms"] | {"fetch": 1200.0}
    slow = [stream(f"cam-{number}", now_p99_ms=1_400.0) for number in range(3)]
    # The bound is so high that they are on time.
    known = {"bound_ms": 2_000.0, "streams_known": 3}
    assert said(flow(way_ms=way) | known | {"streams": slow}) == [
        ("warn", "store", "the store is slow, 1.2 s until its first answer")
    ]
    # One stream with slow objects makes the mean slow, too.
    assert said(flow(way_ms=way) | known | {"streams": [slow[0], stream("a"), stream("b")]}) == []


def test_a_store_is_slow_if_it_is_slower_than_itself() -> None:
    """A store that takes 34 ms is far, not slow; one that usually takes 12 ms is."""
    way = document()["flow"]["way_ms"] | {"fetch": 34.0}
    [reads] = document()["stores"]
    slow = {"stores": [reads | {"is_slow": True, "answer_ms": 34.0, "usual_ms": 12.0}]}
    # Nobody minds while answers are on time.
    assert said(flow(way_ms=way) | slow) == []
    [(level, kind, what)] = said(late(way_ms=way) | slow)
    assert (level, kind) == ("bad", "store")
    assert what == "the store is slow, 34 ms until its first answer; 12 ms is usual"


def test_if_only_a_few_streams_are_beyond_the_bound_they_are_named() -> None:
    few = [stream("cam-7", now_p99_ms=180.0), *[stream(f"s{number}") for number in range(9)]]
    over = flow(over_bound=0.25, over_bound_objects=40, over_bound_for_s=3.0)
    [(_, _, what)] = said(over | {"streams": few, "streams_known": 10})
    assert what.endswith(" ms, those of cam-7")
    all_of_them = [one | {"now_p99_ms": 180.0} for one in few]
    [(_, _, what)] = said(over | {"streams": all_of_them, "streams_known": 10})
    assert "most of it in " in what


def test_a_worker_that_waits_for_a_service_at_its_start_does_not_wait_for_a_partition() -> None:
    outage = {"service": "object store", "away_s": 6.0, "why": "no byte of an answer came"}
    [(_, kind, _)] = said({"assignments": [], "uptime_s": 30.0, "outages": [outage]})
    assert kind == "away"


def test_one_late_stream_is_named_and_so_are_those_with_it() -> None:
    late = stream("cam-7", age_s=4.2)
    assert said({"streams": [late], "streams_known": 12}) == [
        ("warn", "late", "cam-7 is 4.2 s behind; the other 11 streams are on time")
    ]
    others = [stream(f"cam-{number}", age_s=3.0) for number in range(2)]
    [(_, _, what)] = said({"streams": [*others, late], "streams_known": 12})
    assert what == "cam-7 is 4.2 s behind, and 2 more of refs/0 wait with it"
    elsewhere = [other | {"partition": 1} for other in others]
    [(_, _, what)] = said({"streams": [*elsewhere, late], "streams_known": 12})
    assert what == "cam-7 is 4.2 s behind, and 2 more of 12 streams are late"
    slow = stream("cam-9", now_p99_ms=1500.0)
    [(_, _, what)] = said({"streams": [slow], "streams_known": 1})
    assert what == "cam-9 is slow, its p99 is 1.5 s"
    [(level, _, _)] = said({"streams": [stream("cam-7", age_s=90.0)]})
    assert level == "bad"
    # What most streams share is not about one of them, until nothing else explains it.
    assert said({"streams": [slow] * 3, "streams_known": 4}) == []
    assert said({"streams": [late] * 3, "streams_known": 4}) == []
    [(_, kind, _)] = said({"streams": [late | {"age_s": 20.0}] * 3, "streams_known": 4})
    assert kind == "late"


@pytest.mark.parametrize(
    ("stage", "advice"), [("download", "slow to come"), ("predict", "does the model take long")]
)
def test_the_stream_that_holds_the_others_back_is_named_with_its_object(
    stage: str, advice: str
) -> None:
    first, *others = document()["assignments"]
    held = {"by": "b/slow.csv", "stream": "cam-1", "stage": stage, "objects": 7}
    behind = [stream("cam-2", age_s=9.0), stream("cam-1", age_s=8.0)]
    whole = {"assignments": [first | {"held_back": held}, *others], "streams": behind}
    [problem] = diagnose(document() | whole)
    assert (problem.kind, problem.stream) == ("late", "cam-1")
    assert advice in problem.do
    assert problem.holds is not None
    assert problem.holds.startswith(
        f"7 answered objects wait behind b/slow.csv, which is at {stage}"
    )


def test_streams_of_a_mere_backlog_are_not_blamed() -> None:
    behind = [stream("cam-7", age_s=17.8), stream("cam-8", age_s=17.0, partition=1)]
    [(level, kind, what)] = said(flow(moving_s=17.8, drain_s=9.0) | {"streams": behind})
    assert (level, kind) == ("warn", "backlog")
    assert what == "a backlog is worked off, done in 9.0 s"


def test_lateness_by_an_outage_is_told_as_the_outage() -> None:
    outage = {"service": "object store", "away_s": 9.0}
    found = said({"streams": [stream("cam-7", age_s=9.0)], "outages": [outage]})
    assert [kind for _, kind, _ in found] == ["away"]


def test_a_service_is_named_apart_from_the_sentence() -> None:
    outage = {"service": "model server", "away_s": 9.0}
    model = document()["model"]
    for asked_s, kind in ((2.0, "unanswered_rows"), (12.0, "away")):
        [one] = diagnose(document() | {"outages": [outage], "model": model | {"asked_s": asked_s}})
        assert (one.kind, one.service, one.stream) == (kind, "model server", None)


def test_a_worker_without_a_partition_says_so() -> None:
    [problem] = diagnose(document() | {"assignments": [], "uptime_s": 13.0})
    assert (problem.level, "joins its group" in problem.do) == ("warn", True)
    [problem] = diagnose(document() | {"assignments": [], "uptime_s": 300.0})
    assert "in reserve" in problem.do


def test_what_has_nothing_to_do_with_the_cause_is_told_beside_it() -> None:
    both = away("object store") | {"letters": [letter("cam-9")], "assignments": [stopped(CAM)]}
    assert [kind for _, kind, _ in said(both)] == ["stopped", "away", "refused"]
    never = {"routes": {"asked": 10, "never_matched": ["x"]}}
    assert [level for level, _, _ in said(away("object store") | never)] == ["bad", "warn"]


def test_names_and_messages_from_outside_stay_short_and_on_one_line() -> None:
    bad = letter("cam\n7" + "x" * 500)
    bad["message"] = "a\nb" + "y" * 5_000
    [(_, _, what)] = said({"letters": [bad]})
    assert what.isprintable()
    assert "\\n" not in what
    assert len(what) < 500


def test_the_problems_of_several_members_are_told_with_their_number() -> None:
    silent = {"process": 0, "restarts": 1, "up": False, "error": "it does not run"}
    late = document() | {"streams": [stream("cam-7", age_s=4.2)], "streams_known": 2}
    late |= {"process": 1, "restarts": 0, "up": True}
    reserve = document() | {"assignments": [], "process": 2, "restarts": 0, "up": True}
    members = [
        one | {"problems": [each._asdict() for each in diagnose(one)]} for one in (late, reserve)
    ]
    problems = diagnose({"processes": [silent, *members]})
    assert [problem.what for problem in problems] == [
        "process 0: it does not run",
        "process 1: cam-7 is 4.2 s behind; the other stream is on time",
    ]
    [alone] = diagnose({"processes": [silent]})
    assert alone.what == "the worker: it does not run"


def test_a_route_that_nothing_matches_is_told_with_how_streams_are_called() -> None:
    never = ["stream = 'plat/site-1/*' to rows-ts"]
    [(level, kind, what)] = said({"routes": {"asked": 1_200, "never_matched": never}})
    assert (level, kind) == ("warn", "route")
    assert what == (
        "none of 1,200 objects matched the route of stream = 'plat/site-1/*' to rows-ts; streams "
        f"are called like {document()['streams'][0]['stream']}"
    )
    assert said({"routes": {"asked": 1_200, "never_matched": []}}) == []
