"""Announcements of the other clouds and CloudEvents, each as its vendor's documentation has it."""

from base64 import b64encode
from typing import Any

import orjson
import pytest

from penstock.messages.cloud_events import structured
from penstock.messages.codec import Ignored, Inline, References, decode
from penstock.messages.reference import Reference, SchemaError

# Google, "Pub/Sub notifications for Cloud Storage" and the object resource of the JSON API.
RESOURCE = {
    "kind": "storage#object",
    "id": "cams/site 1/a+b%20.csv/1517075690065311",
    "selfLink": "https://www.googleapis.com/storage/v1/b/cams/o/site%201%2Fa+b%2520.csv",
    "name": "site 1/a+b%20.csv",
    "bucket": "cams",
    "generation": "1517075690065311",
    "metageneration": "1",
    "contentType": "text/csv",
    "timeCreated": "2018-01-27T17:54:50.058Z",
    "updated": "2018-01-27T17:54:50.058Z",
    "storageClass": "STANDARD",
    "size": "1024",
    "md5Hash": "YjA3Njg1OcZjOGJmZGJjZGY2Y2JhMjU0YTUwODI1OTc=",
    "crc32c": "EIwIPh==",
    "etag": "CKeb6qzb+NzCEBE=",
}
ATTRIBUTES = {
    "notificationConfig": "projects/_/buckets/cams/notificationConfigs/1",
    "eventType": "OBJECT_FINALIZE",
    "payloadFormat": "JSON_API_V1",
    "bucketId": "cams",
    "objectId": "site 1/a+b%20.csv",
    "objectGeneration": "1517075690065311",
    "eventTime": "2018-01-27T17:54:50.058Z",
}
GOOGLE = Reference(
    store="gs",
    bucket="cams",
    key="site 1/a+b%20.csv",
    event_time="2018-01-27T17:54:50.058Z",
    version_id="1517075690065311",
    size=1024,
)
BY_ATTRIBUTES = Reference(
    store="gs",
    bucket="cams",
    key="site 1/a+b%20.csv",
    event_time="2018-01-27T17:54:50.058Z",
    version_id="1517075690065311",
)
# Microsoft, "Azure Blob Storage as an Event Grid source": Microsoft.Storage.BlobCreated.
BLOB = {
    "api": "PutBlockList",
    "clientRequestId": "4c5dd7fb-2c48-4a27-bb30-5361b5de920a",
    "requestId": "9aeb0fdf-c01e-0131-0922-9eb549000000",
    "eTag": "0x8D76C39E4407333",
    "contentType": "image/png",
    "contentLength": 30699,
    "blobType": "BlockBlob",
    "accessTier": "Default",
    "url": "https://acme.blob.core.windows.net/cams/site%201/a%2Bb.png",
    "sequencer": "000000000000000000000000000099240000000000c41c18",
    "storageDiagnostics": {"batchId": "681fe319-3006-00a8-0022-9e7cde000000"},
}
GRID = {
    "topic": "/subscriptions/s/resourceGroups/g/providers/Microsoft.Storage/storageAccounts/acme",
    "subject": "/blobServices/default/containers/cams/blobs/site 1/a+b.png",
    "eventType": "Microsoft.Storage.BlobCreated",
    "eventTime": "2019-11-18T15:13:39.4589254Z",
    "id": "9aeb0fdf-c01e-0131-0922-9eb54906e209",
    "data": BLOB,
    "dataVersion": "",
    "metadataVersion": "1",
}
AZURE = Reference(
    store="az@acme",
    bucket="cams",
    key="site 1/a+b.png",
    event_time="2019-11-18T15:13:39.4589254Z",
    etag="0x8D76C39E4407333",
    size=30699,
)
# Cloudflare, "R2 event notifications".
R2 = {
    "account": "3f4b7e3dcab231cbfdaa90a6a28bd548",
    "action": "CopyObject",
    "bucket": "cams",
    "object": {"key": "new+object", "size": 65536, "eTag": "c846ff7a18f28c2e262116d6e8719ef0"},
    "eventTime": "2024-05-24T19:36:44.379Z",
    "copySource": {"bucket": "my-bucket", "object": "my-original-object"},
}
# Backblaze, "Event Notifications Reference Guide".
B2 = {
    "events": [
        {
            "accountId": "e85c6a500333",
            "bucketId": "aea8c5bc362ae55070130333",
            "bucketName": "cams",
            "eventId": "ff3128d8a5f0b0d7e0e0c5f4d5d8c7c1",
            "eventTimestamp": 1684793309123,
            "eventType": "b2:ObjectCreated:Upload",
            "eventVersion": 1,
            "matchedRuleName": "mySampleRule1",
            "objectName": "a+b.csv",
            "objectSize": 10495842,
            "objectVersionId": "4_zaea8c5bc362ae55070130333_f117c7bd5d6c6597c",
        }
    ]
}
# Ceph, "Event record": the size is a text.
CEPH = {
    "eventVersion": "2.1",
    "eventSource": "ceph:s3",
    "awsRegion": "us-east-1",
    "eventTime": "2019-11-22T13:47:35.124724Z",
    "eventName": "ObjectCreated:Put",
    "s3": {
        "s3SchemaVersion": "1.0",
        "configurationId": "mynotif1",
        "bucket": {"name": "cams", "id": "503a4c37-85eb-47cd-8681-2817e80b4281.5332.38"},
        "object": {
            "key": "myimage1.jpg",
            "size": "1024",
            "eTag": "37b51d194a7513e45b56f6524f2d51f2",
            "versionId": "",
            "sequencer": "F7E6D75DC742D108",
            "metadata": [],
            "tags": [],
        },
    },
    "eventId": "",
    "opaqueData": "me@example.com",
}


