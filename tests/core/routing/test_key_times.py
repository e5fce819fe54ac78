"""The time of capture in an object's key."""

from datetime import datetime

import pytest

from penstock.core.routing.stream_keys import KeyTimes
from penstock.messages.reference import Reference

NAME = KeyTimes("cam-[^/]+/(?P<time>[^/].*)[.]jpg$")
# 2026-11-29 10:02:03.417 UTC.
MS = 1_795_946_523_417
SECOND = MS // 1000 * 1000
MINUTE = MS // 60_000 * 60_000
HOUR = MS // 3_600_000 * 3_600_000


def test_the_moment_is_what_python_makes_of_it() -> None:
    assert datetime.fromisoformat("2026-11-29T10:02:03.417Z").timestamp() * 1000 == MS


@pytest.mark.parametrize(
    ("name", "time"),
    [
        ("1795946523", SECOND),
        ("1795946523.417", MS),
        ("1795946523417", MS),
        ("1795946523417000", MS),
        ("1795946523417000000", MS),
        ("2026-11-29T10:02:03.417Z", MS),
        ("2026-11-29T12:02:03.417+02:00", MS),
        ("20261129T100203Z", SECOND),
        ("20261129T100203.417", MS),
        ("20261129T120203.417+0200", MS),
        ("20261129_100203", SECOND),
        ("20261129_100203_417", MS),
        ("20261129_100203.417123", MS),
        ("20261129-100203-417", MS),
        ("20261129100203", SECOND),
        ("20261129100203417", MS),
        ("2026-11-29_10-02-03", SECOND),
        ("2026-11-29T10-02-03.417Z", MS),
        ("2026/11/29/10/02/03", SECOND),
        ("2026-11-29 10.02.03,417", MS),
        ("2026-11-29t10-02-03.417z", MS),
        ("2026-11-29_10-02", MINUTE),
        ("20261129_10-02", MINUTE),
        ("2026-11-29T10-02", MINUTE),
        ("2026-11-29-10-02", MINUTE),
        ("2026-11-29T12-02+02:00", MINUTE),
        ("2026-11-29_10-45", MINUTE + 43 * 60_000),  # -45 is no zone
        ("202611291002", MINUTE),
        ("2026112910", HOUR),
        ("2026-11-29", HOUR - 10 * 3_600_000),
        ("2026-11-29T08:02:03-02", SECOND),
    ],
)
def test_times_as_cameras_write_them(name: str, time: int) -> None:
    reference = Reference(bucket="b", key=f"site/cam-3/{name}.jpg")
    assert NAME.timed(reference).event_time == time


@pytest.mark.parametrize(
    "name",
    ["000042", "20261329_100203", "frame", "20261129_1", "2026-11-29x10-02", "2026-W48-7_10-02"],
)
def test_what_is_no_time_leaves_the_reference_as_it_is(name: str) -> None:
    reference = Reference(bucket="b", key=f"site/cam-3/{name}.jpg", event_time=7)
    assert NAME.timed(reference) is reference


def test_the_key_says_when_a_frame_was_captured_the_message_when_it_was_sent() -> None:
    sent = Reference(bucket="b", key="cam-3/20261129_100203.jpg", event_time=MS + 90_000)
    assert NAME.timed(sent).event_time == SECOND


def test_a_key_or_a_configuration_without_a_time() -> None:
    reference = Reference(bucket="b", key="other/20261129_100203.jpg")
    assert NAME.timed(reference) is reference
    assert KeyTimes(None).timed(reference) is reference
    optional = KeyTimes("(?P<time>[0-9]{10})?")
    assert optional.timed(reference) is reference


def test_the_first_key_without_a_time_is_told() -> None:
    told: list[str] = []
    times = KeyTimes("/(?P<time>[0-9]+)[.]jpg$", told.append)
    times.timed(Reference(bucket="b", key="cam-3/1796068810417.jpg"))
    assert told == []
    for name in ("1796068810417Z.jpg", "12.jpg", "b.jpg"):
        times.timed(Reference(bucket="b", key=f"cam-3/{name}"))
    (text,) = told
    assert text.startswith("kafka.time_from finds no time in the key 'cam-3/1796068810417Z.jpg'")
