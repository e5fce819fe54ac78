"""What a commit says to the next owner."""

import pytest

from penstock.core.progress.cursor import Cursor, PartitionProgress
from penstock.core.progress.ledger import read, written

LIMITS = "0a1b"
DIGEST = "0123456789abcdef"


def test_the_next_owner_reads_what_was_written() -> None:
    progress = PartitionProgress(7, rows={(7, 0): Cursor(300, DIGEST)})
    found = read(7, written(progress, {12, 9}, LIMITS), LIMITS)
    assert found == (progress, frozenset({9, 12}), True)


def test_a_stop_is_forgotten_once_it_is_passed() -> None:
    assert written(PartitionProgress(10), {9}, LIMITS) == ""


def test_a_stop_under_other_limits_does_not_count() -> None:
    metadata = written(PartitionProgress(7), {9}, LIMITS)
    assert read(7, metadata, "ffff").stopped_at == frozenset()


@pytest.mark.parametrize("metadata", ["by hand", "p1:0;1.", "p9:"])
def test_metadata_that_cannot_be_read_is_ignored(metadata: str) -> None:
    assert read(7, metadata, LIMITS) == (PartitionProgress(7), frozenset(), False)
