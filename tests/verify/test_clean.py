"""What the judge must not complain about."""

from penstock.messages.prediction import Source
from penstock.tools.verify.findings import VerifyReport
from tests.verify.topics import REFUSED, UNREADABLE, Topics

S3 = {"bucket": {"name": "b"}, "object": {"key": "k"}}


def assert_clean(report: VerifyReport) -> None:
    assert report.violations == ()
    assert report.ok


def test_objects_in_order_are_clean_and_counted() -> None:
    topics = Topics()
    for _ in range(4):
        topics.answer(topics.ask(), range(5), 5)
        topics.ask_raw({"Event": "s3:TestEvent"})
    report = topics.report()
    assert_clean(report)
    assert report.sentence() == "20 rows of 1 stream in 4 objects: in order, none lost, none twice."
    assert (report.references, report.ignored, report.duplicates) == (4, 4, 0)


def test_an_empty_input_is_clean() -> None:
    assert_clean(Topics().report())


def test_a_selection_is_answered_by_its_rows_alone() -> None:
    topics = Topics()
    topics.answer(topics.ask(rows=[(2, 4), (7, None)]), [2, 3, 7, 8, 9], 10)
    topics.answer(topics.ask(rows=[(2, 4), (7, 20)]), [2, 3, 7, 8, 9], 10)
    topics.answer(topics.ask(rows=[(2, 4)]), [2, 3], 10)
    topics.mark(topics.ask(rows=[(50, 60)]))
    assert_clean(topics.report())


def test_an_object_without_rows_is_answered_by_a_marker() -> None:
    topics = Topics()
    topics.mark(topics.ask())
    report = topics.report()
    assert_clean(report)
    assert report.markers == 1


def test_an_object_that_cannot_be_read_has_a_marker_and_a_letter() -> None:
    topics = Topics()
    topics.mark(topics.ask(), 0, UNREADABLE)
    topics.letter(0, None)
    report = topics.report()
    assert_clean(report)
    assert report.dead_letters == 1


def test_an_object_that_broke_off_is_answered_up_to_there() -> None:
    topics = Topics()
    topics.answer(topics.ask(), range(3))
    topics.mark(0, 3, UNREADABLE)
    topics.letter(0, [(3, None)])
    topics.answer(topics.ask(rows=[(0, 2), (5, 8)]), [0, 1, 5])
    topics.mark(1, 6, UNREADABLE)
    topics.letter(1, [(6, 8)], code=UNREADABLE[0])
    topics.answer(topics.ask(rows=[(0, 2)]), [0, 1])
    topics.mark(2, 6, UNREADABLE)
    topics.letter(2, [(6, None)])
    assert_clean(topics.report())


def test_rejected_rows_have_letters_in_runs() -> None:
    topics = Topics()
    topics.answer(topics.ask(), range(6), 6, rejected=[1, 2, 5])
    topics.letter(0, [(1, 3)])
    topics.letter(0, [(5, 6)])
    report = topics.report()
    assert_clean(report)
    assert (report.rejected, report.dead_letters) == (3, 2)


def test_what_is_no_reference_has_a_marker_and_a_letter() -> None:
    topics = Topics()
    for value in (b"junk", None):
        offset = topics.ask_raw(value)
        topics.mark(offset, 0, ("bad_reference", "not JSON"), name=None)
        topics.letter(offset, None, name=None, code="bad_reference")
    assert_clean(topics.report())


def test_inline_rows_are_answered_like_an_object() -> None:
    topics = Topics()
    topics.answer(topics.ask_raw({"inline": [[1], [2], [3]]}), range(3), 3, name=None)
    topics.mark(topics.ask_raw({"inline": []}), name=None)
    assert_clean(topics.report())