def event(type: str, data: Any, **more: Any) -> dict[str, Any]:
    return {
        "specversion": "1.0",
        "id": "1",
        "source": "//storage.googleapis.com/projects/_/buckets/cams",
        "type": type,
        "datacontenttype": "application/json",
        "data": data,
        **more,
    }


def base64(document: Any) -> str:
    return b64encode(orjson.dumps(document)).decode()


GOOGLE_EVENT = event(
    "google.cloud.storage.object.v1.finalized",
    RESOURCE,
    subject="objects/site 1/a+b%20.csv",
    time="2018-01-27T17:54:50.058Z",
)
AZURE_EVENT = event("Microsoft.Storage.BlobCreated", BLOB, time="2019-11-18T15:13:39.4589254Z")
FORMS: dict[str, tuple[Any, Reference]] = {
    "the resource alone": (RESOURCE, GOOGLE),
    "pub/sub, pushed": (
        {"message": {"attributes": ATTRIBUTES}, "subscription": "s"},
        BY_ATTRIBUTES,
    ),
    "pub/sub, attributes beside the bytes": (
        {"message": base64(RESOURCE), **ATTRIBUTES},
        BY_ATTRIBUTES,
    ),
    "pub/sub, without attributes": ({"message": {"data": base64(RESOURCE)}}, GOOGLE),
    "eventarc": (GOOGLE_EVENT, GOOGLE),
    "event grid": ([GRID], AZURE),
    "event grid, one": (GRID, AZURE),
    "event grid, cloudevents": (AZURE_EVENT, AZURE),
    "event grid, a batch of cloudevents": ([AZURE_EVENT], AZURE),
    "cloudflare": (
        R2,
        Reference(
            bucket="cams",
            key="new+object",
            event_time="2024-05-24T19:36:44.379Z",
            etag="c846ff7a18f28c2e262116d6e8719ef0",
            size=65536,
        ),
    ),
    "backblaze": (
        B2,
        Reference(
            bucket="cams",
            key="a+b.csv",
            event_time=1684793309123,
            version_id="4_zaea8c5bc362ae55070130333_f117c7bd5d6c6597c",
            size=10495842,
        ),
    ),
}
OF_CEPH = Reference(
    bucket="cams",
    key="myimage1.jpg",
    event_time="2019-11-22T13:47:35.124724Z",
    etag="37b51d194a7513e45b56f6524f2d51f2",
    size=1024,
)
FORMS["ceph"] = ({"Records": [CEPH]}, OF_CEPH)
FORMS["ceph, as a cloudevent"] = (event("com.amazonaws.ObjectCreated:Put", CEPH), OF_CEPH)


@pytest.mark.parametrize("form", FORMS)
def test_each_vendor_announces_its_object(form: str) -> None:
    document, reference = FORMS[form]
    assert decode(orjson.dumps(document)) == References((reference,), announced=True)


@pytest.mark.parametrize(
    "document",
    [
        RESOURCE | {"timeDeleted": "2018-01-28T17:54:50.058Z"},
        RESOURCE | {"metageneration": "2"},
        {"message": {"attributes": ATTRIBUTES | {"eventType": "OBJECT_DELETE"}}},
        {"message": "", **ATTRIBUTES, "eventType": "OBJECT_ARCHIVE"},
        event("google.cloud.storage.object.v1.deleted", RESOURCE),
        event("google.cloud.storage.object.v1.metadataUpdated", RESOURCE),
        [GRID | {"eventType": "Microsoft.Storage.BlobDeleted"}],
        [GRID | {"eventType": "Microsoft.Storage.BlobTierChanged"}],
        event("Microsoft.Storage.AsyncOperationInitiated", BLOB),
        [GRID | {"eventType": "Microsoft.EventGrid.SubscriptionValidationEvent", "data": {}}],
        R2 | {"action": "DeleteObject", "object": {"key": "k"}},
        R2 | {"action": "LifecycleDeletion", "object": {"key": "k"}},
        {"events": [B2["events"][0] | {"eventType": "b2:ObjectDeleted:Delete"}]},
        {"events": [{"accountId": "1", "eventType": "b2:TestEvent"}]},
        {"Records": [CEPH | {"eventName": "ObjectLifecycle:Expiration:Current"}]},
        {"Records": [CEPH | {"eventName": "s3:ObjectRestore:Completed"}]},
    ],
)
def test_deleted_tiered_restored_and_test_events_ask_for_nothing(document: Any) -> None:
    assert isinstance(decode(orjson.dumps(document)), Ignored)


