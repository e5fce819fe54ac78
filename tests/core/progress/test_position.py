"""What a commit says to the next owner."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.core.progress.cursor import (
    MAX_CHARS,
    MAX_NUMBER,
    STOPS,
    Commit,
    PartitionProgress,
    Position,
    most_chars,
)
from penstock.core.rows.origin import Cursor

LIMITS = "0a1b"
DIGEST = "0123456789abcdef"


def test_the_next_owner_reads_what_was_written() -> None:
    progress = PartitionProgress(7, rows={(7, 0): Cursor(300, DIGEST)})
    commit = Position(progress, (12, 9), LIMITS).commit
    assert commit == Commit(7, f"p1:7;0.300.{DIGEST}!2,5.0a1b")
    assert Position.of(commit) == Position(progress, (9, 12), LIMITS)


def test_a_stop_is_forgotten_once_it_is_passed() -> None:
    assert Position(PartitionProgress(10), (9,), LIMITS).commit == Commit(10)


def test_a_stop_under_other_limits_does_not_count() -> None:
    position = Position.of(Position(PartitionProgress(7), (9,), LIMITS).commit)
    assert position.stopped_under(LIMITS) == {9}
    assert position.stopped_under("ffff") == frozenset()


@pytest.mark.parametrize("metadata", ["by hand", "p1:0;1.", "p9:"])
def test_metadata_that_cannot_be_read_is_ignored(metadata: str) -> None:
    assert Position.of(Commit(7, metadata)) == Position(PartitionProgress(7), is_whole=False)


@pytest.mark.parametrize(
    "metadata", ["nonsense!0.12ab", "p1:!", "p1:!0", "p1:!0.12AB", "p1:!-1.12ab"]
)
def test_what_is_no_mark_of_a_stop_stops_nothing(metadata: str) -> None:
    assert Position.of(Commit(7, metadata)) == Position(PartitionProgress(7), is_whole=False)


@given(st.lists(st.integers(7, MAX_NUMBER), min_size=1, max_size=40, unique=True))
def test_as_many_stops_are_written_as_there_is_room_for(stopped_at: list[int]) -> None:
    commit = Position(PartitionProgress(7), tuple(stopped_at), LIMITS).commit
    assert Position.of(commit).stopped_at == tuple(sorted(stopped_at)[:STOPS])
    assert len(commit.metadata) <= most_chars(1, runs=0, objects=0, rows=0) < MAX_CHARS
