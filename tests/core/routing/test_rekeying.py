"""What the rekeyer passes on, and that the worker finds the same streams in it."""

import json
import struct
from typing import Any

import pytest

from penstock.core.routing.stream_keys import (
    KeyedMessage,
    StreamNames,
    fallback,
    key_of,
    key_text,
    keyed,
    streams_of,
)
from penstock.messages.cloud_events import structured
from penstock.messages.codec import Ignored, SchemaError, decode

FOLDERS = StreamNames(None)
MOST = 10_000


def notification(*keys: str, event: str = "ObjectCreated:Put") -> bytes:
    records = [
        {
            "eventName": event,
            "eventTime": "2026-11-24T10:00:00.000Z",
            "s3": {"bucket": {"name": "plat"}, "object": {"key": key, "eTag": "e", "size": 7}},
        }
        for key in keys
    ]
    return json.dumps({"Records": records}).encode()


def packed(document: Any) -> bytes:
    return json.dumps(document).encode()


MESSAGES = {
    "notification": (b"plat/site/cam-1/7.csv", notification("site/cam-1/7.csv")),
    "notification at the root": (b"plat/7.csv", notification("7.csv")),
    "of two objects of a stream": (b"x", notification("a/1.csv", "a/2.csv")),
    "reference": (None, packed({"bucket": "b", "key": "a/b/1.csv"})),
    "reference with a key": (b"cam-9", packed({"bucket": "b", "key": "a/b/1.csv"})),
    "reference with a stream": (b"k", packed({"bucket": "b", "key": "1", "stream": "s"})),
    "inline with a stream": (b"k", packed({"stream": "s", "inline": [[1, 2]]})),
    "inline with a key": (b"k", packed({"inline": [[1, 2]]})),
    "inline without": (None, packed({"inline": [[1, 2]]})),
    "no reference": (b"k", b"{"),
    "no reference, no key": (None, b"{}x"),
    "no value": (b"k", None),
}


def streams_by_the_worker(key: bytes | None, value: bytes | None, partition: int) -> list[str]:
    try:
        message = decode(value)
    except SchemaError:
        return [fallback(key, partition)]
    assert not isinstance(message, Ignored)
    return streams_of(message, FOLDERS, key, partition)


@pytest.mark.parametrize("name", MESSAGES)
def test_a_message_of_one_stream_is_unchanged_and_the_worker_calls_it_the_same(name: str) -> None:
    key, value = MESSAGES[name]
    (one,) = keyed(key, value, [("h", b"1")], 3, FOLDERS, MOST)
    assert (one.value, one.headers) == (value, [("h", b"1")])
    assert set(streams_by_the_worker(key, value, 3)) == {one.key.decode()}
    # Behind the rekeyer its key is the stream, and its partition is another one.
    assert set(streams_by_the_worker(one.key, value, 0)) == {one.key.decode()}


@pytest.mark.parametrize("key", [struct.pack(">q", 200), struct.pack(">q", 1), b"\xff", b"a\0b"])
def test_a_key_that_is_no_text_stays_the_key_of_its_stream(key: bytes) -> None:
    name = f"0x{key.hex()}"
    assert key_text(key) == name
    value = packed({"bucket": "b", "key": "a/1.csv"})
    for sent in (value, b"no reference", packed({"inline": [[1]]})):
        (one,) = keyed(key, sent, [], 3, FOLDERS, MOST)
        assert (one.key, one.value) == (key, sent)
    several = packed(
        {"objects": [{"bucket": "b", "key": "a/1"}, {"url": "s3://b/2", "stream": "s"}]}
    )
    messages = keyed(key, several, [], 3, FOLDERS, MOST)
    assert [message.key for message in messages] == [key, b"s"]
    assert "stream" not in objects_of(messages[0])[0], "its key names it"


@pytest.mark.parametrize("text", ["0xff", "0x00000000000000c8", "0x5290840009852788"])
def test_a_key_of_text_that_looks_like_digits_stays_text(text: str) -> None:
    assert key_text(text.encode()) == text
    assert key_of(text, text.encode()) == key_of(text, None) == text.encode()


def test_objects_of_several_streams_become_a_message_for_each() -> None:
    value = notification("b/1.csv", "a/1.csv", "b/2.csv")
    messages = keyed(b"plat/b/1.csv", value, [], 0, FOLDERS, MOST)
    assert [message.key.decode() for message in messages] == ["b", "a"], (
        "in the order in which they are named"
    )
    named = {
        message.key.decode(): json.loads(message.value or b"")["objects"] for message in messages
    }
    assert [each["key"] for each in named["b"]] == ["b/1.csv", "b/2.csv"]
    for part in messages:
        message = decode(part.value)
        assert not isinstance(message, Ignored)
        assert set(streams_of(message, FOLDERS, part.key, 9)) == {part.key.decode()}
    of_store = decode(value)
    (a,) = [message for message in messages if message.key.decode() == "a"]
    assert decode(a.value).items[0].etag == of_store.items[1].etag  # type: ignore[union-attr]