@pytest.mark.parametrize(
    "document",
    [
        event("com.acme.greeting", {"hello": "world"}),
        event("com.acme.greeting", None) | {"data_base64": "***"},
        {"specversion": "1.0", "type": "com.acme.empty"},
        [GRID | {"eventType": "Acme.Something"}],
        [GRID | {"data": BLOB | {"url": "not an address"}}],
        R2 | {"action": "Sneeze"},
        {"events": [{"eventType": "b2:ObjectCreated:Upload"}]},
        {"kind": "storage#object", "bucket": "b"},
        {"message": {}},
        {"bucket": "b"},
        {"bucket": "b", "key": "k", "size": "many"},
        [{"bucket": "b", "key": "k"}],
    ],
)
def test_what_only_looks_like_one_is_refused(document: Any) -> None:
    with pytest.raises(SchemaError):
        decode(orjson.dumps(document))


def test_any_cloudevent_may_carry_our_own_messages() -> None:
    ours = {"bucket": "b", "key": "k", "stream": "s"}
    reference = Reference(bucket="b", key="k", stream="s")
    for document in (
        event("com.acme.uploaded", ours),
        event("com.acme.uploaded", orjson.dumps(ours).decode()),
        {"specversion": "1.0", "type": "t", "data_base64": base64(ours)},
    ):
        assert decode(orjson.dumps(document)) == References((reference,))
    inline = decode(orjson.dumps(event("com.acme.rows", {"stream": "s", "inline": [[1]]})))
    assert isinstance(inline, Inline)


def test_cloudevents_in_cloudevents_have_an_end() -> None:
    document: Any = {"bucket": "b", "key": "k"}
    for _ in range(10):
        document = event("com.acme.wrapped", document)
    with pytest.raises(SchemaError, match="wrapped"):
        decode(orjson.dumps(document))


BINARY = [
    ("ce_specversion", b"1.0"),
    ("ce_type", b"Microsoft.Storage.BlobCreated"),
    ("ce_source", b"/subscriptions/s"),
    ("ce_id", b"1"),
    ("ce_time", b"2019-11-18T15:13:39.4589254Z"),
    ("content-type", b"application/json"),
]


def test_a_cloudevent_in_binary_mode_is_what_it_is_in_one_piece() -> None:
    value = structured(orjson.dumps(BLOB), BINARY)
    assert decode(value) == References((AZURE,), announced=True)
    gone = [*BINARY[:1], ("ce_type", b"Microsoft.Storage.BlobDeleted"), *BINARY[2:]]
    assert isinstance(decode(structured(orjson.dumps(BLOB), gone)), Ignored)


@pytest.mark.parametrize(
    ("kind", "found"),
    [
        (b"OBJECT_FINALIZE", References((BY_ATTRIBUTES,), announced=True)),
        (b"OBJECT_DELETE", Ignored(("OBJECT_DELETE",))),
    ],
)
def test_attributes_of_pub_sub_may_be_headers(kind: bytes, found: Any) -> None:
    headers = [(name, text.encode()) for name, text in ATTRIBUTES.items()]
    headers = [(name, kind if name == "eventType" else text) for name, text in headers]
    assert decode(structured(orjson.dumps(RESOURCE), headers)) == found


def test_other_headers_change_nothing() -> None:
    value = orjson.dumps({"bucket": "b", "key": "k"})
    for headers in ([], [("traceparent", b"00-1")], [("ce_id", b"1")], [("eventType", b"x")]):
        assert structured(value, headers) is value
    assert structured(None, BINARY) is None


def test_a_header_that_is_not_utf_8_is_refused_and_not_changed() -> None:
    named = [("bucketId", b"b"), ("objectId", b"K\xf6ln.csv"), ("eventType", b"OBJECT_FINALIZE")]
    value = structured(b"{}", named)
    assert value is not None
    assert b"K\xf6ln.csv" in value
    with pytest.raises(SchemaError, match="not UTF-8"):
        decode(value)
