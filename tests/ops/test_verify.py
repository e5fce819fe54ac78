"""The judge names each kind of broken promise, and finds nothing where nothing is broken."""

import msgspec
import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from consumers.ops.verify_findings import render
from tests.ops.verify_world import Topics, changed, frame, rows_of


def three_objects() -> Topics:
    """Offsets 0 to 2 with 4 rows each, all answered and committed."""
    topics = Topics()
    for _ in range(3):
        topics.answer(4)
    topics.committed[0] = 3
    return topics


def test_complete_and_ordered_topics_are_verified() -> None:
    report = three_objects().report()
    assert report.ok
    assert (report.counts.references, report.counts.rows, report.counts.duplicates) == (3, 12, 0)


@pytest.mark.parametrize("row", [0, 1, 2])
def test_a_lost_row_is_named_at_its_reference(row: int) -> None:
    topics = three_objects()
    del topics.output[0][4 + row]
    (violation,) = topics.report().first[:1]
    assert (violation.kind, violation.topic, violation.offset) == ("lost_rows", "refs", 1)
    assert violation.found == f"rows {row} missing"


def test_a_lost_tail_is_named() -> None:
    topics = three_objects()
    del topics.output[0][6:8]
    topics.committed.clear()
    assert topics.kinds() == {"lost_tail": 1}


def test_a_lost_reference_is_named() -> None:
    topics = three_objects()
    del topics.output[0][4:8]
    topics.committed.clear()
    (violation,) = topics.report().first
    assert (violation.kind, violation.offset) == ("lost_reference", 1)


def test_a_commit_ahead_of_the_answers_is_named() -> None:
    topics = three_objects()
    del topics.output[0][4:8]
    topics.committed[0] = 2
    assert topics.kinds() == {"lost_reference": 1, "commit_ahead": 1}
    topics.committed[0] = 1
    assert topics.kinds() == {"lost_reference": 1}


def test_swapped_rows_are_out_of_order() -> None:
    topics = three_objects()
    output = topics.output[0]
    output[5], output[6] = output[6], output[5]
    (violation,) = topics.report().first
    assert (violation.kind, violation.topic, violation.offset) == ("out_of_order", "predictions", 6)
    assert violation.found == "refs/0/1/0/1"


def test_swapped_objects_are_out_of_order() -> None:
    topics = three_objects()
    output = topics.output[0]
    output[0:4], output[4:8] = output[4:8], output[0:4]
    assert topics.kinds() == {"out_of_order": 4}


def test_swapped_objects_of_two_streams_are_in_order_where_only_streams_are_ordered() -> None:
    topics = Topics()
    topics.answer(2, stream="a")
    topics.answer(2, stream="b")
    output = topics.output[0]
    output[0:2], output[2:4] = output[2:4], output[0:2]
    assert topics.kinds() == {"out_of_order": 2}
    topics.promise(by_stream=True)
    assert topics.kinds() == {}


def test_rows_repeated_after_a_restart_are_counted_and_no_violation() -> None:
    topics = three_objects()
    output = topics.output[0]
    topics.output[0] = output[:7] + output[2:9] + output[6:]
    report = topics.report()
    assert report.ok
    assert (report.counts.duplicates, report.counts.repeated_runs) == (8, 2)


def test_a_repeated_run_that_leaves_a_row_out_is_named() -> None:
    topics = three_objects()
    output = topics.output[0]
    topics.output[0] = output[:7] + output[2:4] + output[5:]
    assert topics.kinds() == {"repeat_out_of_order": 1}


def test_swapped_rows_within_a_repeated_run_are_named() -> None:
    topics = three_objects()
    output = topics.output[0]
    repeated = [output[2], output[4], output[3], output[5]]
    topics.output[0] = output[:7] + repeated + output[6:]
    assert "repeat_out_of_order" in topics.kinds()


@given(st.lists(st.integers(1, 30), max_size=8))
def test_any_number_of_restarts_from_any_point_is_in_order(steps: list[int]) -> None:
    topics = three_objects()
    output = topics.output[0]
    published: list[bytes] = []
    reached = 0
    for step in steps:
        start = max(0, reached - step)
        stop = min(len(output), start + 2 * step)
        published += output[start:stop]
        reached = max(reached, stop)
    topics.output[0] = published + output[reached:]
    report = topics.report()
    assert report.ok
    assert report.counts.duplicates == len(topics.output[0]) - 12


def test_a_duplicate_is_a_violation_where_exactly_once_was_promised() -> None:
    topics = three_objects()
    topics.output[0].insert(3, topics.output[0][2])
    topics.promise(exactly_once=True)
    assert topics.kinds() == {"duplicate": 1}


