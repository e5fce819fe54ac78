"""Reads the announcements of Google Cloud Storage, Azure, Cloudflare R2 and Backblaze, and
CloudEvents.

Rule: recognised by their structure alone. Only an event that says that bytes were written makes a
reference; of other known ones the kind is given, and an unknown one is an error. Names are taken
literally, except in Azure's URLs, which are percent-encoded. A CloudEvent in binary mode has a part
of its content in Kafka's headers, and so have some Pub/Sub messages; `structured` first puts the
parts into one value.

Sources: Google, "Pub/Sub notifications for Cloud Storage"; Microsoft, "Azure Blob Storage as an
Event Grid source"; Cloudflare, "R2 event notifications"; Backblaze, "Event Notifications Reference
Guide"; CloudEvents 1.0, "Kafka protocol binding" and "JSON event format".
"""

import json
from base64 import b64decode, b64encode
from collections.abc import Iterator, Sequence
from typing import Any, Final

import msgspec
from msgspec import UNSET, Raw, Struct, UnsetType, field
from msgspec.json import Decoder

from penstock.messages.reference import Reference, SchemaError
from penstock.messages.urls import split_url

# Google's three names for "a new object": the names in Pub/Sub, in Eventarc, and in Google's older
# functions.
_FINALIZED: Final = frozenset(
    {
        "OBJECT_FINALIZE",
        "google.cloud.storage.object.v1.finalized",
        "google.storage.object.finalize",
    }
)
_GOOGLE: Final = ("google.cloud.storage.object.", "google.storage.object.")
_GOOGLE_OTHERS: Final = (*_GOOGLE, "OBJECT_")
_AZURE: Final = ("Microsoft.Storage.", "Microsoft.EventGrid.")
_BLOB_CREATED: Final = "Microsoft.Storage.BlobCreated"
# A file of a data lake, or by SFTP, is created without bytes; these come with another event.
_WITHOUT_BYTES: Final = frozenset({"CreateFile", "SftpCreate"})
_R2_CREATED: Final = frozenset({"PutObject", "CopyObject", "CompleteMultipartUpload"})
_R2_GONE: Final = frozenset({"DeleteObject", "LifecycleDeletion"})
_B2_CREATED: Final = frozenset(
    f"b2:ObjectCreated:{how}"
    for how in ("Upload", "MultipartUpload", "Copy", "Replica", "MultipartReplica")
)

Headers = Sequence[tuple[str, bytes]]


class _GoogleObject(Struct):
    """Google's object resource; its numbers are strings."""

    bucket: str
    name: str
    generation: str | None = None
    metageneration: str | None = None
    size: str | int | None = None
    time_created: str | None = field(default=None, name="timeCreated")
    time_deleted: str | None = field(default=None, name="timeDeleted")


class _Attributes(Struct, rename="camel"):
    """The attributes of a Pub/Sub message about an object."""

    bucket_id: str
    object_id: str
    event_type: str
    object_generation: str | None = None
    event_time: str | None = None


class _Blob(Struct, rename="camel"):
    """The `data` of Azure's events."""

    url: str
    api: str | None = None
    e_tag: str | None = None
    content_length: int | None = None


class _GridEvent(Struct, rename="camel"):
    event_type: str
    event_time: str | None = None
    data: Raw = Raw(b"null")


class _R2Object(Struct):
    key: str
    size: int | None = None
    etag: str | None = field(default=None, name="eTag")


class _R2Event(Struct):
    action: str
    bucket: str
    object: _R2Object
    time: str | None = field(default=None, name="eventTime")


class _B2Event(Struct, rename="camel"):
    event_type: str
    bucket_name: str | None = None
    object_name: str | None = None
    object_size: int | None = None
    object_version_id: str | None = None
    event_timestamp: int | None = None


class CloudEvent(Struct):
    """A CloudEvent in structured mode. The names of the fields are those of the specification,
    which have no underscores.
    """

    type: str
    specversion: str
    time: str | None = None
    data: Raw | UnsetType = UNSET
    data_base64: str | UnsetType = UNSET

    @property
    def body(self) -> bytes:
        if self.data_base64 is not UNSET:
            return b64decode(self.data_base64, validate=True)
        if self.data is UNSET:
            raise SchemaError(f"the CloudEvent {self.type[:80]!r} has no data")
        value = bytes(self.data)
        # Some senders declare another content type and write the JSON as a string.
        return msgspec.json.decode(value, type=str).encode() if value.startswith(b'"') else value


_google = Decoder(_GoogleObject)
_attributes = Decoder(_Attributes)
_blob = Decoder(_Blob)
_grid = Decoder(_GridEvent)
_r2 = Decoder(_R2Event)
_b2 = Decoder(list[_B2Event])
_event = Decoder(CloudEvent)


def cloud_event(value: bytes) -> CloudEvent:
    return _event.decode(value)


def is_of_cloud(event: CloudEvent) -> bool:
    """True if the event's data is a notification of a cloud's object store, and not another kind of
    message.
    """
    return event.type.startswith((*_GOOGLE, *_AZURE))


