"""How long the reads of a worker wait for records, in virtual time."""

import pytest

from penstock.core.window.gathering import LEAST_MS, MOST_MS, Gather

QUIET, FULL = 0.3, 1.0


def gather_at(busy: float = QUIET) -> Gather:
    return Gather(lambda now_s: busy)


def reads(gather: Gather, *, records_hz: float, seconds: float, start_s: float = 0.0) -> list[int]:
    """The waits of a loop that reads as soon as there is a record, and after each wait."""
    waits: list[int] = []
    now_s, taken = start_s, 0
    while now_s < start_s + seconds:
        now_s = max(now_s, start_s + (taken + 1) / records_hz) + 0.001
        there = int((now_s - start_s) * records_hz)
        gather.note(there - taken, now_s)
        waits.append(gather.wait_ms)
        taken = there
        now_s += waits[-1] / 1000
    return waits


@pytest.mark.parametrize(("records_hz", "busy"), [(400, QUIET), (100, FULL)])
def test_rare_records_are_never_made_to_wait(records_hz: float, busy: float) -> None:
    assert set(reads(gather_at(busy), records_hz=records_hz, seconds=10)) == {0}


def test_frequent_records_are_gathered() -> None:
    gather = gather_at()
    reads(gather, records_hz=800, seconds=2)
    assert set(reads(gather, records_hz=800, seconds=5, start_s=2.0)) == {LEAST_MS}


def test_the_busier_the_longer() -> None:
    def last(busy: float) -> int:
        return reads(gather_at(busy), records_hz=800, seconds=5)[-1]

    waits = [last(busy / 100) for busy in range(0, 130, 5)]
    assert waits == sorted(waits)
    assert (waits[0], waits[-1]) == (LEAST_MS, MOST_MS)


def test_a_busy_worker_gathers_records_that_a_quiet_one_takes_at_once() -> None:
    assert reads(gather_at(FULL), records_hz=400, seconds=5)[-1] == MOST_MS


def test_gathering_makes_fewer_reads() -> None:
    assert len(reads(gather_at(), records_hz=1_000, seconds=5)) <= 5_000 / LEAST_MS


def test_gathering_ends_when_records_get_rare_again() -> None:
    gather = gather_at()
    reads(gather, records_hz=800, seconds=5)
    assert reads(gather, records_hz=50, seconds=5, start_s=5.0)[-1] == 0


def test_an_empty_read_is_followed_at_once() -> None:
    gather = gather_at()
    reads(gather, records_hz=800, seconds=5)
    gather.note(0, 5.01)
    assert gather.wait_ms == 0