def test_a_repeated_row_with_another_answer_is_named() -> None:
    topics = three_objects()
    output = topics.output[0]
    output.insert(3, changed(output[2], prediction=99))
    assert topics.kinds() == {"duplicate_differs": 1}
    topics.promise(same_answers=False)
    assert topics.kinds() == {}


def test_a_wrong_row_count_is_named() -> None:
    topics = three_objects()
    topics.output[0][7] = changed(topics.output[0][7], rows=5)
    (violation,) = topics.report().first
    assert (violation.kind, violation.expected) == ("wrong_end", '"rows": 4')


def test_last_on_a_row_that_is_not_the_last_is_named() -> None:
    topics = three_objects()
    output = topics.output[0]
    output[5] = changed(output[5], last=True, rows=2)
    assert "wrong_end" in topics.kinds()


def test_an_object_that_ends_in_two_ways_is_named() -> None:
    topics = three_objects()
    topics.output[0].append(frame(2).marker(0, None))
    assert "wrong_end" in topics.kinds()


def test_a_marker_answers_an_object_without_rows() -> None:
    topics = Topics()
    topics.output[0].append(frame(topics.refer()).marker(0, None))
    report = topics.report()
    assert (report.ok, report.counts.markers) == (True, 1)


def test_a_marker_that_counts_rows_nobody_answered_is_named() -> None:
    topics = Topics()
    topics.output[0].append(frame(topics.refer()).marker(3, ("bad_format", "cut")))
    topics.letter(0, ((3, None),))
    assert topics.kinds() == {"lost_rows": 1}


def test_a_failed_object_has_a_marker_and_a_dead_letter() -> None:
    topics = Topics()
    topics.output[0].append(frame(topics.refer()).marker(0, ("not_found", "gone")))
    assert topics.kinds() == {"missing_dead_letter": 1}
    topics.letter(0, None)
    assert topics.kinds() == {}
    topics.output[0].clear()
    assert topics.kinds() == {"missing_marker": 1}
    topics.promise(markers=False)
    assert topics.kinds() == {}


def test_an_object_that_breaks_off_is_answered_up_to_its_marker_and_by_a_letter_for_the_rest() -> (
    None
):
    topics = Topics()
    encode = frame(topics.refer())
    topics.output[0] += [
        *encode.rows(0, [b"1", b"2"], None),
        encode.marker(2, ("bad_format", "cut")),
    ]
    topics.letter(0, ((2, None),))
    assert topics.kinds() == {}
    del topics.output[0][-1]
    assert topics.kinds() == {"missing_marker": 1}
    topics.promise(markers=False)
    assert topics.kinds() == {}


def test_a_letter_for_less_than_what_failed_is_named() -> None:
    topics = Topics()
    encode = frame(topics.refer())
    topics.output[0] += [
        *encode.rows(0, [b"1", b"2"], None),
        encode.marker(2, ("bad_format", "cut")),
    ]
    topics.letter(0, ((5, None),))
    (violation,) = topics.report().first
    assert (violation.kind, violation.expected) == (
        "missing_dead_letter",
        "a dead letter for rows 2-4",
    )


def test_each_rejected_row_has_its_letter_and_each_letter_its_rejected_row() -> None:
    topics = Topics()
    encode = frame(topics.refer())
    topics.output[0] += [
        encode.rejected(0, "bad_row", "no", None, None),
        *encode.rows(1, [b"1"], None),
        encode.rejected(2, "bad_row", "no", None, 3),
    ]
    topics.letter(0, ((0, 1),))
    assert topics.kinds() == {"missing_dead_letter": 1}
    topics.letter(0, ((2, 3),))
    assert topics.kinds() == {}
    topics.letter(0, ((1, 2),))
    assert topics.kinds() == {"stray_dead_letter": 1}


def test_a_letter_whose_reference_asks_for_other_rows_is_named() -> None:
    topics = Topics()
    encode = frame(topics.refer())
    topics.output[0].append(encode.rejected(0, "bad_row", "no", None, 1))
    topics.letter(0, ((0, 1),))
    topics.letters[0] = changed(topics.letters[0], reference={"bucket": "b", "key": "k"})
    assert topics.kinds() == {"wrong_dead_letter": 1}


