"""Which trace a message says that it belongs to."""

import orjson
import pytest

from penstock.messages.cloud_events import structured
from penstock.messages.traceparent import Caller, in_cloud_event, in_headers, read, written

TRACE, SPAN = 0x0AF7651916CD43DD8448EB211C80319C, 0xB7AD6B7169203331
GIVEN = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-"


@pytest.mark.parametrize(("flags", "is_sampled"), [("00", False), ("01", True), ("03", True)])
def test_it_is_read_as_it_is_written(flags: str, *, is_sampled: bool) -> None:
    caller = Caller(TRACE, SPAN, is_sampled)
    assert read(f"{GIVEN}{flags}".encode()) == caller
    assert read(written(caller).encode()) == caller


def test_a_later_version_may_say_more() -> None:
    assert read(b"01-" + GIVEN[3:].encode() + b"01-more") == Caller(TRACE, SPAN, True)
    assert read(b"01-" + GIVEN[3:].encode() + b"01") == Caller(TRACE, SPAN, True)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "garbage",
        GIVEN,
        f"{GIVEN}01-more",
        f"{GIVEN}01 ",
        f"{GIVEN}0x",
        f"ff{GIVEN[2:]}01",
        f"01{GIVEN[2:]}01more",
        f"{GIVEN}01".upper(),
        f"{GIVEN}01".replace("0af7", "0_f7"),
        f"{GIVEN}01".replace("0af7", "+0f7"),
        f"{GIVEN}01".replace("0af7", "-0f7"),
        f"{GIVEN}01".replace("-b7ad", "b-7ad"),
        f"00-{'0' * 32}-b7ad6b7169203331-01",
        f"00-0af7651916cd43dd8448eb211c80319c-{'0' * 16}-01",
        "é" * 55,
    ],
)
def test_what_is_malformed_counts_as_absent(text: str) -> None:
    assert read(text.encode()) is None


def test_only_the_header_of_that_name_is_taken_and_no_more_of_it_than_is_read() -> None:
    assert in_headers([("other", b"x"), ("traceparent", b"a" * 1000)]) == b"a" * 56
    assert in_headers([("other", b"x")]) is None
    assert in_headers([("traceparent", None)]) is None


def test_a_cloud_event_has_it_as_an_attribute_in_both_modes() -> None:
    event = {"specversion": "1.0", "type": "t", "traceparent": GIVEN + "01", "data": {}}
    assert in_cloud_event(orjson.dumps(event)) == f"{GIVEN}01".encode()
    named = {name: text for name, text in event.items() if name != "data"}
    headers = [(f"ce_{name}", str(text).encode()) for name, text in named.items()]
    assert in_cloud_event(structured(b"{}", headers)) == f"{GIVEN}01".encode()


@pytest.mark.parametrize(
    "value",
    [
        None,
        b"",
        b'{"traceparent": "x"}',
        b'"traceparent"',
        b'{"specversion": "1", "traceparent": 7}',
    ],
)
def test_other_messages_have_none(value: bytes | None) -> None:
    assert in_cloud_event(value) is None
