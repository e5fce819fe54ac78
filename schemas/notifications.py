"""What stores announce by themselves: S3, MinIO, Ceph and EventBridge events, bare or wrapped by SNS or SQS.

Rule: recognised by structure; only events that made an object become references. Keys of `Records` events are form-encoded, those of
EventBridge are plain. The version is pinned by `versionId`, else by `eTag`.
"""

from collections.abc import Iterator
from typing import Any
from urllib.parse import unquote_plus

import msgspec

from schemas.errors import SchemaError
from schemas.reference import Reference

# SNS inside SQS inside a Lambda envelope is the deepest that is seen in practice.
MAX_WRAPPINGS = 4


def is_notification(tree: dict[str, Any]) -> bool:
    """Does this look like an event, or like something that wraps one?"""
    return (
        "Records" in tree
        or "detail-type" in tree
        or tree.get("Event") == "s3:TestEvent"
        or isinstance(tree.get("Message"), str)
        or isinstance(tree.get("body"), str)
    )


def references(tree: dict[str, Any], wrappings: int = 0) -> Iterator[Reference]:
    """References to the objects that were created, in the event's order; none for every other event."""
    if wrappings > MAX_WRAPPINGS:
        raise SchemaError(f"the notification is wrapped more than {MAX_WRAPPINGS} times")
    if "detail-type" in tree:
        yield from _event_bridge(tree)
    elif "Records" in tree:
        records = tree["Records"]
        if not isinstance(records, list):
            raise SchemaError("Records must be a list")
        for record in records:
            yield from _record(_object(record, "Records[]"), wrappings)
    elif isinstance(inner := tree.get("Message") or tree.get("body"), str):
        yield from references(_parse(inner), wrappings + 1)


def _record(record: dict[str, Any], wrappings: int) -> Iterator[Reference]:
    if isinstance(body := record.get("body"), str):
        yield from references(_parse(body), wrappings + 1)
        return
    if isinstance(sns := record.get("Sns"), dict):
        yield from references(sns, wrappings + 1)
        return
    name = record.get("eventName")
    if not isinstance(name, str):
        raise SchemaError("an event has no eventName")
    if not name.removeprefix("s3:").startswith("ObjectCreated:"):
        return
    store = _object(record.get("s3"), "s3")
    made = _object(store.get("object"), "s3.object")
    yield _reference(
        bucket=_object(store.get("bucket"), "s3.bucket").get("name"),
        key=unquote_plus(_text(made.get("key"), "s3.object.key")),
        version_id=made.get("versionId"),
        etag=made.get("eTag"),
        size=made.get("size"),
        event_time=record.get("eventTime"),
    )


def _event_bridge(tree: dict[str, Any]) -> Iterator[Reference]:
    if tree["detail-type"] != "Object Created":
        return
    detail = _object(tree.get("detail"), "detail")
    made = _object(detail.get("object"), "detail.object")
    yield _reference(
        bucket=_object(detail.get("bucket"), "detail.bucket").get("name"),
        key=_text(made.get("key"), "detail.object.key"),
        version_id=made.get("version-id"),
        etag=made.get("etag"),
        size=made.get("size"),
        event_time=tree.get("time"),
    )


def _reference(**fields: Any) -> Reference:
    """Empty strings are what stores write for "none"; `null` is MinIO's version of an unversioned object."""
    if fields["version_id"] in ("", "null"):
        fields["version_id"] = None
    fields["etag"] = fields["etag"] or None
    try:
        return msgspec.convert(fields, Reference)
    except msgspec.ValidationError as error:
        raise SchemaError(f"notification: {error}") from None


def _parse(text: str) -> dict[str, Any]:
    try:
        tree = msgspec.json.decode(text)
    except (msgspec.DecodeError, UnicodeError, RecursionError) as error:
        raise SchemaError(f"the wrapped notification is not JSON: {error}") from None
    return _object(tree, "the wrapped notification")


def _object(value: Any, name: str) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise SchemaError(f"{name} must be an object")
    return value


def _text(value: Any, name: str) -> str:
    if not isinstance(value, str):
        raise SchemaError(f"{name} must be text")
    return value
