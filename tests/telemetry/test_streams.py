"""What is told of each stream, and how little is kept of many."""

from random import Random

import pytest

from penstock.ports import Where
from penstock.telemetry.streams import MOST_NAME_CHARS, OTHERS, SHOWN, Owed, Streams
from tests.support.partitions import P0, P1, where


def fed(streams: int, now_s: float = 1000.0, objects: int = 100) -> Streams:
    """Each stream is slower than the one before: 10 ms, 20 ms, and so on."""
    found = Streams()
    for number in range(streams):
        for _ in range(objects):
            found.delivered(f"s{number}", P0, 8, (number + 1) / 100, now_s)
    return found


def test_percentiles_and_rates_are_of_the_last_minute_and_seconds() -> None:
    streams = Streams()
    for tick in range(1000):
        streams.delivered("s", where(3), 8, 0.4 if tick % 50 == 0 else 0.02, 1000.0 + tick / 100)
    (row,) = streams.told({}, set(), 1010.0).streams
    assert row["p50_ms"] == pytest.approx(20, rel=0.03)
    assert row["p99_ms"] == pytest.approx(400, rel=0.03)
    assert row["objects_per_s"] == pytest.approx(100, rel=0.01)
    assert row["rows_per_s"] == pytest.approx(800, rel=0.01)
    assert row["partition"] == 3
    assert row["spark"] == [row["p99_ms"], None]
    (later,) = streams.told({}, set(), 1080.0).streams
    assert (later["p99_ms"], later["objects_per_s"]) == (None, 0)
    assert later["spark"][0] == row["p99_ms"]


def test_the_history_ends_after_ten_minutes() -> None:
    streams = fed(1)
    streams.delivered("s0", P0, 1, 0.5, 1590.0)
    (row,) = streams.told({}, set(), 1595.0).streams
    assert len(row["spark"]) == 60
    assert [one is not None for one in row["spark"]] == [True, *[False] * 58, True]
    (row,) = streams.told({}, set(), 1605.0).streams
    assert row["spark"][0] is None


def test_what_was_before_a_longer_silence_than_the_history_is_not_in_it() -> None:
    streams = fed(1)
    streams.delivered("s0", P0, 1, 0.5, 1700.0)
    (row,) = streams.told({}, set(), 1705.0).streams
    assert [one is not None for one in row["spark"]] == [*[False] * 59, True]


def test_the_streams_in_most_trouble_come_first() -> None:
    streams = fed(30)
    streams.rejected("s1", P0, "bad_row", "'x' is not a number", 2, 1000.0)
    streams.delivered("s29", P0, 8, 0.3, 1010.0)
    owed = {
        "s2": Owed(1, 5.0, 5.0, P0),
        "s3": Owed(1, 9.0, 9.0, P0),
        "s4": Owed(1, 0.9, 0.9, P0),
        "new": Owed(1, 2, 2, where(7)),
    }
    figures = streams.told(owed, {"s0"}, 1010.0)
    assert [row["stream"] for row in figures.streams[:5]] == ["s0", "s3", "s2", "new", "s1"]
    assert figures.streams[0]["stopped"]
    assert figures.streams[3]["partition"] == 7
    refused = figures.streams[4]
    assert refused["rejected"] == 2
    assert (refused["last_code"], refused["last_message"]) == ("bad_row", "'x' is not a number")


def test_all_streams_beyond_the_first_twenty_are_one() -> None:
    streams = fed(SHOWN + 5, objects=10)
    streams.rejected("s4", P0, "bad_row", "no", 3, 950.0)
    owed = {f"s{number}": Owed(2, 4.0, 0.5, P0) for number in range(5, SHOWN + 5)}
    owed["s0"] = Owed(7, 0.5, 0.5, P0)
    figures = streams.told(owed, set(), 1001.0)
    assert (len(figures.streams), figures.known) == (SHOWN, SHOWN + 5)
    others = figures.others
    assert others is not None
    assert (others["stream"], others["owed"], others["age_s"]) == (OTHERS, 7, 0.5)
    assert others["rejected"] == 3
    assert others["objects_per_s"] == pytest.approx(50, rel=0.01)
    assert others["p99_ms"] == pytest.approx(50, rel=0.03)
    assert fed(SHOWN).told({}, set(), 1001.0).others is None


