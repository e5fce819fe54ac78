"""Reads the announcements of object stores: S3's `Records` and EventBridge's events, perhaps
wrapped by SNS or SQS; those of other clouds by `cloud_events`.

Rule: recognised by structure alone. Only an event that says that bytes were written makes a
reference; of a store's others the kind is given, to be counted; an event that is none of a store's
is an error. Senders of `Records` (AWS, MinIO, Ceph) form-encode the keys; EventBridge does not.

Sources: AWS, "Supported event types for SQS, SNS and Lambda", "EventBridge event message structure"
and "CloudTrail log events for S3"; MinIO, `internal/event/name.go`; Ceph, "Bucket notifications".
"""

from base64 import b64decode
from collections.abc import Iterator
from typing import Any

from msgspec import UNSET, DecodeError, Raw, Struct, UnsetType, ValidationError, field
from msgspec.json import Decoder

from penstock.messages.cloud_events import (
    of_attributes,
    of_b2,
    of_google_object,
    of_grid,
    of_r2,
)
from penstock.messages.reference import Reference, SchemaError
from penstock.messages.urls import decoded_key

# The way from S3 through SNS and SQS to a function's `Records` wraps a message three times. Each
# wrapping doubles the escapes.
MAX_WRAPPINGS = 4

# The events in which bytes are written. MinIO gives other names under `ObjectCreated` to changes of
# tags, of legal holds and of retention. `PutObject` and the like are those of Alibaba.
# `ObjectSynced:Create` is Ceph's: the bytes have come from another zone. A restored object is not
# new.
_WRITTEN = frozenset(
    {
        *(f"ObjectCreated:{how}" for how in ("Put", "Post", "Copy", "CompleteMultipartUpload")),
        *(f"ObjectCreated:{how}Object" for how in ("Put", "Post", "Copy")),
        "ObjectSynced:Create",
    }
)
# How the names of a store's events begin.
_FAMILIES = (
    *("Object", "Bucket", "Lifecycle", "Replication", "ReducedRedundancy", "Intelligent"),
    *("Scanner", "ILM"),
)
# The calls of CloudTrail's events in which bytes are written.
_CALLS = frozenset({"PutObject", "PostObject", "CopyObject", "CompleteMultipartUpload"})
_S3_SOURCES = ("s3.amazonaws.com", "s3express.amazonaws.com")


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


class _CloudTrailCall(Struct, rename="camel", kw_only=True):
    """The detail of a CloudTrail event. A call with an `errorCode` has failed."""

    event_source: str = _S3_SOURCES[0]
    event_name: str
    event_time: str | None = None
    error_code: str | None = None
    request_parameters: dict[str, Any] | None = None
    response_elements: dict[str, Any] | None = None


class _Notification(Struct):
    """The top-level fields of all forms of notifications. A message has only the fields of its own
    form.
    """

    records: list[_Event] | UnsetType = field(default=UNSET, name="Records")
    detail_type: str | UnsetType = field(default=UNSET, name="detail-type")
    detail: Raw | UnsetType = UNSET
    source: str | UnsetType = UNSET
    time: str | None = None
    type: str | UnsetType = field(default=UNSET, name="Type")
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
_call_decoder = Decoder(_CloudTrailCall)
_event_decoder = Decoder(_Event)
_pubsub_decoder = Decoder(_PubSub)


def events_of(value: bytes | str, wrappings: int = 0) -> Iterator[Reference | str]:
    """The events that `value` announces: for each object whose bytes were written a reference, for
    each other event its kind.

    Raises `SchemaError` or a msgspec error if `value` is not a notification.
    """
    if wrappings > MAX_WRAPPINGS:
        raise SchemaError(f"notifications wrapped more than {MAX_WRAPPINGS} times")
    message = _decoder.decode(value)
    if message.records is not UNSET:
        yield from _from_records(message.records, wrappings)
    elif message.detail_type is not UNSET and message.detail is not UNSET:
        yield from _from_bridge(message, message.detail_type, message.detail)
    elif (inner := _unwrapped(message)) is not None:
        yield from _wrapped(inner, wrappings)
    elif message.event == "s3:TestEvent":
        yield message.event
    else:
        yield from _from_clouds(message, value)


