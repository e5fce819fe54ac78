from penstock.stages.consume import GATHER_S, Gather


def polls(
    gather: Gather, *, records_hz: float, seconds: float, start_s: float = 0.0
) -> list[float]:
    """The waits of a loop that polls as soon as there is a record, and after each wait."""
    waits: list[float] = []
    now_s, taken = start_s, 0
    while now_s < start_s + seconds:
        now_s = max(now_s, start_s + (taken + 1) / records_hz) + 0.001
        there = int((now_s - start_s) * records_hz)
        waits.append(gather.wait_s(there - taken, now_s))
        taken = there
        now_s += waits[-1]
    return waits


def test_rare_records_are_never_made_to_wait() -> None:
    assert set(polls(Gather(), records_hz=200, seconds=10)) == {0.0}


def test_frequent_records_are_gathered() -> None:
    gather = Gather()
    polls(gather, records_hz=800, seconds=2)
    assert set(polls(gather, records_hz=800, seconds=5, start_s=2.0)) == {GATHER_S}


def test_gathering_makes_fewer_polls() -> None:
    assert len(polls(Gather(), records_hz=1_000, seconds=5)) <= 5 / GATHER_S


def test_gathering_ends_when_records_get_rare_again() -> None:
    gather = Gather()
    polls(gather, records_hz=800, seconds=5)
    assert polls(gather, records_hz=50, seconds=5, start_s=5.0)[-1] == 0.0


def test_an_empty_poll_is_followed_at_once() -> None:
    gather = Gather()
    polls(gather, records_hz=800, seconds=5)
    assert gather.wait_s(0, 5.01) == 0.0