def test_of_a_hundred_thousand_streams_the_silent_ones_are_forgotten() -> None:
    streams = Streams(most=100)
    for number in range(100_000):
        streams.delivered(f"s{number}", P0, 1, 0.01, 1000.0 + number / 1000)
        streams.delivered("steady", P0, 1, 0.01, 1000.0 + number / 1000)
    assert streams.told({}, set(), 1100.0).known <= 100
    assert streams.told({}, set(), 5000.0).known == 0


def test_of_streams_with_long_names_fewer_are_kept() -> None:
    streams = Streams()
    for number in range(1_000):
        streams.delivered(f"{'s' * 4_000}{number}", P0, 1, 0.01, 1000.0)
    assert streams.told({}, set(), 1000.0).known == MOST_NAME_CHARS // 4_003
    streams.turn(9000.0)
    for number in range(1_000):
        streams.delivered(f"short {number}", P0, 1, 0.01, 9000.0)
    assert streams.told({}, set(), 9000.0).known == 1_000


def test_rows_of_an_object_that_is_not_finished_count_as_rows_alone() -> None:
    streams = Streams()
    streams.delivered("s", P0, 500, None, 1000.0)
    (row,) = streams.told({}, set(), 1001.0).streams
    assert (row["rows_per_s"], row["objects_per_s"], row["p99_ms"]) == (500, 0, None)


def came(
    streams: Streams, name: str, begin_s: float, end_s: float, every_s: float, age_s: float = 0.02
) -> None:
    for number in range(round((end_s - begin_s) / every_s)):
        streams.delivered(name, P0, 8, age_s, begin_s + number * every_s + age_s)


def silence(streams: Streams, now_s: float, read: Where = P0, **owed: float) -> list[str]:
    """The names of the silent streams, while a partition was read to its end."""
    owes = {name: Owed(1, age_s, age_s, P0) for name, age_s in owed.items()}
    told = streams.told(owes, set(), now_s, {read}).silence
    assert told["count"] == len(told["streams"])
    return [stream["stream"] for stream in told["streams"]]


def test_a_stream_that_came_regularly_and_says_nothing_is_silent() -> None:
    streams = Streams()
    came(streams, "a", 1000.0, 1060.0, 0.3)
    came(streams, "b", 1000.0, 1070.0, 0.3)
    assert silence(streams, 1061.0) == []
    assert silence(streams, 1069.0) == ["a"]
    figures = streams.told({}, set(), 1152.0, {P0})
    assert figures.silence["streams"][1] == {
        "stream": "b", "heard_s": 82.4, "every_s": 0.3, "beyond_s": 77.4,
    }  # fmt: skip
    assert (figures.silence["count"], figures.silence["regular"]) == (2, 2)
    assert {stream["stream"]: stream["is_silent"] for stream in figures.streams} == {
        "a": True,
        "b": True,
    }
    came(streams, "b", 1152.0, 1153.0, 0.3)
    assert silence(streams, 1153.0) == ["a"]


def test_a_stream_that_was_silent_once_is_soon_named_again() -> None:
    streams = Streams()
    came(streams, "a", 1000.0, 1060.0, 0.3)
    came(streams, "a", 1120.0, 1140.0, 0.3)
    assert silence(streams, 1146.0) == ["a"]


def test_a_list_that_ended_is_not_silent() -> None:
    streams, chance = Streams(), Random(1)
    came(streams, "announced from a list", 1000.0, 1040.0, 0.005)
    now_s = 1000.0
    while now_s < 1060.0:
        now_s += chance.expovariate(1 / 0.2)
        streams.delivered("uploaded as it comes", P0, 8, 0.02, now_s)
    # An hour of a camera, read within a minute.
    for frame in range(3600):
        read_s = 1000.0 + frame / 60
        streams.delivered("backlog", P0, 8, read_s + 4000.0 - frame, read_s)
    assert [silence(streams, 1060.0 + later) for later in (6.0, 20.0, 200.0)] == [[], [], []]


