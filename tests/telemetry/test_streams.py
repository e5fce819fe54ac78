"""What is told of each stream, and how little is kept of many."""

import pytest

from penstock.telemetry.streams import MOST_NAME_CHARS, OTHERS, SHOWN, Owed, Streams


def fed(streams: int, now_s: float = 1000.0, objects: int = 100) -> Streams:
    """Each stream is slower than the one before: 10 ms, 20 ms, and so on."""
    found = Streams()
    for number in range(streams):
        for _ in range(objects):
            found.delivered(f"s{number}", 0, 8, (number + 1) / 100, now_s)
    return found


def test_percentiles_and_rates_are_of_the_last_minute_and_seconds() -> None:
    streams = Streams()
    for tick in range(1000):
        streams.delivered("s", 3, 8, 0.4 if tick % 50 == 0 else 0.02, 1000.0 + tick / 100)
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
    streams.delivered("s0", 0, 1, 0.5, 1590.0)
    (row,) = streams.told({}, set(), 1595.0).streams
    assert len(row["spark"]) == 60
    assert [one is not None for one in row["spark"]] == [True, *[False] * 58, True]
    (row,) = streams.told({}, set(), 1605.0).streams
    assert row["spark"][0] is None


def test_what_was_before_a_longer_silence_than_the_history_is_not_in_it() -> None:
    streams = fed(1)
    streams.delivered("s0", 0, 1, 0.5, 1700.0)
    (row,) = streams.told({}, set(), 1705.0).streams
    assert [one is not None for one in row["spark"]] == [*[False] * 59, True]


def test_the_streams_in_most_trouble_come_first() -> None:
    streams = fed(30)
    streams.rejected("s1", 0, "bad_row", "'x' is not a number", 2, 1000.0)
    streams.delivered("s29", 0, 8, 0.3, 1010.0)
    owed = {
        "s2": Owed(1, 5.0, 0),
        "s3": Owed(1, 9.0, 0),
        "s4": Owed(1, 0.9, 0),
        "new": Owed(1, 2, 7),
    }
    told = streams.told(owed, {"s0"}, 1010.0)
    assert [row["stream"] for row in told.streams[:5]] == ["s0", "s3", "s2", "new", "s1"]
    assert told.streams[0]["stopped"]
    assert told.streams[3]["partition"] == 7
    refused = told.streams[4]
    assert refused["rejected"] == 2
    assert (refused["last_code"], refused["last_message"]) == ("bad_row", "'x' is not a number")


def test_all_streams_beyond_the_first_twenty_are_one() -> None:
    streams = fed(SHOWN + 5, objects=10)
    streams.rejected("s4", 0, "bad_row", "no", 3, 950.0)
    owed = {f"s{number}": Owed(2, 4.0, 0) for number in range(5, SHOWN + 5)}
    owed["s0"] = Owed(7, 0.5, 0)
    told = streams.told(owed, set(), 1001.0)
    assert (len(told.streams), told.known) == (SHOWN, SHOWN + 5)
    others = told.others
    assert others is not None
    assert (others["stream"], others["owed"], others["age_s"]) == (OTHERS, 7, 0.5)
    assert others["rejected"] == 3
    assert others["objects_per_s"] == pytest.approx(50, rel=0.01)
    assert others["p99_ms"] == pytest.approx(50, rel=0.03)
    assert fed(SHOWN).told({}, set(), 1001.0).others is None


def test_of_a_hundred_thousand_streams_the_silent_ones_are_forgotten() -> None:
    streams = Streams(most=100)
    for number in range(100_000):
        streams.delivered(f"s{number}", 0, 1, 0.01, 1000.0 + number / 1000)
        streams.delivered("steady", 0, 1, 0.01, 1000.0 + number / 1000)
    assert streams.told({}, set(), 1100.0).known <= 100
    assert streams.told({}, set(), 5000.0).known == 0


def test_of_streams_with_long_names_fewer_are_kept() -> None:
    streams = Streams()
    for number in range(1_000):
        streams.delivered(f"{'s' * 4_000}{number}", 0, 1, 0.01, 1000.0)
    assert streams.told({}, set(), 1000.0).known == MOST_NAME_CHARS // 4_003
    streams.turn(9000.0)
    for number in range(1_000):
        streams.delivered(f"short {number}", 0, 1, 0.01, 9000.0)
    assert streams.told({}, set(), 9000.0).known == 1_000


def test_rows_of_an_object_that_is_not_finished_count_as_rows_alone() -> None:
    streams = Streams()
    streams.delivered("s", 0, 500, None, 1000.0)
    (row,) = streams.told({}, set(), 1001.0).streams
    assert (row["rows_per_s"], row["objects_per_s"], row["p99_ms"]) == (500, 0, None)
