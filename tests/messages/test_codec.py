"""Whatever is on the input topic becomes references, inline rows, nothing, or one error."""

import json
from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import structs

from penstock.messages.codec import Ignored, Inline, References, decode, encode_reference
from penstock.messages.reference import MAX_DEPTH, Reference, SchemaError, time_of
from penstock.messages.times import EARLIEST_MS, LATEST_MS
from penstock.messages.urls import split_url
from tests.messages.test_notifications import FORMS
from tests.support.examples import examples

FULL = {
    "bucket": "sensors",
    "key": "site-1/cam-3/000042.csv.gz",
    "stream": "site-1/cam-3",
    "event_time": 1795208217412,
    "version_id": "v",
    "etag": '"e"',
    "size": 1234,
    "format": "csv",
    "compression": "gzip",
    "rows": [[0, 500], [700, None]],
    "attributes": {"line": "A"},
}
NAMES = st.text(min_size=1, max_size=20)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner),
    max_leaves=8,
)
FIELDS = st.sampled_from(
    [
        *FULL,
        *("url", "objects", "inline", "Records", "detail", "detail-type", "time", "Message"),
        *("body", "Body", "Event"),
    ]
)


def decode_json(document: Any) -> References | Inline | Ignored:
    return decode(orjson.dumps(document))


def reference_of(document: Any) -> Reference:
    message = decode_json(document)
    assert isinstance(message, References)
    (reference,) = message.items
    return reference


def test_a_reference_keeps_all_its_fields() -> None:
    reference = reference_of(FULL)
    assert reference.rows == ((0, 500), (700, None))
    assert orjson.loads(encode_reference(reference)) == FULL


def test_a_reference_needs_bucket_and_key_alone() -> None:
    assert reference_of({"bucket": "b", "key": "k"}) == Reference(bucket="b", key="k")


def test_fields_that_are_null_or_not_ours_are_as_if_left_out() -> None:
    document = dict.fromkeys(FULL, None) | {"bucket": "b", "key": "k", "detail": 7, "body": "x"}
    assert reference_of(document) == Reference(bucket="b", key="k")


@pytest.mark.parametrize("key", ["a", "a/b", "a//b?c#d%20e+f", "ü/日"])
def test_a_url_names_bucket_and_key_exactly(key: str) -> None:
    assert reference_of({"url": f"s3://bucket/{key}"}) == Reference(bucket="bucket", key=key)
    assert split_url(f"s3://bucket/{key}") == (None, "bucket", key)


@pytest.mark.parametrize(
    ("url", "store", "bucket", "key"),
    [
        ("s3a://b/k", None, "b", "k"),
        ("S3://b/k", None, "b", "k"),
        ("gs://b/a//b?c#d%20e", "gs", "b", "a//b?c#d%20e"),
        ("az://raw/a/b.csv", "az", "raw", "a/b.csv"),
        ("abfs://raw/k", "az", "raw", "k"),
        ("abfss://raw@acct.dfs.core.windows.net/a/k", "az@acct", "raw", "a/k"),
        ("https://acct.blob.core.windows.net/raw/a%20b/k", "az@acct", "raw", "a b/k"),
        ("hf://datasets/user/repo/k.csv", "hf", "datasets", "user/repo/k.csv"),
        ("sftp://host:22/k", "sftp", "host:22", "k"),
        ("https://example.org/a%20b", "https", "example.org", "a%20b"),
    ],
)
def test_a_url_says_what_kind_of_store_has_it(
    url: str, store: str | None, bucket: str, key: str
) -> None:
    reference = reference_of({"url": url})
    assert reference == Reference(bucket=bucket, key=key, store=store)
    assert decode(encode_reference(reference)) == References((reference,))


@pytest.mark.parametrize(
    "url", ["b/k", "s3:/b/k", "gs://b", "gs:///k", "file:///etc/passwd", "sftp://me:pw@host/k", ""]
)
def test_a_url_without_bucket_or_with_a_password_is_none(url: str) -> None:
    with pytest.raises(SchemaError):
        decode(orjson.dumps({"url": url}))


def test_a_store_is_named_beside_bucket_and_key_or_url() -> None:
    for message in ({"bucket": "b", "key": "k"}, {"url": "gs://b/k"}):
        reference = reference_of({**message, "store": "eu"})
        assert reference == Reference(bucket="b", key="k", store="eu")