def test_a_camera_that_trembles_and_stumbles_is_named_when_it_stops() -> None:
    streams, chance = Streams(), Random(1)
    now_s = 1000.0
    for frame in range(600):
        # Now and then one frame is lost, and once the network stands for two seconds.
        lost = 0.3 * (chance.random() < 0.05)
        now_s += 0.3 * chance.uniform(0.5, 1.5) + lost + 2.0 * (frame == 590)
        streams.delivered("a", P0, 8, 0.02, now_s)
        # Some frames were kept, and are sent at once.
        for late in range(30 * (frame == 592)):
            streams.delivered("a", P0, 8, 0.06 - late / 1000, now_s)
    assert silence(streams, now_s + 4.0) == []
    assert silence(streams, now_s + 9.5) == ["a"]


def test_a_stream_whose_records_wait_is_not_silent() -> None:
    streams = Streams()
    came(streams, "a", 1000.0, 1060.0, 0.3)
    assert silence(streams, 1090.0) == ["a"]
    # They wait for an answer, or in Kafka.
    assert silence(streams, 1090.0, a=20.0) == []
    assert silence(streams, 1090.0, read=P1) == []


@pytest.mark.parametrize("pause_s", [20.0, 300.0])
def test_a_stream_that_comes_in_bursts_is_not_silent_between_them(pause_s: float) -> None:
    streams, now_s = Streams(), 1000.0
    for _ in range(6):
        came(streams, "a", now_s, now_s + 2.0, 0.1)
        for second in range(0, round(pause_s), 4):
            assert silence(streams, now_s + 2.0 + second) == []
        now_s += 2.0 + pause_s


def test_what_came_at_once_or_seldom_was_not_regular() -> None:
    streams = Streams()
    came(streams, "list", 1000.0, 1008.0, 0.001)
    came(streams, "seldom", 1000.0, 1060.0, 10.0)
    assert silence(streams, 1500.0) == []


def test_a_backlog_is_no_rhythm() -> None:
    """Its records were written long before they are read."""
    streams = Streams()
    for second in range(60):
        streams.delivered("a", P0, 8, 3_600.0 - second, 1000.0 + second)
    assert silence(streams, 1100.0) == []


def test_the_time_between_records_does_not_count_nights() -> None:
    streams = Streams()
    came(streams, "a", 1000.0, 1060.0, 0.5)
    came(streams, "a", 30_000.0, 30_900.0, 0.5)
    [one] = streams.told({}, set(), 30_901.0, {P0}).streams
    assert one["every_s"] == pytest.approx(0.5, rel=0.05)
    assert silence(streams, 30_920.0) == ["a"]


def test_a_producer_whose_clock_is_behind_or_steps_back_is_not_silent() -> None:
    streams = Streams()
    for tick in range(2_400):
        now_s = 1000.0 + tick / 20
        behind_s = 8.0 if tick < 1_200 else 68.0
        streams.delivered("a", P0, 8, behind_s, now_s)
        if tick > 600:
            assert silence(streams, now_s + 1.0) == []
    [one] = streams.told({}, set(), now_s + 1.0, {P0}).streams
    assert one["heard_s"] == 1.0
    assert silence(streams, now_s + 6.0) == ["a"]


def test_it_was_heard_when_the_newest_came_which_is_not_known_while_kafka_may_have_more() -> None:
    streams = Streams()
    streams.delivered("a", P0, 8, 0.1, 1000.0)
    owed = {"a": Owed(40, 13.0, 0.3, P0)}
    [read] = streams.told(owed, set(), 1013.0, {P0}).streams
    [unread] = streams.told(owed, set(), 1013.0).streams
    assert (read["age_s"], read["heard_s"], unread["heard_s"]) == (13.0, 0.3, None)


def test_a_stream_whose_objects_come_in_time_again_is_slow_no_more() -> None:
    streams = Streams()
    for tick in range(40):
        streams.delivered("a", P0, 8, 4.0, 1000.0 + tick / 5)
    [slow] = streams.told({}, set(), 1008.0, {P0}).streams
    for tick in range(30):
        streams.delivered("a", P0, 8, 0.05, 1008.0 + tick / 5)
    [well] = streams.told({}, set(), 1014.0, {P0}).streams
    assert slow["now_p99_ms"] == pytest.approx(4_000, rel=0.03)
    assert well["now_p99_ms"] == pytest.approx(50, rel=0.03)
