"""What `penstock trace` says of a frame that it did not find."""

from typing import Any

import orjson
import pytest

from penstock.adapters.http.running_worker import ReportedBatch, ReportedWay
from penstock.tools.verify.answer_lines import in_words
from penstock.tools.verify.trace import AnswerTrace, FoundRecord, Frame

SCENE: dict[str, Any] = {
    "v": 1,
    "id": "site-1/1000",
    "site": "site-1",
    "time": 1000,
    "span_ms": 0,
    "revision": 1,
    "closed_by": "complete",
    "members": {},
    "missing": 0,
}


def test_a_frame_that_was_not_found_names_the_topic_where_it_was_looked_for() -> None:
    """The file of a second model often says nothing of the scenes before it."""
    scene = FoundRecord("scenes/0/0", 1000, orjson.dumps(SCENE))
    frames = [
        Frame("cam-1", "present", "refs/0/1/0/0", None),
        Frame("cam-2", "missing", None, None),
    ]
    _, lost, absent = in_words(AnswerTrace("site-1/1000", None, None, scene, frames), "predictions")
    assert "refs/0/1/0/0, not on predictions" in lost
    assert "scenes.input_topic" in lost
    assert absent.split() == ["cam-2", "missing"]


ANSWER: dict[str, Any] = {
    "v": 1,
    "id": "refs/0/7/0/1",
    "stream": "cam-1",
    "source": {"topic": "refs", "partition": 0, "offset": 7},
    "object": {"bucket": "b", "key": "k.csv", "version": None},
    "row": 1,
    "model": "rows",
    "model_version": "1.0",
    "prediction": 3,
}


def test_an_answer_tells_its_model_its_commit_and_where_the_rest_is_kept() -> None:
    asked = FoundRecord("refs/0/7", 1_000, b"{}")
    answer = FoundRecord("predictions/0/70", 1_037, orjson.dumps(ANSWER))
    plain = AnswerTrace("refs/0/7/0/1", answer, asked, None, [], None, 8, way="nobody answers")
    lines = list(in_words(plain, "predictions"))
    assert "predictions/0/70, 37 ms later" in lines[1]
    assert lines[3] == "model     rows, version 1.0"
    assert lines[4] == "committed yes: the group is at 8"
    assert lines[5] == "worker    unknown: nobody answers"
    sampled = plain._replace(next_offset=7, trace_id="4bf9")
    *_, committed, _, spans = in_words(sampled, "predictions")
    assert committed == "committed not yet: the group is at 7"
    assert spans == "trace     4bf9"


@pytest.mark.parametrize(
    ("batch", "said"),
    [
        ((64, 8, 1), ["batch     64 rows of 8 objects in one request"]),
        ((1, 1, 3), ["batch     1 rows of one object in one request; request 3 of its batch"]),
        (None, []),
    ],
)
def test_a_worker_that_remembers_the_object_tells_its_times_and_its_batch(
    batch: tuple[int, int, int] | None, said: list[str]
) -> None:
    asked = FoundRecord("refs/0/7", 1_000, b"{}")
    answer = FoundRecord("predictions/0/70", 1_037, orjson.dumps(ANSWER))
    times_ms = {"kafka_in": 2.0, "call": 31.5, "hold_back": 0.0}
    way = ReportedWay("h", 12, 1_037.5, times_ms, ReportedBatch(*batch) if batch else None)
    trace = AnswerTrace("refs/0/7/0/1", answer, asked, None, [], way=way)
    lines = list(in_words(trace, "predictions"))[5:]
    assert lines == [
        "worker    process 12 of h",
        "times     in 2.0 ms, call 31.5 ms, hold-back 0.0 ms; 1,037.5 ms to the end of its object",
        *said,
    ]


def test_a_line_feed_in_a_key_makes_no_line_of_its_own() -> None:
    key = "k.csv\nmodel     forged, version 9"
    answer = orjson.dumps(ANSWER | {"object": ANSWER["object"] | {"key": key}})
    answered, asked = FoundRecord("predictions/0/70", 1, answer), FoundRecord("refs/0/7", 1, b"{}")
    trace = AnswerTrace("refs/0/7/0/1", answered, asked, None, [])
    lines = list(in_words(trace, "predictions"))
    assert any(r"k.csv\nmodel     forged" in line for line in lines)
    assert not any("\n" in line for line in lines)
