"""Object stores' announcements, as each of them writes them, bare and wrapped."""

import gzip
import re
from typing import Any

import orjson
import pytest

from penstock.messages.codec import Ignored, References, decode
from penstock.messages.reference import Reference, SchemaError

CREATED = Reference(
    bucket="cams",
    key="site 1/cam+3/ü.csv",
    event_time="2026-11-21T08:15:30.123Z",
    version_id="v1",
    etag="5d41402abc4b2a76b9719d911017c592",
    size=1024,
)


def s3_event(name: str = "ObjectCreated:Put", **s3_object: Any) -> dict[str, Any]:
    return {
        "eventVersion": "2.1",
        "eventSource": "aws:s3",
        "awsRegion": "eu-west-1",
        "eventTime": "2026-11-21T08:15:30.123Z",
        "eventName": name,
        "userIdentity": {"principalId": "AWS:X"},
        "requestParameters": {"sourceIPAddress": "10.0.0.1"},
        "s3": {
            "s3SchemaVersion": "1.0",
            "configurationId": "all",
            "bucket": {"name": "cams", "arn": "arn:aws:s3:::cams"},
            "object": {
                "key": "site+1%2Fcam%2B3%2F%C3%BC.csv",
                "size": 1024,
                "eTag": "5d41402abc4b2a76b9719d911017c592",
                "versionId": "v1",
                "sequencer": "0055AED6DCD90281E5",
                **s3_object,
            },
        },
    }


def bridge_event(detail_type: str = "Object Created") -> dict[str, Any]:
    return {
        "version": "0",
        "id": "17793124-05d4-b198-2fde-7ededc63b103",
        "detail-type": detail_type,
        "source": "aws.s3",
        "time": "2026-11-21T08:15:30.123Z",
        "resources": ["arn:aws:s3:::cams"],
        "detail": {
            "version": "0",
            "bucket": {"name": "cams"},
            "object": {
                "key": "site 1/cam+3/ü.csv",
                "size": 1024,
                "etag": "5d41402abc4b2a76b9719d911017c592",
                "version-id": "v1",
                "sequencer": "00617F08299329D189",
            },
            "reason": "PutObject",
        },
    }


def cloud_trail(**changes: Any) -> dict[str, Any]:
    """As EventBridge hands on the calls that CloudTrail has logged."""
    return {
        "version": "0",
        "detail-type": "AWS API Call via CloudTrail",
        "source": "aws.s3",
        "time": "2026-11-21T08:15:31Z",
        "detail": {
            "eventVersion": "1.08",
            "eventTime": "2026-11-21T08:15:30Z",
            "eventSource": "s3.amazonaws.com",
            "eventName": "PutObject",
            "requestParameters": {"bucketName": "cams", "key": "site 1/cam+3/ü.csv"},
            "responseElements": {"x-amz-version-id": "v1"},
            **changes,
        },
    }


def text(document: Any) -> str:
    return orjson.dumps(document).decode()


AWS = {"Records": [s3_event()]}
FORMS = {
    "aws": AWS,
    "minio": {
        "EventName": "s3:ObjectCreated:Put",
        "Key": "cams/site 1/cam+3/ü.csv",
        "Records": [s3_event("s3:ObjectCreated:Put")],
    },
    "ceph": {"Records": [s3_event("ObjectCreated:CompleteMultipartUpload") | {"opaqueData": "x"}]},
    "eventbridge": bridge_event(),
    "sns": {"Type": "Notification", "MessageId": "1", "TopicArn": "arn", "Message": text(AWS)},
    "sqs": {"messageId": "1", "attributes": {"SentTimestamp": "1"}, "body": text(AWS)},
    "sqs api": {"MessageId": "1", "Attributes": {}, "Body": text(AWS)},
    "sqs of sns": {"body": text({"Type": "Notification", "Message": text(AWS)})},
    "sqs of eventbridge": {"body": text(bridge_event())},
    "ceph of another zone": {"Records": [s3_event("ObjectSynced:Create")]},
    "sqs of a function": {"Records": [{"eventSource": "aws:sqs", "body": text(AWS)}]},
    "sns of a function": {"Records": [{"EventSource": "aws:sns", "Sns": {"Message": text(AWS)}}]},
}


@pytest.mark.parametrize("form", FORMS)
def test_every_form_announces_the_same_object(form: str) -> None:
    assert decode(orjson.dumps(FORMS[form])) == References((CREATED,), announced=True)


def test_only_eventbridge_leaves_keys_as_they_are() -> None:
    event = bridge_event()
    event["detail"]["object"]["key"] = "a%2Fb+c"
    message = decode(orjson.dumps(event))
    assert isinstance(message, References)
    assert message.items[0].key == "a%2Fb+c"


def test_a_call_needs_no_more_than_its_name_bucket_and_key() -> None:
    event = cloud_trail()
    event["detail"] = {
        "eventName": "PutObject", "requestParameters": {"bucketName": "b", "key": "a.csv"}
    }  # fmt: skip
    found = References((Reference(bucket="b", key="a.csv"),), announced=True)
    assert decode(orjson.dumps(event | {"source": "x"})) == found


@pytest.mark.parametrize(
    "name", ["PutObject", "PostObject", "CopyObject", "CompleteMultipartUpload"]
)
def test_a_call_that_wrote_bytes_announces_its_object(name: str) -> None:
    assert decode(orjson.dumps(cloud_trail(eventName=name))) == References(
        (
            Reference(
                bucket="cams",
                key="site 1/cam+3/ü.csv",
                event_time="2026-11-21T08:15:30Z",
                version_id="v1",
            ),
        ),
        announced=True,
    )


