"""Reads the announcements of object stores: S3's `Records` and EventBridge's events, which may be
wrapped by SNS or SQS. Announcements of other clouds are recognised here, and `cloud_events` reads
them.

Rule: an announcement is recognised by its structure alone, and only "object created" makes a
reference. Senders of `Records` (AWS, MinIO, Ceph) form-encode the keys; EventBridge does not.
"""

from base64 import b64decode
from collections.abc import Iterator
from urllib.parse import unquote_plus

from msgspec import UNSET, Raw, Struct, UnsetType, field
from msgspec.json import Decoder

from penstock.messages.cloud_events import (
    of_attributes,
    of_b2,
    of_google_object,
    of_grid,
    of_r2,
)
from penstock.messages.reference import Reference, SchemaError

# The way from S3 through SNS and SQS to a function's `Records` wraps a message three times. Each
# wrapping doubles the escapes.
MAX_WRAPPINGS = 4


class _Bucket(Struct):
    name: str


class _S3Object(Struct, rename="camel"):
    key: str
    size: int | str | None = None  # Ceph writes it as a string
    e_tag: str | None = None
    version_id: str | None = None


class _S3(Struct):
    bucket: _Bucket
    object: _S3Object


class _Sns(Struct):
    message: str = field(name="Message")


class _Event(Struct, rename="camel"):
    """One entry of `Records`: an S3 event, or a message that a function gets from SQS (`body`) or
    from SNS (`Sns`).
    """

    event_name: str = ""
    event_time: str | None = None
    s3: _S3 | UnsetType = UNSET
    body: str | UnsetType = UNSET
    sns: _Sns | UnsetType = field(default=UNSET, name="Sns")


class _BridgeObject(Struct, rename="kebab"):
    key: str
    size: int | None = None
    etag: str | None = None
    version_id: str | None = None


class _BridgeDetail(Struct):
    bucket: _Bucket
    object: _BridgeObject


class _Notification(Struct):
    """The top-level fields of all forms of notifications. A message has only the fields of its own
    form.
    """

    records: list[_Event] | UnsetType = field(default=UNSET, name="Records")
    detail_type: str | UnsetType = field(default=UNSET, name="detail-type")
    detail: Raw | UnsetType = UNSET
    time: str | None = None
    sns_message: str | UnsetType = field(default=UNSET, name="Message")
    sqs_body: str | UnsetType = field(default=UNSET, name="body")
    sqs_api_body: str | UnsetType = field(default=UNSET, name="Body")
    event: str | UnsetType = field(default=UNSET, name="Event")
    s3: Raw | UnsetType = UNSET  # of an entry of `Records` that stands alone
    kind: str | UnsetType = UNSET
    message: Raw | UnsetType = UNSET
    object_id: str | UnsetType = field(default=UNSET, name="objectId")
    event_type: str | UnsetType = field(default=UNSET, name="eventType")
    action: str | UnsetType = UNSET
    events: Raw | UnsetType = UNSET


class _PubSub(Struct):
    """A Pub/Sub message in the form that push subscriptions and some connectors write."""

    attributes: Raw | UnsetType = UNSET
    data: str | None = None


_decoder = Decoder(_Notification)
_detail_decoder = Decoder(_BridgeDetail)
_event_decoder = Decoder(_Event)
_pubsub_decoder = Decoder(_PubSub)


def created_objects(value: bytes | str, wrappings: int = 0) -> Iterator[Reference]:
    """The references to the objects whose creation `value` announces. Other events give no
    references.

    Raises `SchemaError` or a msgspec error if `value` is not a notification.
    """
    if wrappings > MAX_WRAPPINGS:
        raise SchemaError(f"notifications wrapped more than {MAX_WRAPPINGS} times")
    message = _decoder.decode(value)
    if message.records is not UNSET:
        yield from _from_records(message.records, wrappings)
    elif message.detail_type is not UNSET and message.detail is not UNSET:
        if message.detail_type == "Object Created":
            yield _from_bridge(_detail_decoder.decode(message.detail), message.time)
    elif (inner := _unwrapped(message)) is not None:
        yield from created_objects(inner, wrappings + 1)
    elif message.event != "s3:TestEvent":
        yield from _from_clouds(message, value)


def _from_clouds(message: _Notification, value: bytes | str) -> Iterator[Reference]:
    text = value.encode() if isinstance(value, str) else value
    if message.s3 is not UNSET:
        yield from _from_records([_event_decoder.decode(text)], MAX_WRAPPINGS)
    elif message.kind == "storage#object":
        yield from of_google_object(text)
    elif message.object_id is not UNSET and message.event_type is not UNSET:
        yield from of_attributes(text)
    elif message.message is not UNSET:
        yield from _from_pubsub(_pubsub_decoder.decode(message.message))
    elif message.action is not UNSET:
        yield from of_r2(text)
    elif message.events is not UNSET:
        yield from of_b2(message.events)
    elif message.event_type is not UNSET:
        yield from of_grid(text)
    else:
        raise SchemaError(
            "neither a reference (bucket and key, or url), nor objects, nor inline rows, "
            "nor a notification of an object store"
        )


def _from_pubsub(message: _PubSub) -> Iterator[Reference]:
    if message.attributes is not UNSET:
        yield from of_attributes(message.attributes)
    elif message.data is not None:
        yield from of_google_object(b64decode(message.data, validate=True))
    else:
        raise SchemaError("the Pub/Sub message has neither attributes nor data")


def _unwrapped(message: _Notification) -> str | None:
    for inner in (message.sns_message, message.sqs_body, message.sqs_api_body):
        if inner is not UNSET:
            return inner
    return None


def _from_records(events: list[_Event], wrappings: int) -> Iterator[Reference]:
    if not events:
        raise SchemaError("Records names no event")
    for event in events:
        if event.s3 is not UNSET:
            if event.event_name.removeprefix("s3:").startswith("ObjectCreated"):
                yield _from_s3(event.s3, event.event_time)
        elif event.body is not UNSET:
            yield from created_objects(event.body, wrappings + 1)
        elif event.sns is not UNSET:
            yield from created_objects(event.sns.message, wrappings + 1)
        else:
            raise SchemaError("an entry of Records has neither s3, nor body, nor Sns")


def _from_s3(s3: _S3, event_time: str | None) -> Reference:
    return Reference(
        bucket=s3.bucket.name,
        key=unquote_plus(s3.object.key),
        event_time=event_time or None,
        version_id=s3.object.version_id or None,
        etag=s3.object.e_tag or None,
        size=None if s3.object.size is None else int(s3.object.size),
    )


def _from_bridge(detail: _BridgeDetail, event_time: str | None) -> Reference:
    return Reference(
        bucket=detail.bucket.name,
        key=detail.object.key,
        event_time=event_time or None,
        version_id=detail.object.version_id or None,
        etag=detail.object.etag or None,
        size=detail.object.size,
    )