def of_cloud_event(event: CloudEvent) -> Iterator[Reference | str]:
    if event.type in _FINALIZED:
        yield _of_google(_google.decode(event.body), event.time)
    elif event.type == _BLOB_CREATED:
        yield _of_blob(_blob.decode(event.body), event.time)
    else:
        yield event.type


def of_google_object(value: bytes) -> Iterator[Reference | str]:
    """The reference of an object resource that came alone, because a Kafka connector dropped the
    attributes of its message. The resource makes no reference if it has `timeDeleted` (the object
    is gone) or a `metageneration` above 1 (only metadata changed).
    """
    resource = _google.decode(value)
    if resource.time_deleted is None and resource.metageneration in (None, "1"):
        yield _of_google(resource, resource.time_created)
    else:
        yield "storage#object changed or deleted"


def of_attributes(attributes: bytes) -> Iterator[Reference | str]:
    """The reference to the object that the attributes of a Pub/Sub message name. The payload of the
    message is not needed.
    """
    named = _attributes.decode(attributes)
    if named.event_type in _FINALIZED:
        yield Reference(
            store="gs",
            bucket=named.bucket_id,
            key=named.object_id,
            event_time=named.event_time,
            version_id=named.object_generation,
        )
    elif named.event_type.startswith(_GOOGLE_OTHERS):
        yield named.event_type
    else:
        raise SchemaError(f"the eventType {named.event_type[:80]!r} is none of Google's storage")


def of_grid(value: bytes) -> Iterator[Reference | str]:
    """The reference of an event in Event Grid's own schema."""
    event = _grid.decode(value)
    if event.event_type == _BLOB_CREATED:
        yield _of_blob(_blob.decode(event.data), event.event_time)
    elif event.event_type.startswith(_AZURE):
        yield event.event_type
    else:
        raise SchemaError(f"events of type {event.event_type[:80]!r} announce no object")


def of_r2(value: bytes) -> Iterator[Reference | str]:
    event = _r2.decode(value)
    if event.action in _R2_CREATED:
        yield Reference(
            bucket=event.bucket,
            key=event.object.key,
            event_time=event.time,
            etag=event.object.etag or None,
            size=event.object.size,
        )
    elif event.action in _R2_GONE:
        yield event.action
    else:
        raise SchemaError(f"the action {event.action[:80]!r} is unknown")


def of_b2(events: bytes) -> Iterator[Reference | str]:
    for event in _b2.decode(events):
        if event.event_type not in _B2_CREATED:
            if not event.event_type.startswith("b2:"):
                raise SchemaError(f"events of type {event.event_type[:80]!r} announce no object")
            yield event.event_type
            continue
        if event.bucket_name is None or event.object_name is None:
            raise SchemaError("an event of Backblaze names no bucketName and objectName")
        yield Reference(
            bucket=event.bucket_name,
            key=event.object_name,
            event_time=event.event_timestamp,
            version_id=event.object_version_id,
            size=event.object_size,
        )


def _of_google(resource: _GoogleObject, time: str | None) -> Reference:
    """A reference to exactly this generation of the object. The entity tag in the notification
    cannot be used for this, because it is not the tag that a GET compares.
    """
    size = resource.size
    return Reference(
        store="gs",
        bucket=resource.bucket,
        key=resource.name,
        event_time=time,
        version_id=resource.generation,
        size=None if size is None else int(size),
    )


def _of_blob(blob: _Blob, time: str | None) -> Reference | str:
    if blob.api in _WITHOUT_BYTES:
        return f"{_BLOB_CREATED} by {blob.api}"
    store, bucket, key = split_url(blob.url)
    return Reference(
        store=store,
        bucket=bucket,
        key=key,
        event_time=time,
        etag=blob.e_tag or None,
        size=blob.content_length,
    )


def structured(value: bytes | None, headers: Headers) -> bytes | None:
    """The message as one value. The parts of a CloudEvent in binary mode are put together, and so
    are those of a Pub/Sub message with attributes in headers. The value of any other message stays
    as it is.
    """
    named: dict[str, Any] = {}
    for name, text in headers:
        if is_part(name):
            named[name.removeprefix("ce_")] = (text or b"").decode(errors="surrogateescape")
    if value is None or not named:
        return value
    if "eventType" in named and "objectId" in named:
        return _together({"message": {"attributes": named}})
    if "type" not in named or "specversion" not in named:
        return value
    return _together(named | {"data_base64": b64encode(value).decode()})


def _together(parts: dict[str, Any]) -> bytes:
    """The parts as JSON. Bytes of a header that are not UTF-8 stay as they are, so that `decode`
    refuses them.
    """
    try:
        return msgspec.json.encode(parts)
    except UnicodeEncodeError:
        return json.dumps(parts, ensure_ascii=False).encode(errors="surrogateescape")


def is_part(header: str) -> bool:
    """True if `structured` reads this header as a part of the message."""
    return header.startswith("ce_") or header in _PUBSUB


_PUBSUB: Final = frozenset({"eventType", "bucketId", "objectId", "objectGeneration", "eventTime"})