def test_an_event_that_makes_no_work_is_not_passed_on() -> None:
    removed = notification("a/1.csv", event="ObjectRemoved:Delete")
    assert keyed(b"k", removed, [], 0, FOLDERS, MOST) == []


def test_stream_from_names_the_stream() -> None:
    naming = StreamNames("(?P<stream>cam-[0-9]+)")
    (one,) = keyed(b"k", notification("site/cam-7/x/1.csv"), [], 0, naming, MOST)
    assert one.key.decode() == "cam-7"


def test_headers_that_are_a_part_of_the_message_stay_with_it() -> None:
    data = packed({"bucket": "b", "key": "a/1.csv"})
    headers = [("ce_type", b"t"), ("ce_specversion", b"1.0"), ("traceparent", b"00-1")]
    assert keyed(None, data, headers, 0, FOLDERS, MOST) == [KeyedMessage(b"a", data, headers)]
    assert decode(structured(data, headers))


def test_a_message_that_is_split_keeps_its_trace_and_no_part_of_the_old_one() -> None:
    event = {
        "specversion": "1.0",
        "type": "t",
        "traceparent": "00-" + "1" * 32 + "-" + "2" * 16 + "-01",
        "data": {"objects": [{"bucket": "b", "key": "a/1"}, {"bucket": "b", "key": "c/1"}]},
    }
    messages = keyed(None, packed(event), [], 0, FOLDERS, MOST)
    trace = [("traceparent", str(event["traceparent"]).encode())]
    assert [message.headers for message in messages] == [trace] * 2
    binary = [("ce_type", b"t"), ("ce_specversion", b"1.0"), ("traceparent", b"x"), ("own", b"y")]
    messages = keyed(None, packed(event["data"]), binary, 0, FOLDERS, MOST)
    assert [message.headers for message in messages] == [[("traceparent", b"x")]] * 2


def objects_of(message: KeyedMessage) -> list[dict[str, Any]]:
    document: list[dict[str, Any]] = json.loads(message.value or b"")["objects"]
    return document


def test_a_part_is_cut_into_messages_that_the_topic_takes_in_the_order_of_its_objects() -> None:
    keys = [f"{'ab'[n % 2]}/{n:03}.csv" for n in range(100)]
    trace = [("traceparent", b"00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01")]
    messages = keyed(b"x", notification(*keys), trace, 0, FOLDERS, 1_000)
    assert len(messages) == 10
    assert max(message.nbytes for message in messages) <= 1_000
    assert all(message.headers == trace for message in messages)
    for stream in "ab":
        passed = [
            each["key"]
            for message in messages
            if message.key.decode() == stream
            for each in objects_of(message)
        ]
        assert passed == [key for key in keys if key.startswith(stream)]


def test_a_message_of_one_stream_that_the_topic_does_not_take_is_cut_at_its_objects() -> None:
    value = packed({"objects": [{"bucket": "b", "key": f"a/{n}.csv"} for n in range(100)]})
    messages = keyed(b"k", value, [], 0, FOLDERS, 1_000)
    assert {message.key.decode() for message in messages} == {"k"}
    assert [each["key"] for message in messages for each in objects_of(message)] == [
        f"a/{n}.csv" for n in range(100)
    ]
    (whole,) = keyed(b"k", value, [], 0, FOLDERS, MOST)
    assert whole.value == value


def test_an_object_that_is_too_large_by_itself_does_not_take_others_with_it() -> None:
    large = {"bucket": "b", "key": "a/2.csv", "attributes": {"x": "y" * 2_000}}
    small = [{"bucket": "b", "key": f"a/{n}.csv"} for n in (1, 3)]
    value = packed({"objects": [small[0], large, small[1]]})
    messages = keyed(None, value, [], 0, FOLDERS, 1_000)
    assert [[each["key"] for each in objects_of(message)] for message in messages] == [
        ["a/1.csv"], ["a/2.csv"], ["a/3.csv"]
    ]  # fmt: skip


def test_a_part_says_its_stream_only_where_its_key_does_not() -> None:
    naming = StreamNames("cam-(?P<stream>[0-9]+)/")
    value = packed(
        {"objects": [{"bucket": "b", "key": "cam-7/1.csv"}, {"bucket": "b", "key": "cam-8/1.csv",
         "stream": "other"}]}
    )  # fmt: skip
    first, second = keyed(b"k", value, [], 0, naming, MOST)
    assert (first.key.decode(), "stream" in objects_of(first)[0]) == ("7", False)
    assert (second.key.decode(), objects_of(second)[0]["stream"]) == ("other", "other")
