"""A record that comes after a later one of its own stream."""

from penstock.core.progress.time_order import Latest


def test_a_record_older_than_the_last_of_its_stream_is_late() -> None:
    latest = Latest()
    assert not latest.is_late(b"a", 10)
    assert not latest.is_late(b"b", 5), "another stream"
    assert not latest.is_late(b"a", 10)
    assert latest.is_late(b"a", 9)
    assert latest.is_late(b"a", 9), "as the latest is still 10"


def test_of_many_streams_the_oldest_are_forgotten() -> None:
    latest = Latest(most=2)
    for stream in (b"a", b"b", b"c"):
        assert not latest.is_late(stream, 10)
    assert not latest.is_late(b"a", 1)
    assert latest.is_late(b"c", 1)
