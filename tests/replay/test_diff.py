"""Answers of then and of now, compared row by row, from what stands on the two topics."""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

import orjson
import pytest

from penstock import config
from penstock.config.model_sections import NamedModel
from penstock.core.comparing.comparison import Agreement
from penstock.errors import Fatal
from penstock.messages.command_json import Difference
from penstock.ports import Where
from penstock.tools.replay.decided_range import OffsetSpan
from penstock.tools.replay.diff import NOW, THEN, Pairing, check
from penstock.tools.replay.run_replay import lines
from penstock.tools.replay.worker_settings import Plan, ReplayOptions, plan

OPTIONS = ReplayOptions("v2", "1h", 5)
SPANS = {Where("refs", 0): OffsetSpan(0, 1_000)}
MISSING: dict[str, Any] = {"error": {"code": "not_found", "message": "gone"}}


def planned(live: config.Config | None = None, **options: Any) -> Plan:
    return plan(live or config.Config(), replace(OPTIONS, **options))


def record(offset: int, prediction: Any, row: int | None = 0, **more: Any) -> bytes:
    said = {
        "id": f"refs/0/{offset}/0/{'-' if row is None else row}",
        "stream": f"s{offset % 10}",
        "row": row,
        "model": "rows",
        "object": {"bucket": "b", "key": f"{offset}.csv"},
        "prediction": prediction,
    }
    return orjson.dumps(said | more)


def compared(then: Iterable[bytes], now: Iterable[bytes], by: Plan | None = None) -> Difference:
    pairing = Pairing(by or planned(), SPANS, Agreement(1e-6))
    pairing.begin(frozenset([0]))
    for side, values in ((THEN, then), (NOW, now)):
        pairing.take(side, list(values))
    pairing.end()
    return pairing.report()


def scores(values: Sequence[float]) -> list[bytes]:
    return [record(offset, {"score": score}) for offset, score in enumerate(values)]


def test_equal_answers_are_equal_however_they_are_written() -> None:
    spaced = [score.replace(b'"score":', b'"score" : ') for score in scores([0.5] * 100)]
    difference = compared(scores([0.5] * 100), spaced)
    assert (difference.rows, difference.agreed, difference.equal, difference.agreement) == (
        100,
        100,
        100,
        1.0,
    )
    assert not difference.examples
    assert not difference.worst


def test_noise_agrees_and_is_not_equal() -> None:
    difference = compared(scores([0.5] * 10), scores([0.5 + 1e-9] * 10))
    assert (difference.agreed, difference.equal) == (10, 0)


def test_a_planted_one_percent_is_found_within_its_interval_by_its_streams() -> None:
    now = [0.5] * 1_000
    now[::100] = [0.9] * 10
    difference = compared(scores([0.5] * 1_000), scores(now))
    assert (difference.rows, difference.agreed) == (1_000, 990)
    assert difference.low < 0.99 < difference.high < 1.0
    assert [(one.stream, one.rows, one.agreed) for one in difference.worst] == [("s0", 100, 90)]
    assert difference.examples[0].id == "refs/0/0/0/0"
    assert (difference.examples[0].then, difference.examples[0].now) == (
        {"score": 0.5},
        {"score": 0.9},
    )


def test_errors_are_compared_by_their_code() -> None:
    other = {"error": {"code": "not_found", "message": "another text"}}
    gone = record(0, None, None, **MISSING)
    same = compared([gone], [record(0, None, None, **other)])
    assert (same.rows, same.same_error, same.examples) == (0, 1, [])
    differs = compared([record(0, {"score": 1.0})], [record(0, None, **MISSING)])
    assert (differs.rows, differs.failed_now) == (0, 1)
    assert differs.examples[0].now == {"error": "not_found"}


def test_agreement_is_of_the_rows_that_both_predicted() -> None:
    """Rows that fail in the same way both times would flatter a model that predicts nothing."""
    other: dict[str, Any] = {"error": {"code": "bad_row", "message": "x"}}
    then = [record(offset, 1) for offset in range(4)]
    now = [record(0, 1), record(1, 2), record(2, None, **MISSING), record(3, 1)]
    then += [record(offset, None, **MISSING) for offset in range(4, 8)]
    now += [record(offset, None, **MISSING) for offset in (4, 5)]
    now += [record(6, None, **other), record(7, 1)]
    difference = compared(then, now)
    assert (difference.rows, difference.agreed) == (3, 2)
    assert (difference.same_error, difference.other_error) == (2, 1)
    assert (difference.failed_then, difference.failed_now) == (1, 1)
    assert [one.stream for one in difference.worst] == ["s1", "s2", "s7"]
    text = " ".join(lines(difference))
    assert "2 of 3 rows that were predicted then and now agree" in text
    assert "2 rows failed both times with the same code" in text


def test_an_example_tells_whose_row_it_is() -> None:
    difference = compared([record(5, 1)], [record(5, 2, columns={"order_id": 77})])
    (example,) = difference.examples
    assert example.object == {"bucket": "b", "key": "5.csv"}
    assert example.columns == {"order_id": 77}


def test_what_only_one_of_the_topics_has_is_counted_apart() -> None:
    difference = compared(scores([0.5] * 10), scores([0.5] * 7))
    assert (difference.rows, difference.only_then, difference.only_now) == (7, 3, 0)


def test_markers_and_what_is_outside_the_range_count_nothing() -> None:
    outside = [record(1_000, 1), record(2, None, None), b"no json"]
    difference = compared([*outside, record(7, 1)], [record(7, 1), *outside])
    assert (difference.rows, difference.only_then, difference.only_now) == (1, 0, 0)


def test_several_models_are_each_compared_with_themselves() -> None:
    then = [record(0, 1, model="a"), record(0, 2, model="b")]
    now = [record(0, 2, model="b"), record(0, 1, model="a")]
    assert (compared(then, now).rows, compared(then, now).equal) == (2, 2)


def test_one_model_is_compared_with_the_one_that_is_named() -> None:
    then = [record(0, 1, model="a"), record(0, 2, model="b")]
    by = planned(model="c", against="b")
    difference = compared(then, [record(0, 2, model="c")], by)
    assert (difference.rows, difference.equal, difference.only_then) == (1, 1, 0)


def test_where_several_answered_it_must_be_said_whose_answers_are_meant() -> None:
    several = config.Config(
        models=[NamedModel(name="b")], routes=[config.Route(model=["rows", "b"])]
    )
    check(planned(several))
    check(planned(several, model="c", against="b"))
    with pytest.raises(Fatal, match="--against"):
        check(planned(several, model="c"))


def test_behind_the_range_nothing_more_of_then_is_read() -> None:
    pairing = Pairing(planned(), SPANS, Agreement())
    pairing.begin(frozenset([0]))
    pairing.take(THEN, [record(999, 1)])
    assert not pairing.is_behind_the_range
    pairing.take(THEN, [record(1_000, 1)])
    assert pairing.is_behind_the_range
