"""Objects that several models answer, judged: what a pipeline leaves, and what is wrong in it."""

from dataclasses import replace
from typing import Any

import orjson
import pytest

from penstock.core.routing.model_routes import ModelRoute
from penstock.ports import Commit
from penstock.tools.simulation.virtual_time import run
from penstock.tools.verify.findings import VerifyReport
from penstock.tools.verify.read_topics import SeveralJudges
from penstock.tools.verify.scope_and_input_topic import Scope
from tests.stages.test_result_objects import writing
from tests.support.pipelines import DEAD_LETTERS, World, csv, run_to_end

BOTH = ModelRoute(("rows", "a"), stream="x/*")


@pytest.fixture
def world() -> World:
    found = World().with_models(["a"], BOTH)
    found.announce("1.csv", csv(3), stream="x/1")
    found.announce("2.csv", csv(2), stream="s")
    found.announce("3.csv", None, stream="x/2")
    found.announce("4.csv", csv(2), stream="x/1", model="a")
    found.source.append(b"no reference")
    value = {
        "objects": [
            {"bucket": "b", "key": key, "stream": stream}
            for key, stream in (("1.csv", "x/1"), ("2.csv", "s"), ("4.csv", "x/2"))
        ]
    }
    found.source.append(orjson.dumps(value))
    run(run_to_end(found, 6))
    return found


def judged(world: World, committed: Commit | None = None) -> VerifyReport:
    return judge_of(world, committed).report()


def judge_of(world: World, committed: Commit | None = None, **changes: Any) -> SeveralJudges:
    topic = world.sink.topics
    routes = world.settings.routes
    assert routes is not None
    end = len(world.source.records[0])
    scope = Scope(
        input_topic="refs",
        output_topic="predictions",
        dead_letter_topic=DEAD_LETTERS,
        spans={0: (0, end)},
        until={0: end},
        committed={0: committed or world.source.committed[0]},
        partition_of=lambda partition, _: partition,
        by_stream=False,
        exactly_once=False,
        markers=True,
    )
    judge = SeveralJudges(replace(scope, **changes), routes)
    for record in world.source.records[0]:
        judge.reference(0, record.offset, record.key, record.value)
    for offset, (key, value) in enumerate(topic["predictions"][0]):
        judge.answer(0, offset, key, value)
    for partition, letters in topic[DEAD_LETTERS].items():
        for offset, (key, value) in enumerate(letters):
            judge.dead_letter(partition, offset, key, value)
    return judge


def test_what_the_pipeline_answers_is_in_order_and_complete(world: World) -> None:
    report = judged(world)
    assert report.ok, report.violations
    assert report.references == 6
    assert report.rows == 2 * 3 + 2 + 2 + 2 * 3 + 2 + 2 * 2
    assert report.dead_letters == 3


def test_an_answer_that_one_of_them_owes_is_missed(world: World) -> None:
    answers = world.sink.topics["predictions"][0]
    lost = next(
        place
        for place, (_, value) in enumerate(answers)
        if b'"id":"refs/0/0/0/1"' in value and b'"model":"a"' in value
    )
    del answers[lost]
    assert judged(world).violated.keys() >= {"lost"}


def test_an_answer_that_one_of_them_gives_twice_out_of_order_is_noticed(world: World) -> None:
    answers = world.sink.topics["predictions"][0]
    of_a = [place for place, (_, value) in enumerate(answers) if b'"model":"a"' in value]
    answers[of_a[0]], answers[of_a[1]] = answers[of_a[1]], answers[of_a[0]]
    assert "disorder" in judged(world).violated


def test_results_of_each_model_are_its_own_to_be_judged() -> None:
    found = writing(
        World().with_models(["a"], BOTH), template="s3://results/{model}/{bucket}/{key}.jsonl"
    )
    found.announce("1.csv", csv(3), stream="x/1")
    found.announce("2.csv", csv(2), stream="s")
    run(run_to_end(found, 2))
    judge = judge_of(found, of_rows=False, of_objects=True)
    urls = [claims[-1].result.url for _, claims in judge.claims]
    assert sorted(urls) == [
        "s3://results/a/b/1.csv.jsonl",
        "s3://results/rows/b/1.csv.jsonl",
        "s3://results/rows/b/2.csv.jsonl",
    ]
    for one, claims in judge.claims:
        one.result(claims, "nothing is there")
    assert judge.report().violated == {"bad_result": 3}
