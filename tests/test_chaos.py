"""`scripts/chaos`: its plan, what its watch sees, and which outcomes are problems."""

from collections import Counter
from pathlib import Path
from typing import Any

import orjson
import pytest

from chaos_run import plan, poison, report
from chaos_run.faults import Struck
from chaos_run.output_watch import Watch
from chaos_run.plan import ALL_KINDS, Object
from chaos_run.poison import CUT_AT, cutting
from chaos_run.row_pool import LINES, Answer, Pool
from chaos_run.run import Outcome
from chaos_run.services_under_test import Place
from chaos_run.workers import Exit, last_assignment
from penstock import config
from penstock.adapters.s3.obstore_client import ObstoreObjects
from penstock.adapters.stores.transfer import CHUNK_BYTES
from penstock.errors import Transient
from penstock.ports import Location
from penstock.tools.verify.findings import BrokenPromise, VerifyReport
from tests.adapters.stores.contract import read
from tests.adapters.stores.s3_stub import S3Stub

FIRST = LINES - 2
POOL = Pool([b"%d\n" % line for line in range(LINES)], [Answer(n, n / 100) for n in range(LINES)])
OBJECT = Object("a", "cam", 0, 100, first_line=FIRST, form="csv", at_s=0.0)


def make(seed: int, rows: int = 1_000_000, faults: int = 30) -> plan.Plan:
    return plan.make(seed, rows, faults, lines=LINES)


