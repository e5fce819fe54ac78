import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.core.progress.cursor import (
    MAX_CHARS,
    MAX_NUMBER,
    PartitionProgress,
    decode,
    encode,
    most_chars,
)
from penstock.core.rows.origin import Cursor, Ranges, digest
from penstock.core.rows.rejections import Rejection
from tests.core.builders import ticket

NUMBERS = st.integers(0, MAX_NUMBER)
VERSION = digest("b/k", "v1")


def ranges_from(start: int) -> st.SearchStrategy[Ranges]:
    """Ranges with gaps between them, none of them before `start`."""
    steps = st.lists(st.tuples(st.integers(1, 300), st.integers(1, 300)), max_size=40)

    def laid_out(pairs: list[tuple[int, int]]) -> Ranges:
        ranges, place = Ranges(), start
        for gap, length in pairs:
            ranges.add(place + gap, place + gap + length)
            place += gap + length
        return ranges

    return steps.map(laid_out)


@st.composite
def progresses(draw: st.DrawFn) -> PartitionProgress:
    """What a ledger may hold: nothing of a record that is completed, nothing before the next."""
    base = draw(st.integers(0, 1 << 60))
    completed = draw(ranges_from(base))
    free = [offset for offset in range(base, base + 50) if offset not in completed]
    offsets = st.sampled_from(free)
    indices = st.integers(0, 50)
    cursors = st.builds(Cursor, st.integers(1, MAX_NUMBER), st.just(VERSION))
    objects = draw(st.dictionaries(offsets, ranges_from(-1).filter(bool), max_size=5))
    rows = draw(st.dictionaries(st.tuples(offsets, indices), cursors, max_size=10))
    return PartitionProgress(
        base,
        completed,
        objects,
        {at: row for at, row in rows.items() if at[1] not in objects.get(at[0], Ranges())},
    )


def of_next(index: int, row: int) -> PartitionProgress:
    """So many objects of the next record are delivered, and rows of the one behind them."""
    return PartitionProgress(
        42,
        objects={42: Ranges([(0, index)])} if index else {},
        rows={(42, index): Cursor(row, VERSION)} if row else {},
    )


@given(NUMBERS, NUMBERS)
def test_a_cursor_comes_back_as_it_was_written(index: int, row: int) -> None:
    text = encode(of_next(index, row))
    found, is_whole = decode(text, 42)
    assert is_whole
    assert found == of_next(index, row)
    assert text.isascii()


@given(progresses())
def test_progress_comes_back_as_it_was_written(progress: PartitionProgress) -> None:
    text = encode(progress)
    found, is_whole = decode(text, progress.next_offset)
    assert is_whole
    assert found == progress
    assert len(text) <= most_chars(
        progress.stop - progress.next_offset,
        runs=len(progress.completed.starts),
        objects=sum(len(ranges.starts) for ranges in progress.objects.values()),
        rows=len(progress.rows),
    )


@given(progresses(), st.data())
def test_metadata_that_was_cut_off_claims_less_never_more(
    progress: PartitionProgress, data: st.DataObject
) -> None:
    text = encode(progress)
    part = text[: data.draw(st.integers(0, len(text)))]
    found, _ = decode(part, progress.next_offset)
    assert not found.completed.minus(progress.completed)
    for offset, ranges in found.objects.items():
        assert not ranges.minus(progress.objects[offset])
    assert found.rows.items() <= progress.rows.items()


def test_the_beginning_of_a_record_needs_no_metadata() -> None:
    assert encode(PartitionProgress(42)) == ""
    assert decode("", 42) == (PartitionProgress(42), True)


def test_what_is_known_of_the_next_record_alone_is_short() -> None:
    assert encode(of_next(3, 700)) == f"p1:2a;3.700.{VERSION}"
    assert encode(of_next(3, 0)) == "p1:2a;3.0."


def test_many_records_beyond_a_stuck_one_are_told_by_runs() -> None:
    completed = Ranges([(1, 1_000_000)])
    assert encode(PartitionProgress(0, completed)) == "p1:0;0.0.;1.f423f;;"
    every_second = Ranges((offset, offset + 1) for offset in range(1, 1_801, 2))
    assert len(encode(PartitionProgress(0, every_second))) <= MAX_CHARS


def test_where_every_second_record_is_owed_twenty_thousand_fit() -> None:
    every_second = Ranges((offset, offset + 1) for offset in range(10**9 + 1, 10**9 + 20_000, 2))
    text = encode(PartitionProgress(10**9, every_second))
    assert len(text) <= MAX_CHARS
    assert decode(text, 10**9) == (PartitionProgress(10**9, every_second), True)
    assert most_chars(20_000, runs=10_000, objects=0, rows=0) <= MAX_CHARS


@pytest.mark.parametrize(
    "metadata",
    [
        "p1:",
        "p1:2a",
        "p1:2a;",
        "p1:2a;1",
        "p1:2a;1.2",
        "p1:2a;1.2.",
        "p1:2a;1.2.short",
        "p1:2a;1.2.0123456789abcdef.more",
        "p1:2a;-1.0.",
        "p1:2a;1.x.0123456789abcdef",
        "p1:2a;1.99999999999999999999.0123456789abcdef",
        "p1:2a;1.9223372036854775808.0123456789abcdef",
        "p2:2a;1.2.0123456789abcdef",
        "somebody else's",
        "p1:2a;①.0.",
        # Of another offset: the group was moved, and the metadata went along.
        "p1:29;1.0.",
        "p1:2b;0.2.0123456789abcdef",
        "p1:;1.0.",
        "p1:1.0.",
    ],
)
def test_metadata_that_is_no_cursor_of_ours_is_ignored(metadata: str) -> None:
    assert decode(metadata, 42) == (PartitionProgress(42), False)


@pytest.mark.parametrize(
    "beyond",
    ["1.1", "1.1;", "1.1;;;", "0.1;;", "x.1;;", "1.0;;", "-1.1;;", "~;;", "~wA;;", "~QAAAA;;"],
)
def test_an_unreadable_part_beyond_the_next_record_leaves_the_rest_valid(beyond: str) -> None:
    found, is_whole = decode(f"p1:2a;1.0.;{beyond}", 42)
    assert not is_whole
    assert found == of_next(1, 0)


def test_a_mark_that_cannot_be_read_leaves_the_others_valid() -> None:
    text = f"p1:2a;x;1.1,oops,2.2;1.3.1,1.?.1;1.7.a.{VERSION},1.8.b.short"
    found, is_whole = decode(text, 42)
    assert not is_whole
    assert found == PartitionProgress(
        42, Ranges([(43, 44)]), {43: Ranges([(3, 4)])}, {(43, 7): Cursor(10, VERSION)}
    )


@given(st.text(), st.integers(0, 100))
def test_no_metadata_is_ever_an_error(metadata: str, next_offset: int) -> None:
    for text in (metadata, f"p1:{metadata}", f"p1:{next_offset:x};0.0.;{metadata}"):
        found, _ = decode(text, next_offset)
        assert next_offset not in found.completed


def test_a_cursor_is_bound_to_the_objects_name_and_version() -> None:
    assert digest("b/k", "v1") != digest("b/k", "v2")
    assert digest("b/k", "v1") != digest("b/l", "v1")
    assert digest("b/k", None) == ""


def test_an_object_that_breaks_off_before_the_rows_it_said_last_time_counts_them() -> None:
    of = ticket()
    of.pin = ("v1", None)
    of.resume = Cursor(4, of.digest)
    assert of.resumes(from_first_row=True)
    of.close(Rejection("changed", "it is gone", "download"))
    assert of.rows == 4