def test_objects_of_one_message_are_answered_one_after_the_other() -> None:
    topics = Topics()
    names = [{"bucket": "b", "key": key} for key in "abcd"]
    offset = topics.ask_raw({"objects": [*names, {"bucket": "b", "key": "e", "rows": [[1, 2]]}]})
    topics.answer(offset, range(2), 2, name="a", index=0)
    topics.mark(offset, name="b", index=1)
    topics.mark(offset, 0, UNREADABLE, name="c", index=2)
    topics.letter(offset, None, name="c", object_index=2)
    topics.answer(offset, range(3), 3, name="d", index=3, rejected=[0])
    topics.letter(offset, [(0, 1)], name="d", object_index=3)
    topics.answer(offset, [1], 9, name="e", index=4)
    report = topics.report()
    assert_clean(report)
    assert report.objects == 5


def test_a_delivery_that_goes_back_after_a_crash_is_only_counted() -> None:
    topics = Topics()
    for _ in range(5):
        topics.ask()
    topics.answer(0, range(10), 10)
    topics.answer(1, range(10), 10)
    topics.answer(2, range(4))
    topics.answer(1, range(6, 10), 10)  # the cursor was in the middle of an object
    topics.answer(2, range(2))
    topics.answer(1, range(6, 10), 10)
    for offset in (2, 3, 4):
        topics.answer(offset, range(10), 10)
    report = topics.report()
    assert_clean(report)
    assert (report.rows, report.duplicates) == (50, 14)
    assert report.sentence().endswith(
        "in order, none lost, 14 records written twice (same id, same answer)."
    )


def test_a_second_crash_in_one_object_goes_back_to_what_is_committed_by_then() -> None:
    topics = Topics()
    topics.answer(topics.ask(), range(2))
    topics.answer(0, range(5))
    topics.answer(0, range(4, 6), 6)
    report = topics.report()
    assert_clean(report)
    assert (report.rows, report.duplicates) == (6, 3)


def test_a_worker_that_was_taken_for_dead_may_end_what_it_had_begun() -> None:
    topics = Topics()
    for _ in range(4):
        topics.answer(topics.ask(), range(5), 5)
    out = topics.out
    new_owner, old_owner = out[3:19], out[7:9]
    out += [*new_owner[:10], *old_owner, *new_owner[10:]]
    report = topics.report()
    assert_clean(report)
    assert report.duplicates == len(new_owner) + len(old_owner)


def test_repeats_may_leave_out_silent_objects_where_there_are_no_markers() -> None:
    topics = Topics(markers=False)
    topics.answer(topics.ask(), range(2), 2)
    topics.ask()  # empty
    topics.answer(topics.ask(), range(2))  # broke off
    topics.letter(2, [(2, None)])
    topics.answer(topics.ask(), range(2), 2)
    topics.out.extend(topics.out[1:])
    assert_clean(topics.report())


def test_a_second_delivery_of_everything_is_only_counted() -> None:
    topics = Topics()
    topics.answer(topics.ask(rows=[(1, 3), (7, 9)]), [1, 2, 7, 8], 10, rejected=[2])
    topics.letter(0, [(2, 3)])
    topics.mark(topics.ask(), 0, UNREADABLE)
    topics.letter(1, None)
    topics.predictions[0] *= 3
    topics.letters[0] *= 3
    report = topics.report()
    assert_clean(report)
    assert (report.rows, report.markers, report.duplicates) == (4, 1, 10)


def test_a_repeat_may_differ_by_rounding() -> None:
    topics = Topics()
    frame = topics.frame(topics.ask())
    topics.put(frame.last_row(0, b'{"label":1,"score":[0.37123456,1]}', None, 1))
    topics.put(frame.last_row(0, b'{"label":1,"score":[0.37123459,1.0]}', None, 1))
    assert_clean(topics.report())


def test_partitions_are_judged_each_for_itself() -> None:
    topics = Topics(partitions=3)
    for number in range(3):
        topics.answer(topics.ask(partition=number), range(4), 4, partition=number)
    assert_clean(topics.report())


def test_streams_may_overtake_each_other_where_order_is_by_stream() -> None:
    topics = Topics(by_stream=True)
    topics.ask(stream="slow")
    topics.ask(stream="quick")
    topics.answer(1, range(2), stream="quick")
    topics.answer(0, range(3), stream="slow")
    topics.answer(1, [2], 3, stream="quick")
    topics.answer(0, [3], 4, stream="slow")
    report = topics.report()
    assert_clean(report)
    assert report.streams == 2