def test_only_selected_rows_are_expected() -> None:
    topics = Topics()
    encode = frame(topics.refer(rows=((2, 4), (8, 20))))
    selected = [*encode.rows(2, [b"1", b"2"], None), *encode.rows(8, [b"3"], None)]
    end = encode.last_row(9, b"4", None, 10)
    topics.output[0] += [*selected, end]
    assert topics.kinds() == {}
    topics.output[0] = [*selected[1:], end]
    assert topics.kinds() == {"lost_rows": 1}
    topics.output[0] = [*selected[:2], *encode.rows(5, [b"5"], None), *selected[2:], end]
    assert topics.kinds() == {"unexpected_rows": 1}


def test_every_object_of_a_message_is_expected() -> None:
    topics = Topics()
    names = [{"bucket": "b", "key": key} for key in ("x", "y")]
    topics.input[0].append(orjson.dumps({"objects": names}))
    topics.output[0] += rows_of(0, 2)
    assert topics.kinds() == {"lost_reference": 1}
    topics.output[0].append(frame(0, index=1).marker(0, ("not_found", "gone")))
    assert topics.kinds() == {"missing_dead_letter": 1}
    reference = msgspec.convert(names[1], dict[str, str])
    topics.letter(0, None)
    topics.letters[0] = changed(
        topics.letters[0], object=reference | {"version": None}, reference=reference
    )
    assert topics.kinds() == {}


def test_a_value_that_is_no_reference_needs_a_marker_and_a_letter() -> None:
    topics = Topics()
    topics.input[0] += [b"hello", None]
    for offset in (0, 1):
        topics.output[0].append(frame(offset).marker(0, ("bad_reference", "no")))
        topics.letter(offset, None, reference=None, value=topics.input[0][offset])
    assert topics.kinds() == {}
    topics.letters.pop()
    assert topics.kinds() == {"missing_dead_letter": 1}


def test_an_ignored_event_is_answered_by_nothing() -> None:
    topics = Topics()
    topics.input[0].append(b'{"Event": "s3:TestEvent"}')
    assert topics.kinds() == {}
    topics.output[0].append(frame(0).marker(0, None))
    assert topics.kinds() == {"unknown_reference": 1}


def test_an_answer_in_a_foreign_partition_is_named() -> None:
    topics = Topics(partitions=2)
    topics.answer(2, partition=1, into=0)
    (violation,) = topics.report().first
    assert (violation.kind, violation.partition) == ("foreign_partition", 0)
    assert violation.expected == "partition 1"


def test_a_stream_that_changes_its_partition_is_named() -> None:
    topics = Topics(partitions=2)
    topics.promise(partitioning="stream")
    topics.answer(2, stream="a", into=1)
    assert topics.kinds() == {}
    topics.answer(2, stream="a", into=0)
    assert topics.kinds() == {"foreign_partition": 1}


def test_an_id_that_contradicts_its_record_is_named() -> None:
    topics = three_objects()
    topics.output[0][5] = changed(topics.output[0][5], row=7)
    assert topics.kinds()["bad_id"] == 1


def test_a_record_with_another_stream_than_its_object_is_named() -> None:
    topics = three_objects()
    topics.output[0][5] = changed(topics.output[0][5], stream="other")
    assert topics.kinds() == {"stream_changed": 1}


@pytest.mark.parametrize("value", [b"", b"{}", b"[1]", b"\xff", b"[" * 100_000])
def test_what_cannot_be_read_is_named(value: bytes) -> None:
    topics = three_objects()
    topics.output[0].append(value)
    topics.letters.append(value)
    assert topics.kinds() == {"unreadable": 2}


def test_answers_outside_the_scope_are_neither_missed_nor_unknown() -> None:
    topics = three_objects()
    topics.promise(scope={0: (1, 2)})
    report = topics.report()
    assert report.ok
    assert (report.counts.references, report.counts.outside) == (1, 4)
    output = topics.output[0]
    output[9], output[10] = output[10], output[9]
    assert topics.kinds() == {"out_of_order": 1}


def test_without_markers_an_unanswered_object_is_unproven() -> None:
    topics = Topics()
    topics.promise(markers=False)
    topics.refer()
    report = topics.report()
    assert (report.ok, report.counts.unproven) == (True, 1)


def test_a_report_is_fit_for_people_and_for_programs() -> None:
    topics = three_objects()
    for _ in range(20):
        topics.output[0].append(b"")
    report = topics.report()
    assert len(report.first) == 5
    document = orjson.loads(report.to_json())
    assert (document["ok"], document["violations"]) == (False, {"unreadable": 20})
    console = Console(width=200, record=True, file=None, quiet=False)
    with console.capture() as capture:
        console.print(render(report))
    assert "unreadable" in capture.get()
    assert "predictions/0/12" in capture.get()