def _from_clouds(message: _Notification, value: bytes | str) -> Iterator[Reference | str]:
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


def _from_pubsub(message: _PubSub) -> Iterator[Reference | str]:
    if message.attributes is not UNSET:
        yield from of_attributes(message.attributes)
    elif message.data is not None:
        yield from of_google_object(b64decode(message.data, validate=True))
    else:
        raise SchemaError("the Pub/Sub message has neither attributes nor data")


def _unwrapped(message: _Notification) -> str | None:
    if message.type in ("SubscriptionConfirmation", "UnsubscribeConfirmation"):
        raise SchemaError(
            f"this is a {message.type} of SNS, and no notification; confirm the subscription by "
            "opening the SubscribeURL of this message"
        )
    for inner in (message.sns_message, message.sqs_body, message.sqs_api_body):
        if inner is not UNSET:
            return inner
    return None


def _wrapped(inner: str, wrappings: int) -> Iterator[Reference | str]:
    try:
        yield from events_of(inner, wrappings + 1)
    except ValidationError:
        raise
    except DecodeError:
        shown = inner[:40]
        raise SchemaError(
            f"the message inside SNS or SQS is no JSON, but {shown!r}; only the notifications of "
            "an object store may be wrapped"
        ) from None


def _from_records(events: list[_Event], wrappings: int) -> Iterator[Reference | str]:
    if not events:
        raise SchemaError("Records names no event")
    for event in events:
        if event.s3 is not UNSET:
            name = event.event_name.removeprefix("s3:")
            if name in _WRITTEN:
                yield _from_s3(event.s3, event.event_time)
            elif name.startswith(_FAMILIES):
                yield name
            else:
                raise SchemaError(f"eventName {event.event_name[:80]!r} is none of an object store")
        elif event.body is not UNSET:
            yield from _wrapped(event.body, wrappings)
        elif event.sns is not UNSET:
            yield from _wrapped(event.sns.message, wrappings)
        else:
            raise SchemaError("an entry of Records has neither s3, nor body, nor Sns")


def _from_s3(s3: _S3, event_time: str | None) -> Reference:
    return Reference(
        bucket=s3.bucket.name,
        key=decoded_key(s3.object.key, is_form=True),
        event_time=event_time or None,
        version_id=s3.object.version_id or None,
        etag=s3.object.e_tag or None,
        size=None if s3.object.size is None else int(s3.object.size),
    )


def _from_bridge(
    message: _Notification, detail_type: str, detail: Raw
) -> Iterator[Reference | str]:
    if detail_type == "Object Created":
        yield _of_detail(_detail_decoder.decode(detail), message.time)
    elif detail_type == "AWS API Call via CloudTrail":
        yield _of_call(_call_decoder.decode(detail))
    elif message.source == "aws.s3" or detail_type.startswith("Object "):
        yield detail_type
    else:
        raise SchemaError(
            f"EventBridge's detail-type {detail_type[:80]!r} announces no object of S3; send a "
            "reference by itself, without an event around it"
        )


def _of_call(call: _CloudTrailCall) -> Reference | str:
    parameters = call.request_parameters or {}
    if call.event_source not in _S3_SOURCES or call.event_name not in _CALLS:
        return f"{call.event_source} {call.event_name}"
    if call.error_code is not None:
        return f"{call.event_name} that failed"
    if not isinstance(parameters.get("bucketName"), str) or not isinstance(
        parameters.get("key"), str
    ):
        raise SchemaError(f"the {call.event_name} of CloudTrail has no bucketName and key")
    version = (call.response_elements or {}).get("x-amz-version-id")
    return Reference(
        bucket=parameters["bucketName"],
        key=parameters["key"],
        event_time=call.event_time or None,
        version_id=version if isinstance(version, str) else None,
    )


def _of_detail(detail: _BridgeDetail, event_time: str | None) -> Reference:
    return Reference(
        bucket=detail.bucket.name,
        key=detail.object.key,
        event_time=event_time or None,
        version_id=detail.object.version_id or None,
        etag=detail.object.etag or None,
        size=detail.object.size,
    )