@pytest.mark.parametrize(
    ("document", "words"),
    [
        ({"Records": [s3_event("Made:Up")]}, "eventName 'Made:Up'"),
        ({"Records": [s3_event("")]}, "eventName ''"),
        ({"detail-type": "upload finished", "source": "x", "detail": {"bucket": "b", "key": "k"}},
         "detail-type 'upload finished'"),
        (cloud_trail(requestParameters=None), "no bucketName and key"),
        ({"Records": [s3_event(key="K%F6ln.csv")]}, "not UTF-8"),
        ({"url": "https://acct.blob.core.windows.net/raw/K%F6ln.csv"}, "not UTF-8"),
        ({"Type": "SubscriptionConfirmation", "Message": "You have chosen to subscribe",
          "SubscribeURL": "https://sns"}, "a SubscriptionConfirmation of SNS"),
        ({"Type": "UnsubscribeConfirmation", "Message": "You have chosen"}, "SubscribeURL"),
        ({"Type": "Notification", "Message": "hello"}, "no JSON, but 'hello'"),
        ({"body": "This is a test message"}, "inside SNS or SQS"),
        ({"message": {"attributes": {"bucketId": "b", "objectId": "o", "eventType": "MINE"}}},
         "none of Google's"),
        ({"events": [{"eventType": "mine"}]}, "announce no object"),
    ],
)  # fmt: skip
def test_an_event_that_is_not_known_is_an_error_that_names_it(document: Any, words: str) -> None:
    with pytest.raises(SchemaError, match=re.escape(words)):
        decode(orjson.dumps(document))


@pytest.mark.parametrize(
    ("value", "words"),
    [
        (b"", "is empty"),
        (b" \n", "is empty"),
        (b"\xef\xbb\xbf" + orjson.dumps(AWS), "byte order mark"),
        (text(AWS).encode("utf-16"), "UTF-16"),
        (text(AWS).encode("utf-16-le"), "UTF-16"),
        (text(AWS).encode("utf-16-be"), "UTF-16"),
        (gzip.compress(orjson.dumps(AWS)), "is gzip"),
        (b"\0\0\0\0\x07\x02b\x02k", "schema 7"),
        (b"\n\x01b\x12\x03\xff\xfe\xfd", "not UTF-8"),
        (orjson.dumps(text(AWS)), "encoded twice"),
        (b"s3://cams/a.csv", "is a URL"),
        (b"<Event/>", "XML"),
        (b'{"bucket":"b","key":"\\ud800"}', "half of a surrogate pair"),
        (b'{"bucket":"b","key":"k","stream":"\\udcff"}', "half of a surrogate pair"),
        (b"site,key", "JSON is malformed"),
    ],
)
def test_a_value_that_is_no_message_is_named(value: bytes, words: str) -> None:
    with pytest.raises(SchemaError, match=words):
        decode(value)


def test_what_a_store_leaves_out_is_left_out() -> None:
    event = s3_event()
    event["s3"]["object"] = {"key": "folder/"}
    del event["eventTime"]
    assert decode(orjson.dumps({"Records": [event]})) == References(
        (Reference(bucket="cams", key="folder/"),), announced=True
    )


def test_a_message_of_many_events_yields_those_of_new_objects_in_order() -> None:
    events = [s3_event(key="2"), s3_event("ObjectRemoved:Delete", key="x"), s3_event(key="1")]
    message = decode(orjson.dumps({"Records": events}))
    assert isinstance(message, References)
    assert [reference.key for reference in message.items] == ["2", "1"]


@pytest.mark.parametrize(
    "document",
    [
        {"Service": "Amazon S3", "Event": "s3:TestEvent", "Bucket": "cams"},
        {"Message": text({"Service": "Amazon S3", "Event": "s3:TestEvent"})},
        {"Records": [s3_event("ObjectRemoved:DeleteMarkerCreated")]},
        {"Records": [s3_event("s3:ObjectAccessed:Get")]},
        {"Records": [{"body": text({"Records": [s3_event("LifecycleTransition")]})}]},
        bridge_event("Object Deleted"),
        *(
            {"Records": [s3_event(f"s3:ObjectCreated:{name}")]}
            for name in ("PutTagging", "DeleteTagging", "PutLegalHold", "PutRetention")
        ),
        {"Records": [s3_event("ObjectRestore:Completed")]},
        cloud_trail(eventName="PutObjectTagging"),
        cloud_trail(errorCode="AccessDenied"),
        cloud_trail(eventSource="ec2.amazonaws.com", eventName="RunInstances"),
    ],
)
def test_other_events_are_ignored(document: Any) -> None:
    decoded = decode(orjson.dumps(document))
    assert isinstance(decoded, Ignored)
    assert len(decoded.ignored) == 1


@pytest.mark.parametrize(
    "document",
    [
        {"Records": []},
        {"Records": [{}]},
        {"Records": [{"eventName": "ObjectCreated:Put", "s3": {"bucket": {"name": "b"}}}]},
        {"Records": [s3_event(key="")]},
        {"Records": "none"},
        {"Event": "s3:Other"},
        {"Message": "plain words"},
        {"body": text({"hello": "world"})},
        {"detail-type": "Object Created"},
        {"detail-type": "Object Created", "detail": {}},
    ],
)
def test_what_only_looks_like_one_is_refused(document: Any) -> None:
    with pytest.raises(SchemaError):
        decode(orjson.dumps(document))


def test_wrapping_without_end_is_refused() -> None:
    document: Any = AWS
    for _ in range(6):
        document = {"body": text(document)}
    with pytest.raises(SchemaError, match="wrapped"):
        decode(orjson.dumps(document))
