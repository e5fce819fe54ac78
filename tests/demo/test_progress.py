"""What the view knows of objects sent and answered."""

from penstock.tools.demo.progress import (
    LATENCIES_OVER_S,
    MOST_LATENCIES,
    DemoProgress,
    DemoStream,
    together,
)


class Wall:
    """The system's clock, set by hand."""

    def __init__(self) -> None:
        self.now_s = 100.0

    def __call__(self) -> float:
        return self.now_s


def progress(wall: Wall | None = None) -> DemoProgress:
    return DemoProgress([DemoStream("a", "csv"), DemoStream("b", "csv")], wall_s=wall or Wall())


def test_a_latency_does_not_depend_on_when_the_answer_is_read() -> None:
    wall = Wall()
    watched = progress(wall)
    watched.sent(1, "b/1", announced_s=100.0, rows=9)
    wall.now_s = 100.9
    watched.answered("b/1", 9, written_s=100.25)
    assert watched.latencies_ms() == [[], [250.0]]


def test_latencies_are_those_of_the_last_seconds() -> None:
    """After a kill the numbers of before, and of the pause, are gone within seconds."""
    wall = Wall()
    watched = progress(wall)
    for number, took_s in enumerate((9.0, 0.01)):
        watched.sent(0, f"a/{number}", announced_s=wall.now_s, rows=9)
        watched.answered(f"a/{number}", 9, written_s=wall.now_s + took_s)
        wall.now_s += LATENCIES_OVER_S - 0.5
    assert [round(ms) for ms in together(watched.latencies_ms())] == [10]


def test_a_stream_keeps_a_bounded_number_of_latencies() -> None:
    stream = DemoStream("a", "csv")
    for number in range(MOST_LATENCIES + 10):
        stream.answered(100.0, number, 1)
    assert len(stream.latencies_ms(100.0)) == MOST_LATENCIES
    assert stream.objects == MOST_LATENCIES + 10


def test_an_object_counts_once_however_often_it_is_answered() -> None:
    watched = progress()
    watched.sent(0, "a/1", 99.0, rows=9)
    watched.answered("a/1", 9, 99.1)
    watched.answered("a/1", 9, 99.2)
    assert (watched.objects, watched.rows, watched.waiting) == (1, 9, 0)


def test_what_was_sent_waits_until_it_is_answered() -> None:
    watched = progress()
    assert watched.none_waits.is_set()
    watched.sent(0, "a/1", 99.0, rows=9)
    watched.sent(1, "b/1", 99.0, rows=9)
    watched.answered("b/1", 9, 99.1)
    assert (watched.streams[0].waiting, watched.streams[1].waiting) == (1, 0)
    assert (watched.streams[0].rows_ahead, watched.streams[1].rows_ahead) == (9, 0)
    assert not watched.none_waits.is_set()
    watched.answered("a/1", 9, 99.1)
    assert watched.none_waits.is_set()


def test_rows_count_as_answered_and_as_sent() -> None:
    watched = progress()
    watched.sent(0, "a/1", 99.0, rows=9)
    watched.answered("a/1", 8, 99.1)
    assert (watched.rows_sent, watched.rows) == (9, 8)
