"""Huge objects give way to live small ones.

Rule: the rows far inside a huge object are bulk. While small objects arrive fresh, one bulk batch
is with the model at a time, and after each the bulk rests for a multiple of the time it took: so it
takes a fixed share of one call slot, whatever the machine is worth, and the small ones find every
part of the way mostly free. Without fresh small objects nothing is held: who is late anyway needs
throughput. Owner: the microbatch stage.
"""

import math

# Rows of an object before it counts as huge: a second and more of any sensor, a twentieth of one of
# this worker.
BULK_ROWS = 8_192
# Two ticks of a stream at 20 Hz: so long after a small object the next one is expected.
EXPECT_S = 0.1
# An object answered this long after its announcement is one of a backlog, not of a live stream.
FRESH_S = 1.0
# Rest after a bulk batch as a multiple of its call.
REST = 3.0
# A sick server's long calls make no long rests.
MOST_REST_S = 0.1


def is_bulk(first_row: int) -> bool:
    """Is a block that begins with this row of its object bulk?"""
    return first_row >= BULK_ROWS


class BulkPace:
    """Tell it what happens; what it returns is the time before which no bulk row may leave."""

    def __init__(self) -> None:
        self._expected_until_s = -math.inf

    def read(self, rows: int, age_s: float, now_s: float) -> None:
        """An object of so many rows was read; its announcement is so old."""
        if not is_bulk(rows) and age_s <= FRESH_S:
            self._expected_until_s = now_s + EXPECT_S

    def taken(self, now_s: float) -> float:
        """A batch with bulk goes to the model."""
        return math.inf if self._has_live(now_s) else 0.0

    def answered(self, took_s: float, now_s: float) -> float:
        """It is answered."""
        return now_s + min(MOST_REST_S, REST * took_s) if self._has_live(now_s) else 0.0

    def _has_live(self, now_s: float) -> bool:
        return now_s < self._expected_until_s