def test_streams_may_have_partitions_of_their_own() -> None:
    topics = Topics(partitions=2, by_stream=True, partition_of=lambda _, stream: int(stream))
    topics.ask(stream="1")
    frame = topics.frame(0, stream="1")
    topics.put(frame.last_row(0, b"1", None, 1), partition=1, stream="1")
    assert_clean(topics.report())


def test_gaps_in_the_input_ask_for_nothing() -> None:
    topics = Topics()
    topics.answer(topics.ask(), range(2), 2)
    topics.ask_raw({"Records": [{"eventName": "ObjectRemoved:Delete", "s3": S3}]})
    topics.answer(topics.ask(), range(2), 2)
    assert_clean(topics.report())


def test_without_markers_an_object_may_leave_no_trace() -> None:
    topics = Topics(markers=False)
    topics.answer(topics.ask(), range(2), 2)
    topics.ask()  # empty
    topics.ask()  # not found
    topics.letter(2, None)
    topics.answer(topics.ask(), range(3))  # broke off
    topics.letter(3, [(3, None)])
    topics.ask_raw(b"junk")
    topics.letter(4, None, name=None)
    topics.committed = {0: 5}
    report = topics.report()
    assert_clean(report)
    assert report.unproven == 1
    assert "1 object left no trace" in report.sentence()


def test_what_is_not_committed_may_be_unanswered_where_only_that_is_asked() -> None:
    topics = Topics(committed={0: 1}, until={0: 1})
    topics.answer(topics.ask(), range(2), 2)
    topics.ask()
    topics.answer(1, range(5), rejected=[1])
    topics.ask()
    assert_clean(topics.report())


def test_answers_to_what_was_not_read_are_left_out() -> None:
    topics = Topics()
    topics.answer(topics.ask(), range(2), 2)
    topics.answer(7, range(3), 3)
    topics.answer(0, range(3), 3, topic="another")
    topics.mark(8, 0, REFUSED)
    topics.letter(8, None)
    report = topics.report()
    assert_clean(report)
    assert (report.rows, report.outside) == (2, 8)


def test_an_object_announced_again_may_be_answered_by_a_marker_that_points_to_the_first() -> None:
    topics = Topics()
    topics.answer(topics.ask(), range(5), 5)
    topics.point(topics.ask(), (0, 0, 0))
    topics.answer(topics.ask(rows=[(2, 4)]), [2, 3], 5)
    topics.point(topics.ask(rows=[(2, 4)]), (2, 0, 2))
    topics.mark(topics.ask("empty"), name="empty")
    topics.point(topics.ask("empty"), (4, 0, None), name="empty")
    report = topics.report()
    assert_clean(report)
    assert (report.rows, report.announced_again, report.duplicates) == (7, 3, 0)


def test_a_new_owner_may_answer_in_full_what_was_not_committed() -> None:
    topics = Topics()
    topics.answer(topics.ask(), range(5), 5)
    topics.point(topics.ask(), (0, 0, 0))
    topics.answer(1, range(5), 5)
    assert_clean(topics.report())


def test_answers_to_a_former_topic_of_the_same_name_are_about_other_messages() -> None:
    topics = Topics(exactly_once=True, topic_id="new")
    for _ in range(2):
        topics.ask()
    for id in ("old", "new"):
        topics.answer(0, range(5 if id == "old" else 3), 5 if id == "old" else 3, topic_id=id)
        topics.answer(1, range(4), 4, rejected=[2], topic_id=id)
        topics.letter(1, [(2, 3)], source=Source("refs", 0, 1, id))
    report = topics.report()
    assert_clean(report)
    assert (report.rows, report.duplicates, report.dead_letters) == (7, 0, 1)
    assert report.outside == 10


def test_an_answer_that_names_no_topic_id_is_judged() -> None:
    topics = Topics(topic_id="new")
    topics.answer(topics.ask(), range(3), 3)
    assert_clean(topics.report())