def test_several_objects_keep_their_order() -> None:
    message = decode_json({"objects": [{"bucket": "b", "key": "2"}, {"url": "s3://b/1"}]})
    assert message == References((Reference(bucket="b", key="2"), Reference(bucket="b", key="1")))


def test_inline_rows_are_spliced_byte_for_byte() -> None:
    message = decode(b'{"stream": "s", "event_time": 7, "inline": [[1, 2.50], {"a" : 1e2}]}')
    assert isinstance(message, Inline)
    assert (message.stream, message.event_time) == ("s", 7)
    assert message.body() == b'[[1, 2.50],{"a" : 1e2}]'


@pytest.mark.parametrize(
    ("event_time", "as_ms"),
    [
        (0, 0),
        (-1, -1),
        (1795208217412, 1795208217412),
        (1795208217, 1795208217000),  # seconds
        ("1795208217.412", 1795208217412),
        ("2026-11-21T00:00:00Z", 1_795_219_200_000),
        ("2026-11-21T00:00:00.123456789+01:00", 1_795_215_600_123),
        ("2026-11-21", 1_795_219_200_000),
        ("20261121", 1_795_219_200_000),
        (20261121000000, 1_795_219_200_000),
        ("20261121T000000Z", 1_795_219_200_000),
        ("1970-01-21T18:40:08.217Z", 1_795_208_217),
        ("6000-01-01", 127_174_492_800_000),
        ("0001-01-01T00:00:00+14:00", EARLIEST_MS),
        ("9999-12-31T23:59:59-14:00", LATEST_MS),
    ],
)
def test_an_event_time_means_the_same_when_its_reference_is_published_again(
    event_time: int | str, as_ms: int
) -> None:
    made = decode_json({"bucket": "b", "key": "k", "event_time": event_time})
    assert isinstance(made, References)
    for _ in range(2):
        (reference,) = made.items
        assert time_of(reference) == as_ms
        made = decode(encode_reference(structs.replace(reference, stream="s")))
        assert isinstance(made, References)


@pytest.mark.parametrize(
    "event_time",
    [1795208217412000, 10**30, "yesterday", "", 1.5, True, 20261121, "2026", "45292.5", 2034010112],
)
def test_what_is_no_time_or_may_be_two_is_refused(event_time: Any) -> None:
    with pytest.raises(SchemaError, match="event_time"):
        decode(json.dumps({"bucket": "b", "key": "k", "event_time": event_time}).encode())


@pytest.mark.parametrize(
    "rows",
    [[], [[0, 0]], [[5, 3]], [[-1, 3]], [[0, 5], [4, 9]], [[0, None], [5, 9]], [[1 << 63, None]]],
)
def test_rows_are_ascending_disjoint_ranges(rows: Any) -> None:
    with pytest.raises(SchemaError, match="rows"):
        decode_json({"bucket": "b", "key": "k", "rows": rows})


@pytest.mark.parametrize(
    ("document", "words"),
    [
        ({"bucket": "b"}, "needs a key"),
        ({"key": "k"}, "needs a bucket"),
        ({"bucket": "", "key": "k"}, "bucket that is not empty"),
        ({"bucket": "b", "key": ""}, "key that is not empty"),
        ({"bucket": 1, "key": "k"}, r"\$\.bucket"),
        ({"bucket": "b", "key": "k", "size": -1}, "size"),
        ({"bucket": "b", "key": "k", "url": "s3://b/k"}, "either bucket and key, or url"),
        ({"bucket": "b", "key": "k", "inline": [1]}, "either a reference, or"),
        ({"objects": [], "inline": []}, "either a reference, or"),
        ({"url": "http://b/k"}, "s3://bucket/key"),
        ({"url": "s3://b"}, "s3://bucket/key"),
        ({"objects": []}, "names no object"),
        ({"objects": [{"bucket": "b"}]}, "needs a key"),
        ({"objects": "b/k"}, r"\$\.objects"),
        ({"inline": 5}, r"\$\.inline"),
        ({}, "neither a reference"),
        ([], "object"),
        ("s3://b/k", "object"),
        (None, "object"),
    ],
)
def test_what_is_wrong_is_said(document: Any, words: str) -> None:
    with pytest.raises(SchemaError, match=words):
        decode_json(document)