@pytest.mark.parametrize("rows", [20_000, 1_000_000])
def test_the_objects_hold_all_rows_and_are_of_all_sizes_and_forms(rows: int) -> None:
    objects = make(1, rows).objects
    sizes = [one.rows for one in objects]
    assert sum(sizes) == rows
    assert (min(sizes), max(sizes)) == (1, min(plan.LARGEST_ROWS, rows // 5))
    assert {one.form for one in objects} == set(plan.FORMS)
    assert {one.partition for one in objects} == set(range(plan.PARTITIONS))


def test_a_stream_has_one_partition_and_an_object_one_key() -> None:
    objects = make(2).objects
    assert len({one.key for one in objects}) == len(objects)
    assert len({(one.stream, one.partition) for one in objects}) <= plan.STREAMS


def test_a_seed_repeats_its_plan_and_another_does_not() -> None:
    assert make(3) == make(3)
    assert make(3) != make(4)


def test_thirty_faults_are_of_every_kind_and_in_the_order_of_their_time() -> None:
    for seed in range(20):
        faults = make(seed).faults
        kinds = Counter(fault.kind for fault in faults)
        assert kinds.keys() == set(ALL_KINDS)
        assert min(kinds.values()) >= 3
        assert [*faults] == sorted(faults)


def test_large_objects_are_on_the_way_when_a_fault_strikes() -> None:
    planned = make(5)
    large = [one for one in planned.objects if one.rows >= plan.LARGE_ROWS]
    assert sum(one.rows for one in large) > planned.rows / 2
    for one in large:
        wait_s = min(fault.at_s - one.at_s for fault in planned.faults if fault.at_s > one.at_s)
        assert wait_s <= plan.LEAD_S[1]


def record(row: int, label: int | None = None, offset: int = 0) -> bytes:
    line = (FIRST + row) % LINES
    prediction = {"label": line if label is None else label, "score": line / 100}
    return orjson.dumps(
        {
            "id": f"in/0/{offset}/0/{row}",
            "source": {"topic": "in", "partition": 0, "offset": offset},
            "object": {"bucket": "b", "key": "a", "version": None},
            "row": row,
            "prediction": prediction,
        }
    )


def test_rows_follow_one_another_through_the_pool_and_from_its_end_to_its_beginning() -> None:
    for first, rows in ((FIRST, 4), (3, 5), (LINES + 7, 3 * LINES)):
        wanted = [b"%d" % (n % LINES) for n in range(first, first + rows)]
        assert POOL.text(first, rows).splitlines() == wanted


def test_new_rows_and_rows_that_come_again_are_told_apart() -> None:
    watch = Watch(POOL, [OBJECT])
    for at_ms, row in enumerate([0, 1, 2, 1, 2, 3]):
        watch.take(0, at_ms, record(row))
    assert (watch.new, watch.repeated, watch.wrong) == (4, 2, [])


def test_another_row_s_answer_is_noticed() -> None:
    watch = Watch(POOL, [OBJECT])
    watch.take(0, 1, record(0))
    watch.take(0, 1, record(1, label=FIRST))
    (text,) = watch.wrong
    assert text.startswith("in/0/0/0/1: ")


POISONS = plan.make(1, 20_000, 2, lines=LINES, with_poison=True).poisons


def poison_record(key: str | None, code: str, row: int | None = None) -> bytes:
    return orjson.dumps(
        {
            "id": f"in/0/9/0/{row}",
            "source": {"topic": "in", "partition": 0, "offset": 9},
            "object": None if key is None else {"bucket": "b", "key": key, "version": None},
            "row": row,
            "prediction": None,
            "error": {"code": code, "message": "no"},
        }
    )


def answered(*, but: str | None = None, code: str = "") -> Watch:
    """All poisons by one of their codes, except one."""
    watch = Watch(POOL, [OBJECT])
    for one in POISONS:
        said = code if one.key == but else one.codes[0]
        key = None if one.key == poison.NO_OBJECT else one.key
        watch.take(one.partition, 1, poison_record(key, said))
    return watch


def test_poison_of_every_kind_is_sent_and_its_rows_do_not_count_as_rows_of_the_run() -> None:
    assert {one.key for one in POISONS} == set(poison.KINDS)
    watch = answered()
    watch.take(0, 1, poison_record(poison.CUT, "bad_row", 3))
    assert (watch.new, watch.repeated, len(watch.poison_rows)) == (0, 0, 1)
    assert make(1, 20_000, 2).poisons == ()


def test_poison_that_is_not_answered_by_its_own_code_is_a_problem() -> None:
    planned = plan.make(1, 20_000, 2, lines=LINES, with_poison=True)
    assert report.problems(outcome(plan=planned, watch=answered())) == []
    wrong = answered(but=poison.CUT, code="not_found")
    assert report.problems(outcome(plan=planned, watch=wrong)) == [
        f"{poison.CUT} was answered by not_found, not by unavailable"
    ]
    silent = report.problems(outcome(plan=planned, watch=Watch(POOL, [OBJECT])))
    assert len(silent) == len(poison.KINDS)


async def until_it_breaks(objects: ObstoreObjects, key: str) -> int:
    """How many bytes come before the connection breaks."""
    body, got = await objects.open(Location("bucket", key)), 0
    try:
        async for chunk in body:
            got += len(chunk)
    except Transient:
        return got
    finally:
        await body.aclose()
    raise AssertionError("it did not break")


async def test_the_store_cuts_one_object_always_at_the_same_byte_and_no_other() -> None:
    data = bytes(CUT_AT + 1_000_000)
    held = {poison.CUT: data, "good": data}
    async with S3Stub(held) as stub, cutting(stub.url, poison.CUT) as url:
        settings = config.Objects(endpoint_url=url, key="k", secret="s", region="us-east-1")
        objects = ObstoreObjects(settings)
        assert await read(objects, Location("bucket", "good")) == data
        assert CUT_AT - CHUNK_BYTES <= await until_it_breaks(objects, poison.CUT) <= CUT_AT
        await objects.aclose()


def test_a_recovery_is_the_first_new_row_of_those_partitions_that_was_sent_after_it_began() -> None:
    watch = Watch(POOL, [OBJECT])
    watch.take(0, 1_000, record(0))
    recovery = watch.recovery({0, 3}, since_ms=2_000)
    watch.take(1, 2_500, record(0))  # another's
    watch.take(0, 1_900, record(1))  # was on the way
    watch.take(0, 3_000, record(1))  # came before
    assert recovery.took_s is None
    watch.take(0, 9_500, record(2))
    watch.take(0, 9_900, record(3))
    assert recovery.took_s == 7.5


def test_the_most_rows_in_an_interval_are_found_wherever_it_begins() -> None:
    watch = Watch(POOL, [OBJECT])
    for row, at_ms in enumerate([0, 900, 1_000, 1_350, 5_000]):
        watch.take(0, at_ms, record(row))
    assert watch.most_rows_in(500) == 3
    assert watch.repeats_between(0, 10_000) == 0


def verdict(**changes: Any) -> VerifyReport:
    nothing: dict[str, Any] = dict.fromkeys(VerifyReport.__struct_fields__, 0)
    return VerifyReport(**nothing | {"violated": {}, "violations": ()} | changes)


def outcome(**changes: Any) -> Outcome:
    planned = make(1, 20_000, 2)
    struck = [Struck("kill", fault.at_s, 0, 1, "worker 1", [0]) for fault in planned.faults]
    fields: dict[str, Any] = {
        "plan": planned,
        "struck": struck,
        "exits": [],
        "verdict": verdict(rows=20_000, objects=len(planned.objects), duplicates=900),
        "watch": Watch(POOL, [OBJECT]),
        "took_s": 1.0,
        "most_rows": 450,
        "is_exactly_once": False,
        "unfinished": None,
    }
    return Outcome(**fields | changes)


def test_repeats_within_a_commit_interval_for_each_fault_are_allowed() -> None:
    assert report.problems(outcome()) == []
    assert report.problems(outcome(most_rows=449)) == [
        "900 duplicates, at most 898 are allowed",
    ]
    assert len(report.problems(outcome(is_exactly_once=True))) == 1


def test_lost_rows_wrong_answers_and_an_unfinished_run_are_problems() -> None:
    lost = BrokenPromise("lost", "in", 0, 7, "row 3")
    broken = verdict(rows=19_999, violated={"lost": 1}, violations=(lost,))
    watch = Watch(POOL, [OBJECT])
    watch.take(0, 1, record(0, label=3))
    problems = report.problems(outcome(verdict=broken, watch=watch, unfinished="not done in time"))
    assert [text.split(":")[0] for text in problems] == [
        "not done in time",
        "lost at in/0/7",
        "19,999 rows on the topic, 20,000 were announced",
        "another row's answer",
    ]


def test_workers_that_ended_by_themselves_are_counted_and_named() -> None:
    text = report.text(outcome(exits=[Exit("worker 2", 4, "Kafka did not take a batch")]))
    assert "1 of workers that ended by themselves" in text
    assert "worker 2 ended with 4: Kafka did not take a batch" in text


def test_only_the_workers_are_at_a_distance(tmp_path: Path) -> None:
    near = {"PENSTOCK_MODEL__URL": "http://near"}
    far = {"MODEL__URL": "http://far"}
    place = Place(near, "b", tmp_path, lambda: None, print, print, former=tmp_path, far=far)
    lives = [place.environ_of(life)["PENSTOCK_MODEL__URL"] for life in (1, 2)]
    assert lives == ["http://far", "http://far"]
    assert place.config.model.url == "http://near"


def test_the_partitions_of_a_worker_are_those_that_begin_and_those_that_go_on() -> None:
    message = "INFO assigned partitions [refs/4, refs/6] as generation 1 to 2\n"
    assert last_assignment(message) == {4, 6}
    also = "assigned partitions [refs/2] as generation 3; [refs/4, refs/6] go on\n"
    assert last_assignment(message + also) == {2, 4, 6}
    assert last_assignment(f"{message}assigned partitions none; [refs/6] go on\n") == {6}
    assert last_assignment(f"{message}assigned partitions none\n") == frozenset()
    assert last_assignment("") == frozenset()
