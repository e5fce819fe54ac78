"""What the view knows of objects sent and answered."""

from consumers.demo.progress import Progress, Stream


def progress(now_s: float = 100.0) -> Progress:
    return Progress([Stream("a", "csv"), Stream("b", "csv")], wall_s=lambda: now_s)


def test_a_latency_runs_from_when_the_object_was_due() -> None:
    watched = progress(now_s=100.25)
    watched.sent(1, "b/1", due_s=100.0, rows=9)
    watched.answered("b/1", 9)
    assert watched.streams[1].latencies_ms == [250.0]


def test_an_object_counts_once_however_often_it_is_answered() -> None:
    watched = progress()
    watched.sent(0, "a/1", due_s=99.0, rows=9)
    watched.answered("a/1", 9)
    watched.answered("a/1", 9)
    assert (watched.objects, watched.rows, watched.waiting) == (1, 9, 0)


def test_what_was_sent_waits_until_it_is_answered() -> None:
    watched = progress()
    assert watched.none_waits.is_set()
    watched.sent(0, "a/1", due_s=99.0, rows=9)
    watched.sent(1, "b/1", due_s=99.0, rows=9)
    watched.answered("b/1", 9)
    assert (watched.streams[0].waiting, watched.streams[1].waiting) == (1, 0)
    assert not watched.none_waits.is_set()
    watched.answered("a/1", 9)
    assert watched.none_waits.is_set()


def test_rows_count_as_answered_and_as_sent() -> None:
    watched = progress()
    watched.sent(0, "a/1", due_s=99.0, rows=9)
    watched.answered("a/1", 8)
    assert (watched.rows_sent, watched.rows) == (9, 8)