@pytest.mark.parametrize(
    "value",
    [
        None,
        b"",
        b"hello",
        b"\xff\xfe",
        b'{"bucket": "b", "key": "\xff"}',
        b'{"inline": ["\xff"]}',
        b'{"bucket": "b", "key": "\\ud800"}',
        b'{"bucket": "b", "key": "k"} trailing',
        b"[" * 100_000,
        b'{"attributes":' + b'{"a":' * 100_000,
        b'{"bucket": "b", "key": "k", "attributes": {"a": 1e999}}',
        b'{"bucket": "b", "key": "k", "size": 1' + b"0" * 5_000 + b"}",
    ],
)
def test_broken_values_are_one_kind_of_error(value: bytes | None) -> None:
    with pytest.raises(SchemaError):
        decode(value)


def test_attributes_that_no_encoder_would_survive_are_refused() -> None:
    nested: Any = {}
    for _ in range(MAX_DEPTH):
        nested = {"a": [nested]}
    with pytest.raises(SchemaError, match="deeper"):
        decode_json({"bucket": "b", "key": "k", "attributes": nested})


@given(st.binary(max_size=200))
def test_no_bytes_raise_anything_else(value: bytes) -> None:
    decode_or_refuse(value)


@given(st.dictionaries(FIELDS, JSON | st.sampled_from(list(FULL.values())), max_size=6))
def test_no_document_raises_anything_else(document: dict[str, Any]) -> None:
    try:
        value = orjson.dumps(document)
    except TypeError:  # an integer beyond 64 bits
        value = str(document).replace("'", '"').encode(errors="replace")
    decode_or_refuse(value)


VALID = [
    orjson.dumps(FULL),
    orjson.dumps({"url": "s3://bucket/key"}),
    orjson.dumps({"objects": [{"bucket": "b", "key": "ü"}, {"url": "s3://b/1"}]}),
    orjson.dumps({"stream": "s", "event_time": "2026-11-21", "inline": [[1, 2.5], {"a": None}]}),
    *(orjson.dumps(form) for form in FORMS.values()),
]
SPLICED = [
    b"", b"null", b"[", b"]", b"{", b"}", b'"', b",", b"\\", b"-1", b"1e999", b"\xff", b"\\ud800",
    b"9" * 400, b"[" * 3_000, b'{"a":' * 3_000,
]  # fmt: skip


@examples(5)
@given(
    st.sampled_from(VALID),
    st.lists(st.tuples(st.integers(0), st.integers(0, 9), st.sampled_from(SPLICED)), max_size=3),
)
def test_no_spoiled_message_raises_anything_else(
    value: bytes, cuts: list[tuple[int, int, bytes]]
) -> None:
    for place, length, instead in cuts:
        start = place % (len(value) + 1)
        value = value[:start] + instead + value[start + length :]
    decode_or_refuse(value)


@pytest.mark.parametrize("field", ["bucket", "key", "stream"])
def test_a_name_that_is_no_utf8_is_refused_when_it_is_made(field: str) -> None:
    names: dict[str, Any] = {"bucket": "b", "key": "k", field: "a\udcff"}
    with pytest.raises(SchemaError, match="UTF-8"):
        Reference(**names)


def decode_or_refuse(value: bytes) -> None:
    """What is decoded can be encoded again; all else is a `SchemaError`."""
    try:
        message = decode(value)
    except SchemaError:
        return
    if isinstance(message, References):
        assert message.items
        for reference in message.items:
            assert decode(encode_reference(reference)) == References((reference,))
    elif isinstance(message, Inline):
        # Whether each number fits is decided by the reader of the rows.
        assert isinstance(json.loads(message.body()), list)


@given(
    bucket=NAMES,
    key=NAMES,
    stream=st.none() | st.text(max_size=9),
    size=st.none() | st.integers(0, 1 << 62),
    bounds=st.none() | st.sets(st.integers(0, 99), min_size=2, max_size=2),
    attributes=st.none() | st.dictionaries(st.text(max_size=5), st.integers() | st.text()),
)
def test_every_valid_reference_survives_the_wire(
    bucket: str,
    key: str,
    stream: str | None,
    size: int | None,
    bounds: set[int] | None,
    attributes: dict[str, Any] | None,
) -> None:
    rows = None if bounds is None else ((min(bounds), max(bounds)),)
    reference = Reference(
        bucket=bucket, key=key, stream=stream, size=size, rows=rows, attributes=attributes
    )
    assert decode(encode_reference(reference)) == References((reference,))
